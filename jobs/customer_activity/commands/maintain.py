"""`activity maintain`: compaction, shorter logs and VACUUM, on demand."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from customer_activity.errors import EXIT_CHECK_FAILED
from customer_activity.maintenance.tending import Tended
from customer_activity.terminal import console


def maintain(
    ctx: typer.Context,
    *,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the driver to do it.")
    ] = 600.0,
    json: console.JsonOption = False,
) -> None:
    """Compact every table, clean up its log, remove expired files (VACUUM); a running driver does the work itself."""
    from customer_activity.maintenance import on_demand as rounds  # noqa: PLC0415 - brings the tables' libraries

    done = rounds.maintain(console.settings_of(ctx), wait)
    if json:
        console.print_json({**done._asdict(), "tables": [table._asdict() for table in done.tables]})
    else:
        console.out.print("by the driver, between its batches" if done.by_driver else "no driver runs: done here")
        console.out.print(_grid(done.tables))
        _print_reasons(done.tables)
        if done.checkpoints:
            console.out.print(f"old checkpoints removed: {', '.join(done.checkpoints)}", highlight=False)
    if any(table.error for table in done.tables):
        raise typer.Exit(EXIT_CHECK_FAILED)


def _grid(tables: list[Tended]) -> Table:
    grid = console.grid("table", figures=("files", "now", "size", "now", "expired", "freed"))
    for table in tables:
        grid.add_row(
            table.table,
            f"{table.files_before:,}",
            f"{table.files_after:,}",
            decimal(table.bytes_before),
            decimal(table.bytes_after),
            f"{table.removed_files:,}",
            decimal(table.removed_bytes),
        )
    return grid


def _print_reasons(tables: list[Tended]) -> None:
    for table in tables:
        for reason in table.behind:
            console.out.print(console.cell(f"{table.table}: nothing removed: {reason}"))
        if table.error:
            console.out.print(console.cell(f"{table.table}: failed: {table.error}"))
