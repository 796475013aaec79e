"""`activity rebuild`: silver and gold from bronze once more, beside the live ones, and the difference."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from customer_activity import console
from customer_activity.errors import EXIT_CHECK_FAILED
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.run import Rebuilt
from customer_activity.rebuild.run import rebuild as build

TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]  # UTC unless it says otherwise


def rebuild(
    ctx: typer.Context,
    *,
    customer: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only this customer's rows; may be repeated.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=TIMES, help="Only customers with a record from then on.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=TIMES, help="Only customers with a record before then.")
    ] = None,
    json: console.JsonOption = False,
) -> None:
    """Rebuild silver and gold from bronze beside the live ones, and compare them row by row. The streams may run.

    Exit 0: equal. Exit 1: there are differences; the table says where, with a few keys.
    """
    settings = console.settings_of(ctx)
    choice = Choice(customer or (), _utc(since), _utc(until))
    with console.err.status("rebuilding") as status:
        done = build(settings, choice, status.update)
    if json:
        tables = [{**table._asdict(), "differences": table.differences} for table in done.tables]
        console.print_json({**done._asdict(), "tables": tables, "differences": done.differences})
    else:
        show(done)
    if done.differences:
        raise typer.Exit(EXIT_CHECK_FAILED)


def show(done: Rebuilt) -> None:
    """Print the comparisons, and the verdict as the last line."""
    grid = Table("current rows of", box=None, pad_edge=False)
    for column in ("live", "rebuilt", "only live", "only rebuilt", "different"):
        grid.add_column(column, justify="right")
    for table in done.tables:
        figures = (table.live, table.rebuilt, table.only_live, table.only_rebuilt, table.different)
        grid.add_row(table.table, *(f"{figure:,}" for figure in figures))
    console.out.print(grid)
    for table in done.tables:
        _print_differences(table)
    versions = ", ".join(f"{label} {version}" for label, version in done.versions.items())
    console.out.print(f"compared at {versions}", highlight=False, soft_wrap=True)
    console.out.print(
        f"{sum(done.records.values()):,} events of {done.customers:,} customers rebuilt in {done.seconds:.1f} s",
        highlight=False,
    )
    verdict = f"{done.differences:,} rows differ" if done.differences else "equal"
    console.out.print(verdict, style="bold red" if done.differences else "bold green", highlight=False)


def _print_differences(table: Compared) -> None:
    if table.columns:
        columns = ", ".join(f"{column} ({count:,})" for column, count in table.columns.items())
        console.out.print(Text(f"  {table.table}: other values in {columns}"), soft_wrap=True)
    if table.examples:
        console.out.print(Text(f"  {table.table}: for one, {', '.join(table.examples)}"), soft_wrap=True)


def _utc(moment: datetime | None) -> datetime | None:
    return moment and (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
