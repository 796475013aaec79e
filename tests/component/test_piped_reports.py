"""A report that is piped or kept in a file has every word whole, and each row in one line."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from customer_activity.catalog import Table
from customer_activity.demo.broker.process import BrokerStatus
from customer_activity.demo.commands import traffic
from customer_activity.inspection.doctor import Finding
from customer_activity.inspection.show import Customer
from customer_activity.lake.bucket import Trait
from customer_activity.lake.layout import Layout
from customer_activity.maintenance.on_demand import Maintained
from customer_activity.maintenance.tending import Tended
from customer_activity.operations.migration import Migrated
from customer_activity.quality.judging import Judged
from customer_activity.quality.run import Report as Judgement
from customer_activity.quality.run import Verdict
from customer_activity.quality.verdicts import Outcome
from customer_activity.quarantine.contents import Group
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.run import Rebuilt
from customer_activity.supervision.driver import Driver, State
from customer_activity.terminal import console
from customer_activity.verification.comparison import Check
from support import reports, run_reports
from support.command import call
from support.corrections import correction_of

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORD = "_".join(["a_word_that_fits_no_terminal"] * 9)
SENTENCE = " ".join(["what was found is told in many words"] * 9)

RULE = reports.rule(WORD, f"SELECT 1 -- {SENTENCE}", why=SENTENCE)
JUDGEMENT = Judgement(
    run_id="run-1",
    verdicts=(Verdict(RULE, Judged(Outcome.FAILED, 1.0, SENTENCE, (f"id {WORD}",), None), 0.5),),
    versions={},
    held={},
    overridden=(WORD,),
    documents=f"/{WORD}/index.html",
    seconds=1.0,
)
PROOF = reports.verified(
    Check(WORD, {"read": 1}, {"read": 2}, 1, (SENTENCE,)),
    Check("other", 1, 1, 0, impossible=SENTENCE),
    records={WORD: 1},
    covers={WORD: {0: 7}},
)
CUSTOMER = Customer(
    "C-1",
    gold={"name": SENTENCE},
    profile={"address": SENTENCE},
    summary={"purchase_count": 1},
    purchases=[dict.fromkeys(("purchase_id", "product_id", "amount", "currency", "occurred_at", "risk_score"), WORD)],
    explanation=SENTENCE,
    is_known=True,
)
PLACE = {"topic": WORD, "partition": 0, "offset": 7, "kafka_timestamp": NOON}
QUARANTINED = {**PLACE, "reason": WORD, "detail": SENTENCE}


class Case(NamedTuple):
    """A command, what stands in for the work that it does, and texts that must be in its output as they are."""

    arguments: tuple[str, ...]
    work: str
    found: Any
    wanted: tuple[str, ...] = (WORD, SENTENCE)


def _status() -> Any:
    report = run_reports.report(purchases=7)
    report.queries[0].message = SENTENCE
    report.notes.append(WORD)
    return report


CASES = {
    "status": Case(("status",), "commands.inspection.current.report", _status()),
    "phases": Case(("status", "--phases"), "commands.inspection.current.report", _status()),
    "show": Case(("show", "C-1"), "commands.inspection.customers.customer", CUSTOMER),
    "doctor": Case(("doctor",), "commands.inspection.diagnose", [Finding(WORD, True, SENTENCE, SENTENCE)]),
    "settings": Case(
        ("doctor", "--settings"),
        "commands.inspection._settings",
        [{"variable": "ACTIVITY_X", "value": WORD, "default": WORD, "is_default": False, "description": SENTENCE}],
    ),
    "quarantine": Case(
        ("quarantine", "list"),
        "commands.quarantine.contents.groups",
        [Group(f"topic-{WORD}", WORD, 1, NOON, NOON)],
        (f"topic-{WORD}  {WORD}", "2026-03-01 12:00:00"),
    ),
    "quarantined": Case(
        ("quarantine", "show"),
        "commands.quarantine.contents.records",
        [QUARANTINED],
        (f"{WORD}-0@7", f"{WORD}  {SENTENCE}"),
    ),
    "quality": Case(
        ("quality",), "commands.quality.judge", JUDGEMENT, (WORD, SENTENCE, f"{WORD}/index.html", f"id {WORD}")
    ),
    "verify": Case(
        ("verify",), "commands.verify.run_checks", PROOF, (f"{WORD}: {SENTENCE}", f"not possible: {SENTENCE}")
    ),
    "rebuild": Case(
        ("rebuild",),
        "commands.rebuild.build",
        Rebuilt({WORD: 1}, 1, {WORD: 1}, [Compared(WORD, 1, 1, 0, 0, 1, {WORD: 1}, [WORD])], 1.0),
        (f"{WORD}: other values in {WORD} (1)", f"for one, {WORD}", f"compared at {WORD} 1"),
    ),
    "corrections": Case(
        ("rebuild", "--list"), "commands.rebuild.corrections.kept", [correction_of({}, run=WORD, reason=SENTENCE)]
    ),
    "maintain": Case(
        ("maintain",),
        "maintenance.on_demand.maintain",
        Maintained(True, [Tended(WORD, behind=(SENTENCE,))], [WORD]),
        (f"{WORD}: nothing removed: {SENTENCE}", f"old checkpoints removed: {WORD}"),
    ),
    "migrate": Case(
        ("migrate",),
        "commands.migrate.bring_up",
        Migrated(WORD, 1, [Layout(Table.PURCHASES, 1, (SENTENCE,), 1)], True),
    ),
    "bucket": Case(("lake", "check"), "commands.lake.bucket.check", [Trait(WORD, False, SENTENCE)]),
    "broker": Case(
        ("broker", "status"),
        "demo.commands.broker.process.status",
        BrokerStatus(True, True, 1, WORD, Path("/log", WORD)),
        (f"broker runs on {WORD}", f"/log/{WORD}"),
    ),
    "driver": Case(
        ("driver", "status"), "commands.driver.streams.observe", Driver(State.RUNNING, SENTENCE, 1), (SENTENCE,)
    ),
}


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each command where the environment tells of a narrow terminal, and output is piped."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "")
    monkeypatch.setattr(console, "out", console.Terminal())


@pytest.mark.usefixtures("deployment")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_no_report_cuts_or_wraps_a_word(
    case: Case, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(f"customer_activity.{case.work}", lambda *_, **__: case.found)
    call(*case.arguments)
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    lines = printed.out.splitlines()
    for words in case.wanted:
        assert any(words in line for line in lines), f"not whole: {words[:40]}…"
    assert "…" not in printed.out


def test_what_was_sent_is_told_whole(capsys: pytest.CaptureFixture[str]) -> None:
    traffic._print(
        {
            "source": "generated",
            "seed": 1,
            "topics": {WORD: {"purchase": 1}},
            "expected_in_quarantine": {f"{WORD}-{number}": 1 for number in range(5)},
            "is_interrupted": False,
            "records": 1,
            "seconds": 1.0,
            "records_per_second": 1,
        }
    )
    lines = capsys.readouterr().out.splitlines()
    assert any(WORD in line and "purchase" in line for line in lines)
    assert f"to be quarantined: {', '.join(f'{WORD}-{number} 1' for number in range(5))}" in lines


def test_a_terminal_keeps_its_width() -> None:
    """What is drawn on a screen wraps there; only where no screen is, a line has no end."""
    for options, width in (({"width": 30}, 30), ({"force_terminal": True}, 40), ({}, console.UNBOUNDED)):
        assert console.Terminal(file=io.StringIO(), **options).width == width
