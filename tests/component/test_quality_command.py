"""`activity quality`: what it prints, how it exits, and the gate from the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from customer_activity.commands import quality
from customer_activity.engine import gate
from customer_activity.quality.judging import Judged
from customer_activity.quality.rules import Severity
from customer_activity.quality.run import Report, Verdict
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import Settings
from support import command
from support.reports import rule

Call = Callable[..., tuple[int, str, str]]  # exit code, output, errors


def verdict(name: str, outcome: Outcome, severity: Severity = Severity.HOLD) -> Verdict:
    about = rule(name, "SELECT customer_id\n  FROM gold.customer_activity", severity=severity)
    examples = () if outcome is Outcome.PASSED else ("customer_id C-7",)
    return Verdict(about, Judged(outcome, float(len(examples)), f"{len(examples)} rows", examples, None), 0.5)


def report(*verdicts: Verdict, overridden: tuple[str, ...] = ()) -> Report:
    held = {
        v.rule.rule: gate.Failure(v.rule.suite, v.judged.found, "now", "run-1")
        for v in verdicts
        if v.holds and v.rule.rule not in overridden
    }
    return Report("run-1", verdicts, {"gold.customer_activity": 3}, held, overridden, "/docs/index.html", 1.25)


@pytest.fixture
def call(deployment: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return what calls the command with a report in the place of a run."""

    def run(*arguments: str, found: Report | None = None) -> tuple[int, str, str]:
        monkeypatch.setattr(quality, "judge", lambda *_, **__: found)
        code, told = command.call("quality", *arguments), capsys.readouterr()
        return code, told.out, told.err

    return run


def test_all_passed(call: Call) -> None:
    code, out, _ = call(found=report(verdict("one_row", Outcome.PASSED)))
    assert (code, out.splitlines()[-1]) == (0, "1 of 1 rules passed in 1.2 s")


def test_judging_lowers_its_priority_so_that_streams_come_first(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[int] = []
    monkeypatch.setattr(os, "nice", lowered.append)
    call(found=report(verdict("one_row", Outcome.PASSED)))
    assert lowered == [quality.NICE]
    assert quality.NICE > 0


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.ERROR])
def test_a_rule_that_holds_is_explained(call: Call, outcome: Outcome) -> None:
    code, out, _ = call(found=report(verdict("one_row", outcome), verdict("two_rows", Outcome.PASSED)))
    assert code == 1
    assert "one_row: Because somebody counts on it." in out
    assert "customer_id C-7" in out
    assert "look further: SELECT customer_id FROM gold.customer_activity" in out
    assert out.splitlines()[-2:] == [
        "publishing is held: one_row",
        "1 of 2 rules passed in 1.2 s, 1 failed that hold",
    ]


def test_a_warning_holds_nothing(call: Call) -> None:
    code, out, _ = call(found=report(verdict("match", Outcome.FAILED, Severity.WARN)))
    assert (code, out.splitlines()[-1]) == (0, "0 of 1 rules passed in 1.2 s, 1 warn")


def test_what_was_overridden_still_fails_the_command(call: Call) -> None:
    code, out, _ = call(found=report(verdict("one_row", Outcome.FAILED), overridden=("one_row",)))
    assert code == 1
    assert "overridden: one_row" in out
    assert "publishing is held" not in out


def test_json_has_it_all(call: Call) -> None:
    code, out, _ = call("--json", found=report(verdict("one_row", Outcome.FAILED)))
    found = json.loads(out)
    assert (code, found["ok"], list(found["held"])) == (1, False, ["one_row"])
    assert found["rules"][0]["examples"] == ["customer_id C-7"]
    assert found["versions"] == {"gold.customer_activity": 3}


def test_release_opens_the_gate(call: Call, settings: Settings) -> None:
    gate.update(settings.lake, [], {"one_row": gate.Failure("gold/x", "1 rows", "now", "run-1")})
    code, out, _ = call("release", "--reason", "known")
    assert (code, gate.holding(settings.lake)) == (0, {})
    assert "one_row" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("release",), "release needs a reason", id="no reason"),
        pytest.param(("release", "--reason", "known"), "nothing holds publishing", id="nothing held"),
        pytest.param(("gold", "--reason", "known"), "--reason belongs to", id="a reason to judge"),
    ],
)
def test_wrong_use_is_told(call: Call, arguments: tuple[str, ...], message: str) -> None:
    code, _, err = call(*arguments, found=report(verdict("one_row", Outcome.PASSED)))
    assert code == 2
    assert message in err
