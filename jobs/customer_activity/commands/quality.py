"""`activity quality`: judge the rules, and open or shut the gate that publishing waits at."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Column
from rich.text import Text

from customer_activity.catalog import Table
from customer_activity.engine import gate
from customer_activity.errors import EXIT_CHECK_FAILED, SettingsError
from customer_activity.lineage import recording
from customer_activity.lineage.told import Verdict as Judged
from customer_activity.quality.rules import Severity
from customer_activity.quality.run import Report, Verdict
from customer_activity.quality.run import run as judge
from customer_activity.quality.verdicts import Outcome
from customer_activity.terminal import console

NICE = 10  # the streams come first
RELEASE = "release"


def quality(
    ctx: typer.Context,
    what: Annotated[
        list[str] | None,
        typer.Argument(help="Layers or tables, such as gold or silver.purchases; all when none is named. Or: release."),
    ] = None,
    *,
    reason: Annotated[str | None, typer.Option(help="With release: why; for the audit record.")] = None,
    json: console.JsonOption = False,
) -> None:
    """Check tables and view topic against the rules in `expectations/`; failed ones of severity hold stop publishing.

    `activity quality release --reason …` overrides the gate: it opens until the rules that held it have passed once.

    Exit 0: no rule holds publishing. Exit 1: a rule of severity hold failed or could not be evaluated.
    """
    settings = console.settings_of(ctx)
    if what == [RELEASE]:
        if not reason:
            raise SettingsError("release needs a reason", remedy="`activity quality release --reason …`")
        released = gate.release(settings.lake, reason, datetime.now(UTC))
        if json:
            console.print_json({"released": released})
        else:
            console.out.print(f"publishing goes on; overridden until they have passed: {', '.join(released)}")
        return
    if reason is not None:
        raise SettingsError("--reason belongs to `activity quality release`", remedy="leave it out to judge")
    os.nice(NICE)
    with console.err.status("judging") as status, recording.judging(settings) as tell:
        report = judge(settings, what or (), on_step=status.update)
        tell(report.versions, [told(verdict) for verdict in report.verdicts])
    if json:
        console.print_json(as_data(report))
    else:
        show(report)
    if any(verdict.holds for verdict in report.verdicts):
        raise typer.Exit(EXIT_CHECK_FAILED)


def told(verdict: Verdict) -> Judged:
    """Return a verdict as lineage has it: about a table, or about none where it is about several."""
    rule = verdict.rule
    table = next((table for table in Table if table.value == rule.suite), None)
    return Judged(table, rule.rule, verdict.judged.outcome is Outcome.PASSED, rule.severity.value)


def show(report: Report) -> None:
    """Print every rule with what was observed, what failed in full, and the verdict as the last line."""
    table = console.grid(Column("rule", no_wrap=True), "severity", "observed", "verdict")
    about = ""
    for verdict in report.verdicts:
        rule, found = verdict.rule, verdict.judged
        if rule.table != about:
            about = rule.table
            table.add_row(Text(about, style="bold"))
        table.add_row(rule.rule, rule.severity.value, console.cell(found.found), _styled(verdict))
    console.out.print(table)
    for verdict in report.failing:
        _explain(verdict)
    console.say(f"pages: {report.documents}")
    for line, style in closing(report):
        console.say(console.cell(line, style))


def _explain(verdict: Verdict) -> None:
    rule, found = verdict.rule, verdict.judged
    why = Text.assemble((rule.rule, "red"), f": {rule.why}")
    console.say(why)
    for line in (*found.examples, *verdict.looked):
        console.say(console.cell(f"  {line}"))
    if query := rule.look or rule.query:
        console.out.print(f"  look further: {' '.join(query.split())}", style="dim", soft_wrap=True)


def closing(report: Report) -> list[tuple[str, str]]:
    """Sum a report up: line and style."""
    holding = [verdict for verdict in report.verdicts if verdict.holds]
    warned = [verdict for verdict in report.failing if not verdict.holds]
    lines = []
    if report.overridden:
        lines.append((f"overridden: {', '.join(report.overridden)}", "yellow"))
    if report.held:
        lines.append((f"publishing is held: {', '.join(sorted(report.held))}", "bold red"))
    passed = len(report.verdicts) - len(report.failing)
    words = [f"{passed} of {len(report.verdicts)} rules passed in {report.seconds:.1f} s"]
    words += [f"{len(holding)} failed that hold"] * bool(holding) + [f"{len(warned)} warn"] * bool(warned)
    lines.append((", ".join(words), "bold red" if holding else "bold yellow" if warned else "bold green"))
    return lines


def _styled(verdict: Verdict) -> Text:
    if verdict.judged.outcome is Outcome.PASSED:
        return Text("passed", style="green")
    return Text(verdict.judged.outcome.value, style="red" if verdict.rule.severity is Severity.HOLD else "yellow")


def as_data(report: Report) -> dict[str, Any]:
    """Return the report for machines."""
    return {
        "run_id": report.run_id,
        "ok": not any(verdict.holds for verdict in report.verdicts),
        "held": {rule: failure._asdict() for rule, failure in report.held.items()},
        "let_be": list(report.overridden),
        "rules": [
            {
                "rule": verdict.rule.rule,
                "about": verdict.rule.table,
                "severity": verdict.rule.severity.value,
                "outcome": verdict.judged.outcome.value,
                "observed": verdict.judged.observed,
                "found": verdict.judged.found,
                "threshold": verdict.rule.expect,
                "examples": [*verdict.judged.examples, *verdict.looked],
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in report.verdicts
        ],
        "versions": dict(report.versions),
        "documents": report.documents,
        "seconds": round(report.seconds, 3),
    }
