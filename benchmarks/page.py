"""The page of results: the generated part of docs/PERFORMANCE.md, between its markers, and the plots beside it.

.venv/bin/python benchmarks/page.py [RESULTS] [--page docs/PERFORMANCE.md] [--plots docs/performance]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: only its own folder is searched, and the package lies in the one above
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from benchmarks import results, targets
from customer_activity.settings import PROJECT

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
RESULTS = PROJECT / "var" / "bench" / results.FILE_NAME
PAGE = PROJECT / "docs" / "PERFORMANCE.md"
PLOTS = PROJECT / "docs" / "performance"

Scenarios = Mapping[str, Any]


def main(
    results_file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Of `make bench`.")] = RESULTS,
    *,
    page: Annotated[Path, typer.Option(help="The page whose generated part is replaced.")] = PAGE,
    plots: Annotated[Path, typer.Option(help="Folder of the plots.")] = PLOTS,
) -> None:
    """Write the generated part of the page and its plots; the rest of the page stays as it is."""
    write(results_file, page, plots)


def write(results_file: Path, page: Path, plots: Path) -> None:
    """Draw the plots and replace the generated part of the page.

    Raises:
        ValueError: the page has no markers.
    """
    found = results.load(results_file)
    from benchmarks import plots as drawing  # noqa: PLC0415 - brings matplotlib, which measuring does not need

    pictures = drawing.draw_all(found["scenarios"], plots)
    links = {name: Path(os.path.relpath(path, page.resolve().parent)) for name, path in pictures.items()}
    page.write_text(replaced(page.read_text(encoding="utf-8"), text(found, links)), encoding="utf-8")


def replaced(page: str, generated: str) -> str:
    """Put the generated part between the markers.

    Raises:
        ValueError: the page lacks them.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} … {END}")
    return f"{before}{BEGIN}\n{generated}\n{END}{after}"


def text(found: Mapping[str, Any], links: Mapping[str, Path]) -> str:
    """Write the generated part: the targets, then a section for each scenario that was measured."""
    machine, scenarios = found["machine"], found["scenarios"]
    commits = ", ".join(sorted({each["commit"] for each in scenarios.values()}))
    cores = f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gigabytes']} GB"
    versions = f"{machine['java']}, Python {machine['python']}, Spark {machine['spark']}"
    lines = [
        f"{cores}; {versions}; commit {commits}.",
        "",
        *table(("figure", "measured", "must", "aim", "reached"), map(targets.row, targets.judge_all(scenarios))),
    ]
    for name, (title, write) in SECTIONS.items():
        if name not in scenarios:
            continue
        lines += ["", f"### {title}", ""]
        if "error" in scenarios[name]:
            lines.append(f"Not measured: {scenarios[name]['error']}")
            continue
        lines += write(scenarios)
        if name in links:
            lines += ["", f"![{title}]({links[name].as_posix()})"]
    return "\n".join(lines)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Lay rows out as a Markdown table."""
    head = tuple(head)
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def number(value: float | None) -> str:
    """Format one figure."""
    if value is None:
        return "not reached"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}"


def spread(figure: Mapping[str, float | None]) -> str:
    """Format a median with its lowest and highest run."""
    if figure["runs"] == 1:
        return number(figure["median"])
    return f"{number(figure['median'])} ({number(figure['low'])} … {number(figure['high'])})"


def freshness(scenarios: Scenarios) -> list[str]:
    """Freshness of ours and of the peers, side by side."""
    names = {
        "freshness": "ours",
        "freshness_purchases_only": "ours, no profile updates",
        "tutorial": "tutorial-shaped pipeline",
        "streams_freshness": "Kafka Streams (no lake)",
    }
    head = (
        "seconds",
        "p50",
        "p95",
        "p99",
        "readable in gold, p50 / p95",
        "CPU s / million",
        "MB written / million",
        "JVM MB",
    )
    rows = []
    for name, label in names.items():
        each = scenarios.get(name)
        if not each or "error" in each:
            continue
        in_gold = [spread(each[f"gold_{p}_seconds"]) for p in ("p50", "p95") if f"gold_{p}_seconds" in each]
        rows.append(
            (
                label,
                *(spread(each[f"{p}_seconds"]) for p in ("p50", "p95", "p99")),
                " / ".join(in_gold),
                spread(each["cpu_seconds_per_million"]),
                spread(each["written_megabytes_per_million"]),
                spread(each["jvm_megabytes"]),
            )
        )
    return list(table(head, rows))


def rate(scenarios: Scenarios) -> list[str]:
    """Each rate that was tried."""
    head = ("purchases/s", "p50 s", "p95 s", "p99 s", "not in the view 15 s after", "held")
    rows = (
        (
            f"{step['purchases_per_second']:,}",
            *(number(step["freshness"][f"{p}_seconds"]) for p in ("p50", "p95", "p99")),
            f"{step['late']:,}",
            "yes" if step["is_held"] else "no",
        )
        for step in scenarios["rate"]["steps"]
    )
    return list(table(head, rows))


def backlog(scenarios: Scenarios) -> list[str]:
    """Ours, Kafka Streams and the nightly batch on the same topics."""
    found = scenarios["backlog"]
    batch = found["nightly"]
    head = (
        f"{found['purchases']:,} purchases, {found['customers']:,} profiles",
        "purchases/s",
        "CPU s / million",
        "JVM MB",
    )
    recomputed = ("not measured", "", "")
    if "error" not in batch:
        recomputed = (number(batch["purchases"] / batch["seconds"]), "", number(batch["jvm_megabytes"]))
    figures = ("purchases_per_second", "cpu_seconds_per_million", "jvm_megabytes")
    rows = [
        ("ours", *(spread(found[figure]) for figure in figures)),
        ("Kafka Streams (no lake)", *(spread(found[f"streams_{figure}"]) for figure in figures)),
        ("nightly batch", *recomputed),
    ]
    return list(table(head, rows))


def growth(scenarios: Scenarios) -> list[str]:
    """A batch of 500 customers on tables of different sizes."""
    rows = (
        (
            f"{size['customers']:,}",
            number(size["median_seconds"]),
            f"{number(size['low_seconds'])} … {number(size['high_seconds'])}",
            f"{size['lake']['files']:,}",
        )
        for size in scenarios["growth"]["sizes"]
        if "error" not in size
    )
    return list(table(("customers", "median s", "lowest … highest s", "files in the lake"), rows))


def recovery(name: str, figures: Mapping[str, str]) -> Callable[[Scenarios], list[str]]:
    """Make the section of a scenario that is a few figures with their spread."""
    return lambda scenarios: list(
        table(("seconds", "median"), ((label, spread(scenarios[name][figure])) for figure, label in figures.items()))
    )


def steady(scenarios: Scenarios) -> list[str]:
    """What half an hour came to."""
    found = scenarios["steady"]
    trend, fresh = found["p95_trend"], found["freshness"]
    rows = [
        ("p50 / p95 / p99 s", " / ".join(number(fresh[f"{p}_seconds"]) for p in ("p50", "p95", "p99"))),
        ("p95 a minute, trend s/h", "-" if trend is None else f"{trend['per_hour']} ± {trend['error_per_hour']}"),
        ("JVM / Python MB", f"{found['jvm_megabytes']:,} / {found['python_megabytes']:,}"),
        ("files, MB in the lake", f"{found['lake']['files']:,}, {found['lake']['bytes'] / 1e6:,.0f}"),
        ("CPU s, MB written / million", " , ".join(number(value) for value in found["per_million_purchases"].values())),
    ]
    return list(table((f"{found['minutes']:g} minutes", ""), rows))


def judged(scenarios: Scenarios) -> list[str]:
    """Freshness without quality and beside it, of one run."""
    found = scenarios["judged"]
    rows = (
        (label, *(number(found[part][f"{p}_seconds"]) for p in ("p50", "p95", "p99")))
        for part, label in (("alone", "streams alone"), ("beside", "beside `activity quality`"))
    )
    whole = [run["seconds"] for run in found["quality_runs"] if run["exit_code"] == 0]
    words = (
        f"{found['purchases_before']:,} purchases were in the lake before. Quality judged them {len(whole)} times, "
        f"one after the other, in {', '.join(number(seconds) for seconds in whole)} s."
    )
    return [words, "", *table(("seconds", "p50", "p95", "p99"), rows)]


COLD_START = {
    "first_record_seconds": "no lake, to the first record",
    "complete_seconds": "no lake, to the last",
    "restart_seconds": "existing lake, to the first new record",
}
CATCH_UP = {
    "fresh_again_seconds": "from kill -9 to fresh again (below 5 s)",
    "backlog_covered_seconds": "from kill -9 until what waited is in the view",
}
SECTIONS: dict[str, tuple[str, Callable[[Scenarios], list[str]]]] = {
    "freshness": ("Freshness at 500 purchases/s", freshness),
    "rate": ("Highest rate", rate),
    "backlog": ("Backlog", backlog),
    "growth": ("A batch of 500 customers as tables grow", growth),
    "cold_start": ("Cold start", recovery("cold_start", COLD_START)),
    "catch_up": ("Catch-up after a crash", recovery("catch_up", CATCH_UP)),
    "steady": ("Half an hour with maintenance", steady),
    "judged": ("Beside quality", judged),
}

if __name__ == "__main__":
    typer.run(main)
