"""A task that runs one command: its words, its end, and what its exit code means for a retry."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from activity_dags.command import ActivityOperator
from activity_dags.pipelines import DEFAULT, Pipeline


def task(*arguments: str) -> ActivityOperator:
    return ActivityOperator(pipeline=Pipeline(DEFAULT), task_id="task", arguments=list(arguments))


def test_it_runs_the_command_without_what_is_empty(program: Any) -> None:
    program.answers(quality=[{"lines": ["61 of 61 rules pass"]}])
    task("quality", "", "--json").execute({})
    assert program.asked[0][:-1] == ["quality", "--json"]


@pytest.mark.parametrize(
    ("code", "is_final"),
    [
        pytest.param(1, True, id="a check failed"),
        pytest.param(2, True, id="wrong use"),
        pytest.param(75, False, id="try again"),
        pytest.param(137, False, id="killed"),
    ],
)
def test_an_exit_code_says_whether_trying_again_helps(program: Any, code: int, is_final: bool) -> None:
    program.answers(stream=[{"lines": ["first"], "error": "another driver holds the query", "code": code}])
    with pytest.raises(AirflowException, match="another driver holds the query") as raised:
        task("stream", "--available-now").execute({})
    assert isinstance(raised.value, AirflowFailException) == is_final


def test_a_program_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.delenv("CUSTOMER_ACTIVITY_PROGRAM", raising=False)
    monkeypatch.setattr("activity_dags.program.BESIDE", tmp_path / "activity")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AirflowFailException, match="CUSTOMER_ACTIVITY_PROGRAM"):
        task("quality").execute({})


def test_ending_the_task_ends_the_command(program: Any) -> None:
    program.answers(stream=[{"lines": ["up"], "stays": True}])
    running = task("stream")
    ended: list[BaseException] = []

    def run() -> None:
        try:
            running.execute({})
        except AirflowException as error:
            ended.append(error)

    worker = threading.Thread(target=run)
    worker.start()
    while not program.asked:  # until it runs
        worker.join(0.05)
    running.on_kill()
    worker.join(30)
    assert not worker.is_alive()
    assert len(ended) == 1
