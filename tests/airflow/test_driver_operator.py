"""The driver's task on a worker: it starts the driver, gives the worker back, and goes on by what the watch saw."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.triggers.temporal import DateTimeTrigger
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from activity_dags import driver as module
from activity_dags import place
from activity_dags.driver import MAX_FAILURES, DriverOperator
from activity_dags.pipelines import DEFAULT, Pipeline
from activity_dags.watching import DriverTrigger

GOLD = Asset("gold", uri="x-test://gold")
NOW = 1_000_000.0
SHIFT = timedelta(minutes=15)


class Store(dict[str, Any]):
    """Stands in for Airflow's state of a task, which outlives a worker."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> DriverOperator:
    monkeypatch.setattr(place, "master", lambda _: None)
    monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: NOW))
    with DAG(dag_id="stream", schedule=None):
        return DriverOperator(pipeline=Pipeline(DEFAULT), task_id="driver", shift=SHIFT, gold=GOLD)


@pytest.fixture
def context() -> dict[str, Any]:
    return {"task_state_store": Store(), "outlet_events": {GOLD: SimpleNamespace(extra=None)}}


def resumed(
    task: DriverOperator, context: dict[str, Any], event: dict[str, Any], failures: list[float] | None = None
) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        task.resume(context, event, failures=failures or [], until=NOW + 60)
    return deferred.value


def test_it_starts_the_driver_and_defers(program: Any, well: Callable[..., Any], task: Any, context: Any) -> None:
    program.answers(driver_start=[{"lines": [well(is_new=True)]}])
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    assert isinstance(deferred.value.trigger, DriverTrigger)
    until = NOW + SHIFT.total_seconds()
    assert deferred.value.trigger.serialize()[1] == {"pipeline": DEFAULT, "dag_id": "stream", "until": until}
    assert context["task_state_store"] == {"driver": 4711}
    assert program.asked[0][:4] == ["driver", "start", "--attended", "120.0"]


def test_a_worker_that_died_is_followed_by_one_that_finds_the_driver(
    program: Any, well: Callable[..., Any], task: Any, context: Any
) -> None:
    program.answers(driver_status=[{"lines": [well()]}])
    context["task_state_store"].set("driver", 4711)
    with pytest.raises(TaskDeferred):
        task.execute(context)
    assert program.commands == ["driver status"]  # nothing was started


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"state": "dead", "pid": None}, id="dead"),
        pytest.param({"state": "running", "pid": 99}, id="another driver has come since"),
    ],
)
def test_where_its_driver_is_gone_one_is_started_or_found(
    program: Any, well: Callable[..., Any], task: Any, context: Any, status: dict[str, Any]
) -> None:
    program.answers(driver_status=[{"lines": [status], "code": 1}], driver_start=[{"lines": [well(is_new=True)]}])
    context["task_state_store"].set("driver", 1)
    with pytest.raises(TaskDeferred):
        task.execute(context)
    assert program.commands == ["driver status", "driver start"]


def test_a_shift_that_is_over_tells_how_gold_is(well: Callable[..., Any], task: Any, context: Any) -> None:
    task.resume(context, well(), failures=[], until=NOW)
    assert context["outlet_events"][GOLD].extra == {"version": 12, "rows": 801, "freshness_seconds": 0.7}


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param("dead", (["driver start"], 1), id="dead: started again"),
        pytest.param("failed", (["driver start"], 1), id="failed: started again"),
        pytest.param("stalled", (["driver stop", "driver start"], 1), id="stalled: stopped, then started again"),
        pytest.param("stopped", (["driver start"], 0), id="stopped by somebody: started again, no failure"),
        pytest.param("unwatched", (["driver start"], 1), id="the watch failed: found again"),
    ],
)
def test_a_driver_that_is_not_well_is_started_again(
    program: Any, well: Callable[..., Any], task: Any, context: Any, state: str, expected: tuple[list[str], int]
) -> None:
    commands, counted = expected
    program.answers(driver_start=[{"lines": [well(is_new=True)]}], driver_stop=[{"lines": [{"graceful": True}]}])
    deferred = resumed(task, context, {"state": state, "message": "why"})
    assert program.commands == commands
    assert isinstance(deferred.trigger, DriverTrigger)
    assert deferred.kwargs == {"failures": [NOW] * counted, "until": NOW + 60}


def test_a_second_failure_waits_a_little(program: Any, well: Callable[..., Any], task: Any, context: Any) -> None:
    program.answers(driver_start=[{"lines": [well(is_new=True)]}])
    deferred = resumed(task, context, {"state": "dead"}, [NOW - 30])
    assert isinstance(deferred.trigger, DateTimeTrigger)
    assert program.commands == []
    kwargs = deferred.kwargs or {}
    with pytest.raises(TaskDeferred) as after:
        task.resume_start(context, None, **kwargs)
    assert isinstance(after.value.trigger, DriverTrigger)
    assert after.value.kwargs == {"failures": [NOW - 30, NOW], "until": NOW + 60}


def test_what_nobody_foresaw_is_tried_again(program: Any, task: Any, context: Any) -> None:
    program.answers(driver_start=[{"error": "error: Py4JNetworkError", "code": 1}])
    deferred = resumed(task, context, {"state": "dead"}, [NOW - 30])
    kwargs = deferred.kwargs or {}
    with pytest.raises(TaskDeferred) as after:
        task.resume_start(context, None, **kwargs)
    assert len((after.value.kwargs or {})["failures"]) == 3


def test_a_task_that_is_ended_while_it_starts_the_driver_starts_no_other(
    program: Any, task: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.answers(driver_stop=[{"lines": [{"graceful": True}]}])

    def ended(_context: Any) -> int:
        task.on_kill()  # as Airflow does in a signal's handler, while its signal ends what the task runs
        raise AirflowException("`activity driver start` ended with exit code -15")

    monkeypatch.setattr(task, "submit_job", ended)
    with pytest.raises(AirflowException, match="-15"):
        task.start_again(context)
    assert program.commands == ["driver stop"]


def test_too_many_failures_end_with_the_reason(task: Any, context: Any) -> None:
    earlier = [NOW - 60 * number for number in range(1, MAX_FAILURES)]
    event = {"state": "failed", "message": "the disk is full", "last_words": "error: no space left"}
    with pytest.raises(AirflowFailException, match=r"(?s)5 failures within 15 minutes.*disk is full.*no space left"):
        task.resume(context, event, failures=earlier, until=NOW)


@pytest.mark.parametrize("exit_code", [None, 1, 75], ids=["unknown", "unforeseen", "it may pass"])
def test_a_driver_that_failed_with_what_may_pass_is_started_again(
    program: Any, well: Callable[..., Any], task: Any, context: Any, exit_code: int | None
) -> None:
    program.answers(driver_start=[{"lines": [well(is_new=True)]}])
    deferred = resumed(task, context, {"state": "failed", "message": "why", "exit_code": exit_code})
    assert (deferred.kwargs or {})["failures"] == [NOW]


def test_a_driver_that_failed_for_good_is_started_once_more(
    program: Any, well: Callable[..., Any], task: Any, context: Any
) -> None:
    program.answers(driver_start=[{"lines": [well(is_new=True)]}])
    event = {"state": "failed", "message": "too many bad records", "exit_code": 2, "last_words": "error: quarantine"}
    failures = (resumed(task, context, event).kwargs or {})["failures"]
    assert program.commands == ["driver start"]
    with pytest.raises(AirflowFailException, match=r"(?s)failed, with exit code 2: too many bad.*error: quarantine"):
        task.resume(context, event, failures=failures, until=NOW)
    assert program.commands == ["driver start"]


def test_failures_of_long_ago_do_not_count(program: Any, well: Callable[..., Any], task: Any, context: Any) -> None:
    program.answers(driver_start=[{"lines": [well(is_new=True)]}])
    earlier = [NOW - 15 * 60 - number for number in range(1, MAX_FAILURES)]
    assert (resumed(task, context, {"state": "dead"}, earlier).kwargs or {})["failures"] == [NOW]


def test_a_start_that_may_work_later_is_a_failure_that_is_counted(program: Any, task: Any, context: Any) -> None:
    program.answers(driver_start=[{"error": "the broker does not answer", "code": 75}])
    deferred = resumed(task, context, {"state": "stopped"})
    assert program.commands == ["driver start", "driver start"]  # once more at once, then after a pause
    assert isinstance(deferred.trigger, DateTimeTrigger)
    assert (deferred.kwargs or {})["failures"] == [NOW, NOW]


def test_a_first_start_that_may_work_later_is_tried_again_without_a_worker(
    program: Any, task: Any, context: Any
) -> None:
    program.answers(driver_start=[{"error": "the broker does not answer", "code": 75}])
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    assert isinstance(deferred.value.trigger, DateTimeTrigger)
    assert (deferred.value.kwargs or {})["failures"] == [NOW, NOW]


def test_a_start_that_cannot_work_is_final(program: Any, task: Any, context: Any) -> None:
    program.answers(driver_start=[{"error": "error: the checkpoint is another table's\n  → put it back", "code": 2}])
    with pytest.raises(AirflowFailException, match="put it back"):
        task.resume(context, {"state": "dead"}, failures=[], until=NOW)


def test_what_the_program_sees_has_none_of_airflows_settings(
    program: Any, well: Callable[..., Any], task: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "hidden")
    program.answers(driver_start=[{"lines": [well(is_new=True)]}])
    with pytest.raises(TaskDeferred):
        task.execute(context)
    assert program.asked[0][-1] == {}


def test_a_task_that_is_killed_on_a_worker_stops_the_driver(program: Any, task: Any) -> None:
    program.answers(driver_stop=[{"lines": [{"ran": True, "graceful": True}]}])
    task.on_kill()
    assert program.commands == ["driver stop"]


def test_the_watch_ends_with_the_clock_it_was_given() -> None:
    until = time.time() + 5
    path, arguments = DriverTrigger(pipeline=DEFAULT, dag_id="stream", until=until).serialize()
    assert path == "activity_dags.watching.DriverTrigger"
    assert arguments == {"pipeline": DEFAULT, "dag_id": "stream", "until": until}
