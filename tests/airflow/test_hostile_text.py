"""Text of the data on its way into Airflow: its logs, its errors, its alerts and its buttons."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from activity_dags import alerts, shown
from activity_dags import program as activity
from activity_dags.command import ActivityOperator
from activity_dags.judging import JudgeOperator
from activity_dags.pipelines import DEFAULT, Pipeline
from activity_dags.watching import DriverTrigger

HOSTILE = "\x1b]0;owned\x07\x1b[31m\x00\x9b2J\u202egpj.\u2028\u200d"
HIDDEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}
PRODUCT = Path(__file__).parents[2] / "jobs" / "customer_activity" / "shown.py"


def assert_harmless(text: str) -> None:
    assert not {c for c in text if c != "\n" and unicodedata.category(c) in HIDDEN}
    assert r"\x1b]0;owned\x07\x1b[31m\x00\x9b2J\u202egpj." in text


class Log:
    """Stands in for a task's log."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def info(self, template: str, *values: Any) -> None:
        self.said.append(template % values)

    warning = info


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(ActivityOperator, "log", made)
    return made


def product() -> ModuleType:
    """Load the product's module by its path: the product itself is not installed here."""
    spec = importlib.util.spec_from_file_location("product_shown", PRODUCT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_rule_is_the_product_s_own() -> None:
    everything = "".join(chr(point) for point in range(sys.maxunicode + 1))
    assert shown.escaped(everything) == product().escaped(everything)
    assert shown.lines(everything) == product().lines(everything)
    assert shown.in_a_line("what\n  → do\n") == product().in_a_line("what\n  → do\n") == r"what → do\n"


def test_what_a_command_says_is_in_the_log_without_what_it_could_command(program: Any, log: Log) -> None:
    program.answers(quality=[{"lines": [f"customer_id {HOSTILE}"], "error": f"error: {HOSTILE}", "code": 1}])
    with pytest.raises(AirflowFailException) as raised:
        ActivityOperator(pipeline=Pipeline(DEFAULT), task_id="task", arguments=["quality"]).execute({})
    assert_harmless(str(raised.value))
    assert len(log.said) == 2
    for line in log.said:
        assert_harmless(line)


def test_what_a_report_says_is_escaped_when_it_is_read(
    program: Any, well: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = well(state="failed", message=f"{HOSTILE}\nforged", last_words=f"{HOSTILE}\nsecond line")
    program.answers(driver_status=[{"lines": [said]}], driver_watch=[{"lines": [said], "code": 1}])

    async def missing(name: str) -> Any:
        raise AirflowNotFoundException(name)

    async def first(trigger: DriverTrigger) -> dict[str, Any]:
        return dict((await anext(aiter(trigger.run()))).payload)

    monkeypatch.setattr(BaseHook, "aget_connection", missing)
    report = activity.report(Pipeline(DEFAULT), "driver", "status")
    event = asyncio.run(asyncio.wait_for(first(DriverTrigger(pipeline=DEFAULT, dag_id="stream", until=3e9)), 60))
    for found in (report, event):
        assert_harmless(json.dumps(found, ensure_ascii=False).replace(r"\\", "\\"))
        assert "\n" not in found["message"]
        assert found["last_words"].splitlines()[1] == "second line"
        assert found["pid"] == 4711


def test_a_watch_that_fails_says_so_without_what_it_could_command(program: Any) -> None:
    program.answers(driver_watch=[{"error": HOSTILE, "code": 2}])
    trigger = DriverTrigger(pipeline=DEFAULT, dag_id="stream", until=3e9)
    found = asyncio.run(trigger.watch(SimpleNamespace(is_seen=False)))  # type: ignore[arg-type]
    assert_harmless(found["message"])


def test_a_failure_is_told_to_people_without_what_it_could_command() -> None:
    task = SimpleNamespace(dag_id="d", task_id="t", log_url="http://airflow/log")
    assert_harmless("\n".join(alerts.words({"ti": task, "exception": AirflowException(HOSTILE)})))


@pytest.mark.parametrize("place", ["javascript://x/%0aalert(1)", "data://text/html,x"])
def test_the_button_leads_to_pages_only(program: Any, log: Log, place: str) -> None:
    program.answers(quality=[{"lines": [f"pages: {place}"]}])
    judge = JudgeOperator(pipeline=Pipeline(DEFAULT), task_id="judge")
    judge.execute({})
    assert judge.pages == ""
