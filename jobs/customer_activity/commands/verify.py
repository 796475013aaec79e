"""`activity verify`: prove that the tables and the view topic are right, given the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Column, Table
from rich.text import Text

from customer_activity import catalog, shown, topology
from customer_activity.engine import gate
from customer_activity.errors import EXIT_CHECK_FAILED, SettingsError
from customer_activity.lake import corrections
from customer_activity.settings import Settings
from customer_activity.terminal import console
from customer_activity.verification.checking import KNOWN, VIEW
from customer_activity.verification.comparison import Check
from customer_activity.verification.declared import Declared
from customer_activity.verification.published import PublishedTopic
from customer_activity.verification.verify import Report
from customer_activity.verification.verify import verify as run_checks


def verify(
    ctx: typer.Context,
    *,
    json: console.JsonOption = False,
    settle: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for running streams to catch up.")
    ] = 60.0,
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Compare N random customers only; traffic may go on.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random sample.")] = 0,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Compare this table alone, or `view`; may be given several times."),
    ] = None,
) -> None:
    """Recompute the view from Kafka in plain Python and compare bronze, silver, gold and the view topic with it.

    Exit 0: equal. Exit 1: there are differences; the table names the checks and a few examples.
    """
    settings = console.settings_of(ctx)
    corrections.refuse_unfinished(settings.lake)
    chosen = frozenset(only or ())
    topics = published(settings)
    comparable = [*(table.label for table in topology.tables()), VIEW, *(each.topic for each in topics)]
    if unknown := sorted(chosen.difference(comparable)):
        raise SettingsError(f"there is no {', '.join(unknown)} to compare", remedy=f"one of {', '.join(comparable)}")
    with console.err.status("verifying") as status:
        report = run_checks(
            settings,
            settle_seconds=settle,
            sample=sample,
            seed=seed,
            only=chosen or None,
            others=others(),
            published=topics,
            on_step=status.update,
        )
    if json:
        console.print_json(as_data(report))
    else:
        show(report)
    if report.differences:
        if not json and (rules := gate.holding(settings.lake)):
            held = gate.held(rules)
            words = shown.message(shown.escaped(held.what), held.remedy)
            console.say(words, style="yellow")
        raise typer.Exit(EXIT_CHECK_FAILED)


def others() -> list[Declared]:
    """Return the tables that the verifier does not know by itself, with what their streams say that they must hold."""
    return [
        Declared(write.target, (*write.key, *write.order), write.expected)
        for spec in topology.specs()
        for write in spec.writes
        if isinstance(write.target, catalog.Table) and write.target not in KNOWN
    ]


def published(settings: Settings) -> list[PublishedTopic]:
    """Return the topics of optional streams that publish tables, with what these say that a topic must have."""
    found = []
    for spec in topology.publishers():
        writes = {
            settings.topics[write.target.role]: write
            for write in spec.writes
            if isinstance(write.target, topology.Topic) and write.expected
        }
        for topic, write in writes.items():
            said = (write.key, write.expected, write.order, write.outdated)
            found.append(PublishedTopic(topic, spec.sources[0], *said, tuple(writes.keys() - {topic})))
    return found


def show(report: Report) -> None:
    """Print the checks, the differences, the figures, and the verdict as the last line."""
    table = Table(Column("check", overflow="fold"), "expected", "found", "verdict")
    for check in report.checks:
        table.add_row(
            console.cell(check.name), figures(check.expected), figures(check.observed), Text(*verdict_of(check))
        )
    console.out.print(table)
    for check in report.checks:
        for example in check.examples:
            _print_about(check, "red", example)
        if more := check.differences - len(check.examples):
            _print_about(check, "", f"and {more:,} more")
        if check.impossible:
            _print_about(check, "yellow", f"not possible: {check.impossible}")
    for line in figure_lines(report):
        console.say(console.cell(line))
    style = "bold red" if report.differences else "bold green"
    console.say(verdict(report), style=style)


def _print_about(check: Check, style: str, words: str) -> None:
    line = Text.assemble("  ", console.cell(f"{check.name}:", style), " ", console.cell(words))
    console.say(line)


def figure_lines(report: Report) -> list[str]:
    """Say what was verified, in figures."""
    records = ", ".join(f"{topic} {count:,}" for topic, count in report.records.items())
    turnover = f"turnover {money(report.turnover)} {report.currency}"
    lines = [
        f"{sum(report.records.values()):,} records read from Kafka ({records}) in {report.seconds:.1f} s",
        f"{report.customers:,} customers in the view, {report.purchases:,} purchases counted, {turnover}",
    ]
    if sum(report.from_lake.values()):
        kept = ", ".join(f"{topic} {count:,}" for topic, count in report.from_lake.items() if count)
        lines.append(f"taken from the lake's raw columns, because Kafka has removed them: {kept}")
    if report.covers:
        firsts = [f"{topic}-{part}@{at}" for topic, parts in report.covers.items() for part, at in parts.items()]
        lines.append(f"speaks from {', '.join(firsts)} on: neither Kafka nor the lake has what was before")
    if report.sample is not None:
        aside = f", {report.moving:,} set aside: records of theirs arrived meanwhile" if report.moving else ""
        lines.append(f"silver, gold and the view's last values: a sample of {report.sample:,} customers{aside}")
    return lines


def verdict(report: Report) -> str:
    """Sum the report up: the last line."""
    if report.differences:
        counted = f"{report.differences:,} difference{'s' if report.differences > 1 else ''}"
        if report.growth and report.sample is None:
            return (
                f"{counted}; {report.growth:,} records arrived meanwhile: traffic is running: stop it and verify again"
            )
        return counted
    impossible = sum(bool(check.impossible) for check in report.checks)
    if impossible:
        return f"equal ({impossible} check{'s were' if impossible > 1 else ' was'} not possible)"
    return "equal"


def verdict_of(check: Check) -> tuple[str, str]:
    """Return one check's verdict and its style."""
    if check.impossible:
        return "not possible", "yellow"
    return (f"{check.differences:,} differ", "red") if check.differences else ("equal", "green")


def figures(value: int | Mapping[str, int]) -> str:
    """Format a count, or counts by outcome, for people."""
    if isinstance(value, int):
        return f"{value:,}"
    return "\n".join(f"{outcome} {count:,}" for outcome, count in value.items())


def money(cents: int) -> str:
    """Format cents as an amount with two decimals."""
    return f"{cents // 100:,}.{cents % 100:02}"


def as_data(report: Report) -> dict[str, Any]:
    """Return the report for machines."""
    return {
        "verdict": verdict(report),
        "differences": report.differences,
        "checks": [{**check._asdict(), "ok": check.ok} for check in report.checks],
        "records_read": report.records,
        "records_from_lake": report.from_lake,
        "covers_from": report.covers,
        "customers": report.customers,
        "purchases": report.purchases,
        "turnover": f"{report.turnover // 100}.{report.turnover % 100:02}",
        "currency": report.currency,
        "sample": report.sample,
        "sample_set_aside": report.moving,
        "records_arrived_meanwhile": report.growth,
        "seconds": round(report.seconds, 3),
    }
