"""The tables of docs/METRICS.md: every metric with its kind, unit, labels and meaning, by where it comes from.

`python -m customer_activity.metrics.page docs/METRICS.md` writes them between the page's markers.
"""

from __future__ import annotations

import sys
from pathlib import Path

from customer_activity.metrics.listed import METRICS
from customer_activity.metrics.metric import Metric, Source

BEGIN, END = "<!-- metrics:begin -->\n", "<!-- metrics:end -->"
HEAD = ("metric", "kind", "unit", "labels", "meaning")


def markdown() -> str:
    """Tabulate the metrics in Markdown, a table for each place that they come from."""
    return "\n".join(_section(source) for source in Source)


def _section(source: Source) -> str:
    rows = [_row(metric) for metric in METRICS if metric.source is source]
    table = "".join(f"| {' | '.join(row)} |\n" for row in (HEAD, ("---",) * len(HEAD), *rows))
    return f"{source.value[0].upper()}{source.value[1:]}:\n\n{table}"


def _row(metric: Metric) -> tuple[str, ...]:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    bounds = f" Buckets up to {', '.join(f'{bound:g}' for bound in metric.bounds)} s." if metric.bounds else ""
    return f"`{metric.name}`", metric.kind.value, metric.unit, labels or "none", f"{metric.help}{bounds}"


def rewritten(page: str) -> str:
    """Return a page with the tables as the list is now, between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{markdown()}{END}{after}"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.write_text(rewritten(place.read_text(encoding="utf-8")), encoding="utf-8")
