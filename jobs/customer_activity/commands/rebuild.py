"""`activity rebuild`: rebuild silver and gold from bronze beside the live ones, compare, and swap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import typer
from rich.table import Table

from customer_activity.errors import EXIT_CHECK_FAILED, SettingsError
from customer_activity.lake import generations
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.run import Rebuilt
from customer_activity.rebuild.run import rebuild as build
from customer_activity.rebuild.swap import Swapped, When
from customer_activity.rebuild.swap import back as go_back
from customer_activity.rebuild.swap import swap as build_and_swap
from customer_activity.settings import Settings
from customer_activity.terminal import console

Done = TypeVar("Done", Rebuilt, Swapped)

TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]  # UTC unless it says otherwise


def rebuild(
    ctx: typer.Context,
    *,
    customer: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only this customer's rows; may be repeated.")
    ] = None,
    since: Annotated[
        datetime | None, typer.Option(formats=TIMES, help="Only customers with a record at this time or later.")
    ] = None,
    until: Annotated[
        datetime | None, typer.Option(formats=TIMES, help="Only customers with a record before this time.")
    ] = None,
    swap: Annotated[
        When, typer.Option(help="Swap the rebuilt tables with the live ones; the streams must be stopped.")
    ] = When.NEVER,
    list_: Annotated[bool, typer.Option("--list", help="List kept generations.")] = False,
    back: Annotated[
        str | None, typer.Option(metavar="GENERATION", help="Swap a kept generation back; the streams must be stopped.")
    ] = None,
    drop: Annotated[str | None, typer.Option(metavar="GENERATION", help="Remove a kept generation.")] = None,
    json: console.JsonOption = False,
) -> None:
    """Rebuild silver and gold from bronze beside the live ones, and compare them row by row. The streams may run.

    With --swap or --back, an interrupted swap is finished first, and then nothing else is done.

    Exit 0: equal, or swapped. Exit 1: there are differences; the table says where, with a few keys.
    """
    settings = console.settings_of(ctx)
    choice = Choice(customer or (), _utc(since), _utc(until))
    _refuse_contradictions({"--swap": swap is not When.NEVER, "--list": list_, "--back": back, "--drop": drop}, choice)
    if list_:
        show_kept(settings, as_json=json)
    elif drop is not None:
        generations.drop(settings.lake, drop)
        console.out.print(f"generation {drop} is gone", highlight=False)
    elif back is not None:
        name = back
        _report_swap(_working(lambda on_step: go_back(settings, name, on_step)), as_json=json)
    elif swap is not When.NEVER:
        _report_swap(_working(lambda on_step: build_and_swap(settings, swap, on_step)), as_json=json)
    else:
        _report(_working(lambda on_step: build(settings, choice, on_step)), as_json=json)


def _refuse_contradictions(options: Mapping[str, object], choice: Choice) -> None:
    """Make sure that one thing is asked for, and of everybody where it is more than a comparison.

    Raises:
        SettingsError: it is not so.
    """
    asked = [name for name, is_asked in options.items() if is_asked]
    if len(asked) > 1:
        raise SettingsError(f"{', '.join(asked)} cannot be asked for together", remedy="ask for one thing at a time")
    if asked and not choice.is_everybody:
        raise SettingsError(
            f"{asked[0]} is of everybody's rows, and some customers were chosen",
            remedy="leave --customer, --since and --until out; for some customers a rebuild compares",
        )


def _working(work: Callable[[Callable[[str], None]], Done]) -> Done:
    with console.err.status("rebuilding") as status:
        return work(status.update)


def _report(done: Rebuilt, *, as_json: bool) -> None:
    if as_json:
        console.print_json(as_data(done))
    else:
        show(done)
        verdict = f"{done.differences:,} rows differ" if done.differences else "equal"
        console.out.print(verdict, style="bold red" if done.differences else "bold green", highlight=False)
    if done.differences:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _report_swap(done: Swapped, *, as_json: bool) -> None:
    if as_json:
        told = as_data(done.rebuilt) if done.rebuilt else {}
        console.print_json({**told, "swapped": bool(done.kept), "kept": done.kept or None})
    else:
        if done.rebuilt is not None:
            show(done.rebuilt)
        style = "bold green" if done.kept else "bold red"
        console.out.print(_outcome(done), style=style, highlight=False, soft_wrap=True)
    if not done.kept:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _outcome(done: Swapped) -> str:
    """Say what came of a swap, in one line."""
    if done.rebuilt is None:
        return f"finished the swap that was interrupted; the former generation is kept as {done.kept}"
    differ = f"{done.rebuilt.differences:,} rows differ" if done.rebuilt.differences else "equal"
    return f"{differ}: swapped, the former generation is kept as {done.kept}" if done.kept else f"{differ}: not swapped"


def show_kept(settings: Settings, *, as_json: bool) -> None:
    """Print the generations that are kept, the oldest first."""
    found = [(kept, generations.size(settings.lake, kept.name)) for kept in generations.kept(settings.lake)]
    if as_json:
        console.print_json(
            [{**kept._asdict(), "taken_out": kept.taken_out.isoformat(), "bytes": size} for kept, size in found]
        )
        return
    grid = Table("generation", "taken out", "by", box=None, pad_edge=False)
    grid.add_column("MB", justify="right")
    for kept, size in found:
        grid.add_row(kept.name, f"{kept.taken_out:%Y-%m-%d %H:%M:%S}", console.cell(kept.reason), f"{size / 1e6:,.1f}")
    console.out.print(grid if found else "no generation is kept")


def as_data(done: Rebuilt) -> dict[str, Any]:
    """Return a rebuild's outcome for machines."""
    tables = [{**table._asdict(), "differences": table.differences} for table in done.tables]
    return {**done._asdict(), "tables": tables, "differences": done.differences}


def show(done: Rebuilt) -> None:
    """Print the comparisons."""
    grid = Table("current rows of", box=None, pad_edge=False)
    for column in ("live", "rebuilt", "only live", "only rebuilt", "different"):
        grid.add_column(column, justify="right")
    for table in done.tables:
        figures = (table.live, table.rebuilt, table.only_live, table.only_rebuilt, table.different)
        grid.add_row(console.cell(table.table), *(f"{figure:,}" for figure in figures))
    console.out.print(grid)
    for table in done.tables:
        _print_differences(table)
    versions = ", ".join(f"{label} {version}" for label, version in done.versions.items())
    console.out.print(f"compared at {versions}", highlight=False, soft_wrap=True)
    console.out.print(
        f"{sum(done.records.values()):,} events of {done.customers:,} customers rebuilt in {done.seconds:.1f} s",
        highlight=False,
    )


def _print_differences(table: Compared) -> None:
    if table.columns:
        columns = ", ".join(f"{column} ({count:,})" for column, count in table.columns.items())
        console.out.print(console.cell(f"  {table.table}: other values in {columns}"), soft_wrap=True)
    if table.examples:
        console.out.print(console.cell(f"  {table.table}: for one, {', '.join(table.examples)}"), soft_wrap=True)


def _utc(moment: datetime | None) -> datetime | None:
    return moment and (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC))
