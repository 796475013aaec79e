"""`activity rebuild`: rebuild silver and gold from bronze beside the live ones, compare, and correct what differs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from types import FrameType
from typing import Annotated, Any, TypeVar

import typer

from customer_activity import topology
from customer_activity.errors import EXIT_CHECK_FAILED, SettingsError
from customer_activity.lake import corrections
from customer_activity.lake.corrections import Correction
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.dropping import drop as drop_kept
from customer_activity.rebuild.repair import Applied
from customer_activity.rebuild.repair import apply as build_and_apply
from customer_activity.rebuild.run import Rebuilt
from customer_activity.rebuild.run import rebuild as build
from customer_activity.rebuild.undoing import undo as take_back
from customer_activity.settings import Settings
from customer_activity.terminal import console

Done = TypeVar("Done", Rebuilt, Applied)

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
    apply: Annotated[
        bool, typer.Option("--apply", help="Replace the rows that differ; the streams must be stopped.")
    ] = False,
    undo: Annotated[
        str | None, typer.Option(metavar="CORRECTION", help="Undo a correction; the streams must be stopped.")
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            metavar="STREAM",
            help="Recompute a table behind the hot path with today's settings; its streams must be stopped.",
        ),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the corrections that are kept.")] = False,
    drop: Annotated[
        str | None, typer.Option(metavar="CORRECTION", help="Remove what is kept to undo a correction.")
    ] = None,
    json: console.JsonOption = False,
) -> None:
    """Rebuild silver and gold from bronze next to the live ones, and compare them row by row. The streams may run.

    With --apply the rows that differ are replaced, and nothing else. With --apply or --undo, a correction that was
    interrupted is finished first, and then nothing else is done.

    Exit 0: equal, or corrected. Exit 1: there are differences; the table says where, with a few keys.
    """
    settings = console.settings_of(ctx)
    choice = Choice(customer or (), _utc(since), _utc(until))
    _refuse_contradictions(
        {"--apply": apply, "--undo": undo, "--stream": stream, "--list": list_, "--drop": drop}, choice
    )
    if list_:
        show_kept(settings, as_json=json)
    elif drop is not None:
        drop_kept(settings.lake, drop)
        console.out.print(f"removed what was kept of correction {drop}", highlight=False)
    elif stream is not None:
        _recompute(settings, stream, as_json=json)
    elif undo is not None:
        run = undo
        _report_applied(_working(lambda on_step: take_back(settings, run, on_step)), as_json=json)
    elif apply:
        _report_applied(_working(lambda on_step: build_and_apply(settings, on_step)), as_json=json)
    else:
        _report(_working(lambda on_step: build(settings, choice, on_step)), as_json=json)


def _recompute(settings: Settings, stream: str, *, as_json: bool) -> None:
    """Recompute a stream's table, and those that follow it."""
    from customer_activity.operations import recomputing  # noqa: PLC0415 - brings pyspark, as the others do anyway

    if stream not in (known := [spec.name for spec in topology.following()]):
        raise SettingsError(f"{stream} is not behind the hot path, or not on", remedy=f"there are: {', '.join(known)}")
    done = recomputing.recompute(settings, stream, "rebuild --stream")
    if as_json:
        console.print_json({"streams": done})
    else:
        console.say(f"recomputed: {', '.join(done)}", style="bold green")


def _refuse_contradictions(options: Mapping[str, object], choice: Choice) -> None:
    """Make sure that one thing is asked for, and of everybody where it is more than a comparison.

    Raises:
        SettingsError: it is not so.
    """
    asked = [name for name, is_asked in options.items() if is_asked]
    if len(asked) > 1:
        raise SettingsError(f"{', '.join(asked)} cannot be used together", remedy="use one at a time")
    if asked and not choice.is_everybody:
        raise SettingsError(
            f"{asked[0]} is for all customers, and some were chosen",
            remedy="leave --customer, --since and --until out: for some customers a rebuild only compares",
        )


def _working(work: Callable[[Callable[[str], None]], Done]) -> Done:
    with console.err.status("rebuilding") as status, _tidy_when_told_to_end():
        return work(status.update)


@contextmanager
def _tidy_when_told_to_end() -> Iterator[None]:
    """Leave by an exception when SIGTERM comes: the lake beside the live one is removed then."""

    def end(number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    former = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _report(done: Rebuilt, *, as_json: bool) -> None:
    if as_json:
        console.print_json(as_data(done))
    else:
        show(done)
        verdict = f"{done.differences:,} rows differ" if done.differences else "equal"
        console.out.print(verdict, style="bold red" if done.differences else "bold green", highlight=False)
    if done.differences:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _report_applied(done: Applied, *, as_json: bool) -> None:
    if as_json:
        compared = as_data(done.rebuilt) if done.rebuilt else {}
        corrected = None if done.correction is None else _correction_as_data(done.correction)
        console.print_json({**compared, "correction": corrected, "passed_over": done.passed_over})
        return
    if done.rebuilt is not None:
        show(done.rebuilt)
    for line in _outcome(done):
        console.say(line, style="bold green")


def _outcome(done: Applied) -> list[str]:
    """Say what came of it."""
    if done.correction is None:
        return ["equal: nothing to correct"]
    rows = [
        f"  {label}: {change.retracted.rows:,} rows retracted, {change.added.rows:,} added"
        for label, change in done.correction.changes.items()
        if change.retracted.rows or change.added.rows
    ]
    if done.passed_over:
        rows.append(f"  {done.passed_over:,} keys have changed since, and stay as they are")
    run = done.correction.run
    return [*rows, f"corrected; `activity rebuild --undo {run}` undoes it"]


def show_kept(settings: Settings, *, as_json: bool) -> None:
    """Print the corrections that are kept, the oldest first."""
    found = corrections.kept(settings.lake)
    if as_json:
        console.print_json([_correction_as_data(correction) for correction in found])
        return
    grid = console.grid("correction", "at", "by", figures=("retracted", "added", "MB"))
    for correction in found:
        changes = correction.changes.values()
        figures = (sum(change.retracted.rows for change in changes), sum(change.added.rows for change in changes))
        size = sum(rows.size for change in changes for rows in (change.retracted, change.added))
        at = f"{correction.at:%Y-%m-%d %H:%M:%S}"
        grid.add_row(
            correction.run, at, correction.reason, *(f"{figure:,}" for figure in figures), f"{size / 1e6:,.1f}"
        )
    console.out.print(grid if found else "no correction is kept")


def _correction_as_data(correction: Correction) -> dict[str, Any]:
    """Return what a correction did for machines."""
    return {
        "run": correction.run,
        "at": correction.at.isoformat(),
        "reason": correction.reason,
        "undoes": correction.undoes or None,
        "tables": [
            {"table": label, "retracted": change.retracted.rows, "added": change.added.rows}
            for label, change in correction.changes.items()
        ],
    }


def as_data(done: Rebuilt) -> dict[str, Any]:
    """Return a rebuild's outcome for machines."""
    tables = [{**table._asdict(), "differences": table.differences} for table in done.tables]
    return {**done._asdict(), "tables": tables, "differences": done.differences}


def show(done: Rebuilt) -> None:
    """Print the comparisons."""
    grid = console.grid("current rows of", figures=("live", "rebuilt", "only live", "only rebuilt", "different"))
    for table in done.tables:
        figures = (table.live, table.rebuilt, table.only_live, table.only_rebuilt, table.different)
        grid.add_row(console.cell(table.table), *(f"{figure:,}" for figure in figures))
    console.out.print(grid)
    for table in done.tables:
        _print_differences(table)
    versions = ", ".join(f"{label} {version}" for label, version in done.versions.items())
    console.say(f"compared at {versions}")
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
