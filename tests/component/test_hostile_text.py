"""Text from anybody on its way to a terminal, a log and JSON: nothing in it commands, forges or hides anything."""

from __future__ import annotations

import io
import json
import logging
import re
import unicodedata
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from customer_activity.catalog import Table
from customer_activity.commands import driver, inspection, quality, rebuild
from customer_activity.commands import verify as verifying
from customer_activity.demo.commands import run
from customer_activity.demo.run import changes, view
from customer_activity.engine import gate, logs
from customer_activity.errors import TerminalError
from customer_activity.inspection import status
from customer_activity.inspection.doctor import Finding
from customer_activity.quality.judging import Judged
from customer_activity.quality.run import Report, Verdict
from customer_activity.quality.verdicts import Outcome
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.run import Rebuilt
from customer_activity.settings import Settings
from customer_activity.supervision.driver import Driver, State
from customer_activity.terminal import console, screens
from customer_activity.verification.comparison import Check
from support import command
from support.inspected import NOON, of, text, write_status
from support.reports import rule, verified
from support.run_reports import report
from support.streams import Query
from support.tables import append

# A title, a colour, a NUL, an overwritten and a forged line, C1, bidi, a hidden joiner, markup, an emoji's name, HTML.
HOSTILE = (
    "\x1b]0;owned\x07\x1b[31m\x00\rerror: none\nforged\x9b2J\u202egpj.\u2028\u200d[bold red]x[/]:warning:<img src=x>"
)
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
SIGNS = set(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2"
)  # seen by whoever reads Arabic or Syriac
Calls = Callable[..., tuple[int, str]]


def assert_harmless(printed: str, *, lines: bool = True) -> None:
    """What could command a terminal is not in it; what tells what it was, is."""
    assert sorted({c for c in printed if c != "\n" and unicodedata.category(c) in HIDDEN}) == []
    whole = "".join(printed.split())  # tables wrap
    for shown in (r"\x1b]0;owned\x07\x1b[31m\x00\r", r"\x9b2J\u202egpj.\u2028\u200d[boldred]x[/]:warning:<imgsrc=x>"):
        assert shown in whole
    if lines:
        assert r"\nforged" in whole


@pytest.fixture
def call(deployment: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Return what runs a command line and gives its exit code and all that it printed."""
    for terminal in (console.out, console.err):  # nothing is cut
        monkeypatch.setattr(terminal, "_width", 2_000)

    def run_command(*arguments: str) -> tuple[int, str]:
        code, told = command.call(*arguments), capsys.readouterr()
        return code, told.out + told.err

    return run_command


@pytest.fixture
def customer(lake: str) -> str:
    """Write a customer of whom everything is hostile; return its id."""
    texts = dict.fromkeys(("customer_id", "name", "email", "address", "loyalty_status"), HOSTILE)
    append(lake, Table.ACTIVITY, {**texts, "view_version": 1, "as_of": NOON})
    append(lake, Table.PROFILES, texts)
    ids = dict.fromkeys(("purchase_id", "customer_id", "product_id", "currency"), HOSTILE)
    bought = {"amount": Decimal("1.25"), "occurred_at": NOON, "offset": 1, "kafka_timestamp": NOON}
    append(lake, Table.PURCHASES, ids | bought)
    return HOSTILE


class TestShow:
    def test_on_a_terminal(self, call: Calls, customer: str) -> None:
        code, printed = call("show", customer)
        assert code == 0
        assert_harmless(printed)

    def test_as_json_it_is_the_data_as_they_are_and_can_be_looked_at(self, call: Calls, customer: str) -> None:
        code, printed = call("show", customer, "--json")
        found = json.loads(printed)
        assert (code, found["gold"]["name"], found["purchases"][0]["purchase_id"]) == (0, HOSTILE, HOSTILE)
        assert not {c for c in printed if c != "\n" and unicodedata.category(c) in HIDDEN}

    def test_an_argument_that_is_no_text_is_an_unknown_customer(self, call: Calls, customer: str) -> None:
        code, printed = call("show", "C-\udcff")
        assert code == 1
        assert r"C-\udcff: nothing is known" in printed


def test_live_view(settings: Settings) -> None:
    hostile = json.dumps({"loyaltyStatus": HOSTILE, "purchaseCount": 1, "totalAmount": 1.0, "viewVersion": 1})
    change = changes.parse(HOSTILE.encode(), hostile)
    seen = replace(report(3), notes=[HOSTILE])
    assert_harmless(text(view.screen(view.Frame(1.0, seen, HOSTILE, None, "", 1, (change,)))))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        pytest.param(b"C-\xff", b"null", id="neither a text nor an object"),
        pytest.param(b"C-1", b"{", id="no JSON"),
        pytest.param(b"C-1", b'{"purchaseCount": "many", "viewVersion": [], "loyaltyStatus": {}}', id="other types"),
        pytest.param(b"C-1", b'{"loyaltyStatus": "\\ud800", "totalAmount": NaN}', id="half a character"),
    ],
)
def test_a_record_of_somebody_else_on_the_view_topic_is_shown(key: bytes, value: bytes) -> None:
    newest: deque[changes.Change] = deque()
    changes.show(newest, changes.parse(key, value))
    shown = text(view.screen(view.Frame(1.0, report(3), "", None, "", 1, tuple(newest))))
    assert "C-" in shown
    shown.encode()


def test_what_to_do_next_is_safe_to_paste(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for customer_id, shown in (("C 1; rm -rf $HOME", "show 'C 1; rm -rf $HOME'"), (HOSTILE, "show CUSTOMER_ID")):
        run._print_what_next(customer_id, {}, stays=False)
        assert shown in capsys.readouterr().out


def test_verify(call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    check = Check(HOSTILE, 3, 2, 7, (f"{HOSTILE} differs: name",), impossible=HOSTILE)
    found = verified(check, records={HOSTILE: 1}, from_lake={HOSTILE: 1}, covers={HOSTILE: {0: 1}})
    monkeypatch.setattr(verifying, "run_checks", lambda *_, **__: found)
    monkeypatch.setattr(gate, "holding", lambda _: {HOSTILE: gate.Failure("s", HOSTILE, "now", "run")})
    _, printed = call("verify")
    assert_harmless(printed)
    example = next(line for line in printed.splitlines() if "differs: name" in line)
    assert_harmless(example)


def test_quality(call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged(Outcome.ERROR, None, HOSTILE, (f"customer_id {HOSTILE}",), None)
    verdict = Verdict(rule("one_row"), judged, 0.5, (f"customer_id {HOSTILE}",))
    held = {"one_row": gate.Failure(verdict.rule.suite, HOSTILE, "now", "run-1")}
    monkeypatch.setattr(quality, "judge", lambda *_, **__: Report("run-1", [verdict], {}, held, (), "/docs", 1.0))
    _, printed = call("quality")
    assert_harmless(printed)
    assert len([line for line in printed.splitlines() if "forged" in line]) == 3  # the finding and both examples


@pytest.mark.parametrize("arguments", [("list",), ("show",)])
def test_quarantine(call: Calls, lake: str, arguments: tuple[str, ...]) -> None:
    place = {"topic": HOSTILE, "partition": 0, "offset": 1, "kafka_timestamp": NOON}
    said = {"reason": HOSTILE, "detail": HOSTILE, "quarantined_at": NOON + timedelta(seconds=1)}
    append(lake, Table.QUARANTINE, place | said)
    code, printed = call("quarantine", *arguments)
    assert code == 0
    assert_harmless(printed)


def test_status(settings: Settings) -> None:
    write_status(settings, Query.BRONZE, state="failed", message=HOSTILE)
    gate._write(settings.lake, {"rule": gate.Failure("suite", HOSTILE, "now", "run")})
    found = status.report(settings)
    assert of(found, Query.BRONZE).message == HOSTILE
    assert any(HOSTILE in note for note in found.notes)
    shown = text(screens.status(found))
    assert_harmless(shown)
    assert len([line for line in shown.splitlines() if "owned" in line]) >= 2


def test_what_to_do_stands_behind_what_happened(settings: Settings) -> None:
    error = TerminalError("gold: files are gone", remedy="put them back")
    write_status(settings, Query.GOLD, state="failed", message=str(error))
    for said in (
        text(screens.status(status.report(settings))),
        driver.line(Driver(State.FAILED, str(error))),
        logs.Lines().format(logging.makeLogRecord({"msg": str(error)})),
    ):
        assert "gold: files are gone → put them back" in said


def test_doctor(call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "diagnose", lambda *_: [Finding("topics", ok=False, found=HOSTILE, remedy=HOSTILE)])
    code, printed = call("doctor")
    assert code == 2
    assert_harmless(printed, lines=False)


def test_driver_and_rebuild(capsys: pytest.CaptureFixture[str]) -> None:
    found = Driver(State.FAILED, HOSTILE, 1, last_words=HOSTILE)
    console.out.print(driver.line(found), soft_wrap=True)
    assert_harmless(capsys.readouterr().out, lines=False)
    compared = Compared("gold", 1, 1, 0, 0, 1, {HOSTILE: 1}, [HOSTILE])
    rebuild.show(Rebuilt({HOSTILE: 1}, 1, {HOSTILE: 1}, [compared], 1.0))
    assert_harmless(capsys.readouterr().out)


def test_an_error_has_lines_of_its_own_and_forges_none(call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    error = TerminalError(f"bronze: {HOSTILE}", remedy=f"look at {HOSTILE}")

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(inspection, "diagnose", fail)
    code, printed = call("doctor")
    assert code == 2
    assert_harmless(printed, lines=False)
    assert [line for line in printed.splitlines() if not line.startswith(" ")] == printed.splitlines()[:1]


def test_an_error_that_nobody_foresaw_is_told_without_its_words(call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError(HOSTILE)

    monkeypatch.setattr(inspection, "diagnose", fail)
    code, printed = call("doctor")
    assert code == 1
    assert printed.startswith("Traceback")
    assert printed.endswith("\nValueError\n")
    assert "owned" not in printed


def test_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setattr(logging.root, "handlers", [])
    logs.configure_logging()
    logs.log.error("query=bronze failed: %s", HOSTILE, exc_info=ValueError(HOSTILE))
    first, *rest = written.getvalue().splitlines()
    assert_harmless(written.getvalue(), lines=False)
    assert_harmless(first)  # one line an event
    assert rest == ["ValueError"]


def test_logs_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    monkeypatch.setattr(logging.root, "handlers", [])
    logs.configure_logging(logs.JSON)
    extra = {"query": HOSTILE, "offsets": {HOSTILE: {"0": [1, 2]}}, "why": [HOSTILE]}
    logs.log.error("failed: %s", HOSTILE, exc_info=ValueError(HOSTILE), extra=extra)
    (line,) = written.getvalue().splitlines()
    event = json.loads(line)
    assert event.pop("stack") == "ValueError"
    assert event.keys() == {"time", "level", "logger", "message", *extra}
    assert line.isprintable()
    for each in (event["message"], event["query"], *event["offsets"], *event["why"]):
        assert_harmless(each)


def jvm_pattern(file: str) -> str:
    """Return a file of log4j's as it reads it."""
    text = (Path(logs.__file__).with_name(file)).read_text(encoding="utf-8")
    while "\\\\" in text:  # once for properties, and once more within JSON
        text = text.replace("\\\\", "\\")
    return text


@pytest.mark.parametrize("file", ["log4j2.properties", "log4j2-json.properties"])
def test_the_jvm_s_logs_have_of_an_exception_its_class_alone(file: str) -> None:
    (shown,) = re.findall(r"%replace\{%ex\{short\}\}\{(.+?)\}\{", jvm_pattern(file))
    said = f"org.apache.spark.SparkException: {HOSTILE}\nJane: Doe\n\tat org.apache.spark.Some$.thing(Some.scala:1)"
    assert re.sub(shown, r"\1", said) == "org.apache.spark.SparkException"
    assert "%ex{none}" in jvm_pattern(file) or '"stackTraceEnabled": false' in jvm_pattern(file)
    assert len(re.findall(r"%(?:x|r)?(?:ex|Ex|throwable|exception)\b(?!\{none\})", jvm_pattern(file))) == 1


@pytest.mark.parametrize(
    ("file", "what", "kept_whole"),
    [
        pytest.param("log4j2.properties", "%m", "\t\n\r\u00ad", id="text"),
        pytest.param("log4j2-json.properties", "%m", "\u00ad", id="a message in JSON"),
    ],
)
def test_the_jvm_s_logs(file: str, what: str, kept_whole: str) -> None:
    """Java's expressions and Python's are the same here: ranges alone."""
    text = jvm_pattern(file)
    found = re.search(rf"%replace\{{{what}\}}\{{(\[.+?\])\}}\{{\?\}}", text)
    assert found is not None
    kept = re.sub(found[1], "?", "".join(chr(point) for point in range(0x10000)))
    assert {c for c in kept if unicodedata.category(c) in HIDDEN - {"Cs"}} <= set(kept_whole) | SIGNS


def test_a_console_lets_nothing_through_that_somebody_forgot(capsys: pytest.CaptureFixture[str]) -> None:
    for terminal, of_stream in ((console.out, "out"), (console.err, "err")):
        terminal.print(HOSTILE, Text(HOSTILE), soft_wrap=True)
        printed = getattr(capsys.readouterr(), of_stream)
        assert not {c for c in printed if c != "\n" and unicodedata.category(c) in HIDDEN}
        assert printed.count("[bold red]x[/]:warning:") == 2


def test_colours_of_ours_stay() -> None:
    drawn = io.StringIO()
    terminal = console.Terminal(file=drawn, force_terminal=True, color_system="standard")
    terminal.print(screens.findings([Finding("java", ok=True, found="17", remedy="")]))
    assert "\x1b[32mok\x1b[0m" in drawn.getvalue()
    assert isinstance(terminal, Console)
