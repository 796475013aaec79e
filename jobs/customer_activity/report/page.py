"""The report as one HTML page: no script, nothing from elsewhere, and every text of the data escaped."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from customer_activity import shown
from customer_activity.quality.rules import Severity
from customer_activity.quality.runs import Result
from customer_activity.report import charts
from customer_activity.report.figures import Figures, bucket_width, said

TEMPLATE = "page.html.j2"
MOST_RUNS = 40  # of quality, the newest ones: as many columns as a page is wide
PASSED, ERROR = "passed", "error"  # outcomes, as quality keeps them: what judges is slow to import
BAD = {"warn", "hold", "error"}


class Tile(NamedTuple):
    """A figure that is read first: what it is of, its value, and what there is to know of it."""

    name: str
    value: str
    about: str


class Row(NamedTuple):
    """A table's rules in the runs that are shown: of each run the worst verdict, and how many rules had it."""

    name: str
    cells: Sequence[tuple[str, str]]  # the verdict, and what it says when it is pointed at


def render(figures: Figures) -> str:
    """Write the page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
    )
    span = (figures.begin, figures.end)
    spacing = bucket_width(*span)
    runs = figures.runs[-MOST_RUNS:]
    return environment.get_template(TEMPLATE).render(
        figures=figures,
        said=said,
        whole=whole,
        signed=signed,
        in_bytes=in_bytes,
        tiles=tiles(figures),
        freshness=charts.over_time("Freshness of gold, in seconds", figures.freshness, *span, seconds, spacing=spacing),
        throughput=charts.over_time(
            "Records that landed per second", figures.throughput, *span, whole, spacing=spacing
        ),
        match_rate=charts.over_time("Match rate", [figures.match_rate], *span, share, are_shares=True),
        runs=runs,
        quality=by_table(runs),
        failed=[result for result in runs[-1] if verdict(result) in BAD] if runs else [],
        refused=[(reason, count, count / max(figures.refused.values())) for reason, count in figures.refused.items()],
        verdict=verdict,
    )


def _inert(value: object) -> object:
    """Escape what commands a terminal in a text of the data; what this page drew itself is left as it is."""
    return shown.lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def tiles(figures: Figures) -> list[Tile]:
    """Return the figures that are read first."""
    behind = [point.value for series in figures.freshness[:1] for point in series.points]
    rates = [sum(point.value for point in at) for at in zip(*(s.points for s in figures.throughput), strict=True)]
    refused = sum(figures.refused.values())
    newest = figures.runs[-1] if figures.runs else []
    bad = sum(verdict(result) in BAD for result in newest)
    matched = figures.match_rate.points
    return [
        Tile(
            "Freshness of gold",
            f"{statistics.median(behind):.1f} s" if behind else "—",
            f"median; {max(behind):.1f} s in the worst interval" if behind else "no merge in this span",
        ),
        Tile(
            "Records landed",
            whole(figures.landed),
            f"{whole(max(rates))} a second in the busiest interval" if rates else "none in this span",
        ),
        Tile(
            "Purchases with a profile",
            share(matched[-1].value) if matched else "—",
            f"by {len(matched)} quality runs" if matched else "quality did not run in this span",
        ),
        Tile(
            "In quarantine",
            whole(refused),
            f"{share(refused / figures.landed)} of what landed" if figures.landed else "nothing landed",
        ),
        Tile(
            "Rules that pass",
            f"{len(newest) - bad} of {len(newest)}" if newest else "—",
            f"at {said(newest[0].at)}" if newest else "quality did not run in this span",
        ),
        Tile(
            "Tables",
            in_bytes(sum(table.bytes for table in figures.tables)),
            f"{whole(sum(table.rows for table in figures.tables))} rows in {len(figures.tables)} tables",
        ),
    ]


def by_table(runs: Sequence[Sequence[Result]]) -> list[Row]:
    """Return the worst verdict of each table's rules, run by run."""
    suites = sorted({result.suite for run in runs for result in run})
    return [Row(suite.replace("/", "."), [_cell(suite, run) for run in runs]) for suite in suites]


def _cell(suite: str, run: Sequence[Result]) -> tuple[str, str]:
    results = [result for result in run if result.suite == suite]
    if not results:
        return "none", ""
    verdicts = [verdict(result) for result in results]
    worst = max(verdicts, key=["passed", "warn", "error", "hold"].index)
    bad = [result.rule for result, of_result in zip(results, verdicts, strict=True) if of_result in BAD]
    return worst, f"{said(run[0].at)}: {', '.join(bad) or f'{len(results)} rules passed'}"


def verdict(result: Result) -> str:
    """Return what a result means: passed, warn, hold, or error where a rule could not be judged."""
    if result.outcome == PASSED:
        return "passed"
    if result.outcome == ERROR:
        return "error"
    return "hold" if result.severity == Severity.HOLD else "warn"


def seconds(value: float) -> str:
    """Say seconds."""
    return f"{value:.1f} s" if value % 1 else f"{value:.0f} s"


def share(value: float) -> str:
    """Say a share as per cent."""
    return f"{100 * value:.1f} %"


def whole(value: float) -> str:
    """Say a number in full, with its thousands apart; a small one with a place."""
    return f"{value:,.0f}" if value >= 10 or value % 1 == 0 else f"{value:.1f}"  # noqa: PLR2004 - two digits say it


def signed(value: float) -> str:
    """Say by how much something grows, in the unit that fits."""
    for unit in ("", " k", " M"):
        if abs(value) < 10_000 or unit == " M":  # noqa: PLR2004 - four digits are read at a glance
            return f"{value:+,.0f}{unit}"
        value /= 1000
    raise AssertionError("the last unit fits anything")


def in_bytes(value: float) -> str:
    """Say bytes in the unit that fits."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:  # noqa: PLR2004 - a unit is a thousand of the one before
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"
