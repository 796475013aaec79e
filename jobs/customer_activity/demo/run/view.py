"""What the live run shows: a screen for a terminal, and one line for a log."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from customer_activity import topology
from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE, Table
from customer_activity.demo.run.changes import Change
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.status import Report
from customer_activity.terminal import console, screens
from customer_activity.terminal.console import cell

CURRENT = {Table.ACTIVITY_CHANGES: Table.ACTIVITY}  # of gold its rows are shown, not how often they changed
BAR_WIDTH = 40


class Frame(NamedTuple):
    """One look at the run."""

    seconds: float  # since the run began
    report: Report
    traffic: str  # what it is doing
    expected: int | None  # purchases that the topic holds when all traffic is there; None when that is not known
    first_gold: str  # the sentence about the first gold row, empty before it
    published: int  # records on the view topic since the run began
    changes: tuple[Change, ...]  # customers that changed last, newest last

    def records(self, role: str) -> int:
        """Records on an input topic."""
        topic = self.report.topics.get(role)
        return topic.records if topic else 0


def screen(frame: Frame) -> RenderableType:
    """Show a frame on a terminal."""
    return Group(
        cell(f"customer activity, {frame.seconds:,.0f} s: {frame.traffic}", "bold"),
        _input(frame),
        Text(),
        _layers(frame),
        Text(frame.first_gold or "gold has not changed yet", style="green" if frame.first_gold else "dim"),
        Text(),
        *([_changes(frame.changes)] if frame.changes else []),
        *(cell(f"note: {note}", "yellow") for note in frame.report.notes),
    )


def line(frame: Frame) -> str:
    """Show a frame as one line of a log."""
    layers = ", ".join(_layer(frame, query) for query in frame.report.queries)
    return f"{frame.seconds:5.0f} s  in: {frame.records(PURCHASES_ROLE):,} + {frame.records(PROFILES_ROLE):,}, {layers}"


def _layer(frame: Frame, query: QueryReport) -> str:
    words = f"{query.query} {_rows(frame, query):,}"
    known = [
        *([f"{screens.lag(query)} to read"] if query.lag and not query.is_caught_up else []),
        *([screens.freshness(query)] if query.freshness_seconds is not None else []),
    ]
    return f"{words} ({', '.join(known)})" if known else words


def _input(frame: Frame) -> Grid:
    purchases, profiles = frame.records(PURCHASES_ROLE), frame.records(PROFILES_ROLE)
    grid = Grid.grid(padding=(0, 2))
    total = f" of {frame.expected:,}" if frame.expected else ""
    grid.add_row("on Kafka", f"{purchases:,}{total} purchases, {profiles:,} profile records")
    if frame.expected:
        grid.add_row("", ProgressBar(total=frame.expected, completed=min(purchases, frame.expected), width=BAR_WIDTH))
    return grid


def _layers(frame: Frame) -> Grid:
    grid = console.grid("stream", "state", figures=("rows", "rows/s", "to read", "freshness"))
    for query in frame.report.queries:
        grid.add_row(
            query.query,
            Text(query.state, style=screens.STATE_STYLE.get(query.state, "dim")),
            f"{_rows(frame, query):,}",
            f"{query.rows_per_second:,.0f}" if query.rows_per_second is not None else "-",
            screens.lag(query),
            screens.freshness(query),
        )
    return grid


def _rows(frame: Frame, query: QueryReport) -> int:
    table = (topology.reflected(PROFILES_ROLE) | topology.reflected(PURCHASES_ROLE)).get(query.query)
    if query.query == topology.publishing().name:
        return frame.published
    if table is None:  # of a stream that publishes a table, or lands another topic
        spec = topology.spec(query.query)
        table = next(iter([*spec.telling, *spec.sources]))
    return frame.report.rows(CURRENT.get(table, table))


def _changes(changes: tuple[Change, ...]) -> Grid:
    grid = console.grid("customer changed", "loyalty", figures=("purchases", "total", "view version"))
    for change in reversed(changes):
        if change.view_version is None:
            grid.add_row(cell(change.customer_id), Text("removed", style="dim"))
            continue
        grid.add_row(
            cell(change.customer_id),
            cell(change.loyalty_status or "-"),
            f"{change.purchase_count:,}" if change.purchase_count is not None else "-",
            f"{change.total_amount:,.2f}" if change.total_amount is not None else "-",
            str(change.view_version),
        )
    return grid
