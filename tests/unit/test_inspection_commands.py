"""The commands that look: what they print and how they exit."""

from __future__ import annotations

import json

import pytest

from customer_activity.commands import inspection
from customer_activity.inspection.doctor import Finding
from customer_activity.settings import PREFIX, Settings
from support.command import call
from support.streams import Query

pytestmark = pytest.mark.usefixtures("deployment")


def test_status_is_complete_in_json_while_the_broker_is_down(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("status", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [query["query"] for query in found["queries"] if query["query"] in set(Query)] == list(Query)
    assert found["queries"][0]["lag_records"] is None
    assert found["notes"]


def test_show_fails_when_nothing_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("show", "C-404", "--json") == 1
    assert json.loads(capsys.readouterr().out)["is_known"] is False


@pytest.mark.parametrize(("output", "begin"), [("text", "lake "), ("mermaid", "flowchart LR"), ("json", "{")])
def test_describe_prints_every_format(output: str, begin: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("describe", "--format", output) == 0
    assert capsys.readouterr().out.startswith(begin)


@pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 2)])
def test_doctor_fails_when_something_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ok: bool, code: int
) -> None:
    finding = Finding("java", ok, "11 [odd]", "" if ok else "install Java 17")
    monkeypatch.setattr(inspection, "diagnose", lambda *_: [finding])
    assert call("doctor") == code
    printed = capsys.readouterr()
    assert "11 [odd]" in printed.out
    assert ("install Java 17" in printed.err) is not ok


def test_doctor_lists_every_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor", "--settings", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert [entry["variable"] for entry in listed] == [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
    assert call("doctor", "--settings") == 0
    assert "ACTIVITY_CURRENCY=EUR\n" in capsys.readouterr().out


def test_doctor_knows_the_defaults_of_a_named_pipeline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACTIVITY_PIPELINE", "orders-eu")
    monkeypatch.setenv("ACTIVITY_VIEW_TOPIC", "orders-eu-view")
    monkeypatch.setenv("ACTIVITY_PROGRESS_TOPIC", "another")
    assert call("doctor", "--settings", "--json") == 0
    listed = {entry["variable"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert listed["ACTIVITY_VIEW_TOPIC"]["is_default"]
    assert not listed["ACTIVITY_PROGRESS_TOPIC"]["is_default"]
    assert listed["ACTIVITY_PROGRESS_TOPIC"]["default"] == "orders-eu-progress"
