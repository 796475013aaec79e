"""How reports of inspection look on a terminal. Data goes through `cell`: it is text, never a style or a command."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from customer_activity.contracts.columns import PURCHASE_FIELDS, names
from customer_activity.inspection.keys import Keys, words
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.show import Customer
from customer_activity.inspection.status import Report
from customer_activity.lake.microbatch import Place
from customer_activity.shown import in_a_line
from customer_activity.terminal import console
from customer_activity.terminal.console import cell

if TYPE_CHECKING:
    from customer_activity.inspection.doctor import Finding

STATE_STYLE = {
    "running": "green",
    "starting": "cyan",
    "failed": "red",
    "dead": "red",
    "silent": "yellow",
    "held": "yellow",
}
PHASES = ("read", "compute", "write", "commit", "publish", "turn", "spark")
MEGABYTE = 1_000_000


def status(found: Report, *, phases: bool = False) -> RenderableType:
    """Show the status: queries, where their time goes when asked, tables, topics, notes."""
    return Group(
        queries(found.queries),
        *([_phases(found.queries)] if phases else []),
        _contents(found),
        *(cell(f"{t.name}: {t.records:,} records", "dim") for role, t in found.topics.items() if role != "view"),
        *(cell(f"note: {note}", "yellow") for note in found.notes),
        Text("everything on the topics is through" if found.is_caught_up else ""),
    )


def queries(reports: Iterable[QueryReport]) -> Grid:
    """Show one line a query."""
    grid = console.grid("query", "state", "last batch", figures=("rows/s", "lag", "freshness"))
    for query in reports:
        grid.add_row(
            query.query,
            Text(query.state, style=STATE_STYLE.get(query.state, "dim")),
            _batch(query),
            f"{query.rows_per_second:,.0f}" if query.rows_per_second is not None else "-",
            lag(query),
            freshness(query),
        )
        if query.message:
            grid.add_row("", "", Text(in_a_line(query.message), style="yellow"))
    return grid


def _phases(reports: Iterable[QueryReport]) -> Grid:
    """Show where each query's last batch spent its time, in milliseconds; the last two are around it."""
    grid = console.grid("ms of the last batch", figures=PHASES)
    for query in reports:
        cells = (f"{query.phases[phase]:,.0f}" if phase in query.phases else "-" for phase in PHASES)
        grid.add_row(query.query, *cells)
    return grid


def lag(query: QueryReport) -> str:
    """Say how much a query has left to read, and of what."""
    left, unit = (query.lag_records, "record") if query.lag_records is not None else (query.lag_versions, "commit")
    return "unknown" if left is None else f"{left:,} {unit}{'' if left == 1 else 's'}"


def freshness(query: QueryReport) -> str:
    """Say for how long input has waited for a layer."""
    if query.freshness_seconds is None:
        return "unknown"
    if query.is_current:
        return "current"
    return f"{query.freshness_seconds:,.0f} s behind" if query.freshness_seconds >= 1 else "< 1 s behind"


def ago(moment: str | None) -> str:
    """Say how long ago something was."""
    if moment is None:
        return "-"
    return f"{(datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds():,.0f} s ago"


def seconds_ago(seconds: float | None) -> str:
    """Say how long ago something was, of which the seconds are known."""
    return "unknown" if seconds is None else f"{seconds:,.0f} s ago"


def customer(found: Customer) -> RenderableType:
    """Show a customer: gold, profile, last purchases, and why it is so."""
    parts: list[RenderableType] = [cell(f"{found.customer_id}: {found.explanation}")]
    parts += [_record("gold.customer_activity", found.gold)] if found.gold else []
    parts += [_record("silver.customer_profiles", found.profile)] if found.profile else []
    parts += [_record("silver.purchase_summaries", found.summary)] if found.summary and not found.gold else []
    if found.purchases:
        columns = [name for name in names(PURCHASE_FIELDS) if name != "customer_id"]
        total = found.summary["purchase_count"] if found.summary else len(found.purchases)
        grid = Grid(
            *columns,
            title=f"silver.purchases: the last {len(found.purchases)} of {total:,}",
            title_justify="left",
            box=None,
        )
        for row in found.purchases:
            grid.add_row(*(_value(row[column]) for column in columns))
        parts.append(grid)
    for label, rows in found.windows.items():
        columns = [name for name in rows[0] if name != "customer_id"]
        grid = Grid(*columns, title=f"{label}: the last {len(rows)}", title_justify="left", box=None)
        for row in rows:
            grid.add_row(*(_value(row[column]) for column in columns))
        parts.append(grid)
    return Group(*parts)


def keys(found: Keys) -> RenderableType:
    """Show how purchases are distributed over customers, and the hottest of them."""
    parts: list[RenderableType] = [cell(line) for line in words(found)]
    if found.hottest:
        grid = console.grid("hottest customers", figures=("purchases", "share"))
        for customer in found.hottest:
            grid.add_row(cell(customer.customer_id), f"{customer.purchases:,}", f"{customer.share:.1%}")
        parts.append(grid)
    return Group(*parts)


def findings(found: Iterable[Finding]) -> Grid:
    """Show what was checked, what was found, and what to do about it."""
    grid = console.grid("", "check", "found")
    for finding in found:
        mark, style = ("wrong", "red") if not finding.ok else ("note", "yellow") if finding.remedy else ("ok", "green")
        grid.add_row(Text(mark, style=style), cell(finding.check), cell(finding.found))
        if finding.remedy:
            grid.add_row("", "", cell(f"→ {finding.remedy}", "yellow"))
    return grid


def _batch(query: QueryReport) -> str:
    if query.batch is None:
        return "-"
    if "rows" not in query.batch:
        return f"{query.batch['id']}, {ago(query.batch['at'])}"
    is_spread = query.placed is not None and query.placed.place is Place.EXECUTORS
    where = f" {query.placed}" if is_spread else ""
    rows, seconds = f"{query.batch['rows']:,} rows", f"{query.batch['seconds']:.1f} s"
    return f"{query.batch['id']}: {rows}, {seconds}{where}, {ago(query.batch['at'])}"


def _contents(found: Report) -> Grid:
    grid = console.grid("table", figures=("rows", "version", "files", "MB"))
    for held in found.tables:
        grid.add_row(
            held.table.label,
            f"{held.rows:,}",
            str(held.version),
            f"{held.files:,}",
            f"{held.size_bytes / MEGABYTE:,.1f}",
        )
    if not found.tables:
        grid.add_row(cell(f"none at {found.lake}: not started yet", "dim"))
    else:
        size = sum(held.size_bytes for held in found.tables) / MEGABYTE
        grid.add_row(
            "total",
            f"{sum(held.rows for held in found.tables):,}",
            "",
            f"{sum(held.files for held in found.tables):,}",
            f"{size:,.1f}",
        )
    return grid


def _record(title: str, row: dict[str, Any]) -> Grid:
    grid = Grid("column", "value", title=title, title_justify="left", box=None, show_header=False)
    for column, value in row.items():
        grid.add_row(cell(column, "dim"), _value(value))
    return grid


def _value(value: object) -> Text:
    if isinstance(value, datetime):
        return Text(f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC")
    return cell("-" if value is None else value)
