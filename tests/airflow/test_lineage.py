"""A command is told which of Airflow's runs it belongs to; and the watch says in one line how the driver is."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from activity_dags import lineage, watching
from activity_dags.command import ActivityOperator
from activity_dags.pipelines import DEFAULT, Pipeline

AT = datetime(2026, 11, 25, 16, 0, tzinfo=UTC)
TASK = SimpleNamespace(dag_id="dag", task_id="drain", try_number=2, map_index=-1)


def context(**run: Any) -> dict[str, Any]:
    return {"ti": TASK, "dag_run": SimpleNamespace(**{"logical_date": AT, "run_after": AT, "clear_number": 0, **run})}


def test_a_command_is_told_its_task_and_its_dag_run(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "team")
    program.answers(quality=[{}])
    ActivityOperator(pipeline=Pipeline(DEFAULT), task_id="task", arguments=["quality"]).execute(context())
    told = program.asked[0][-1]
    assert told[lineage.PARENT].rpartition("/")[0] == "team/dag.drain"
    assert told[lineage.ROOT].rpartition("/")[0] == "team/dag"
    assert told[lineage.PARENT].rpartition("/")[2] != told[lineage.ROOT].rpartition("/")[2]


@pytest.mark.parametrize(
    ("given", "count"),
    [
        pytest.param({}, 0, id="no run"),
        pytest.param(context(logical_date=None, run_after=None), 0, id="a run without a time"),
        pytest.param(context(logical_date=None), 2, id="a run that was asked for"),
        pytest.param(context(), 2, id="a run"),
    ],
)
def test_where_it_is_not_known_nothing_is_told(given: dict[str, Any], count: int) -> None:
    assert len(lineage.parents(given)) == count


def test_each_try_is_another_run() -> None:
    again = {**context(), "ti": SimpleNamespace(**{**vars(TASK), "try_number": 3})}
    first, second = lineage.parents(context()), lineage.parents(again)
    assert first[lineage.PARENT] != second[lineage.PARENT]
    assert first[lineage.ROOT] == second[lineage.ROOT]


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        pytest.param(
            {"pid": 4711, "state": "running", "lag_records": 1_200, "lag_versions": 3, "freshness_seconds": 0.72},
            "The driver is watched: 4711 running, 1,200 records to land, 3 commits to read, view 0.7 s behind",
            id="all is known",
        ),
        pytest.param(
            {"pid": 7, "state": "running", "placed": "silver on executors: 60,000 rows are many"},
            "The driver is watched: 7 running; silver on executors: 60,000 rows are many",
            id="where batches were worked on",
        ),
        pytest.param({"pid": None, "state": "stopped"}, "The driver is watched: None stopped", id="nothing is"),
        pytest.param(
            {"pid": 1, "state": "stalled", "message": "gold is stuck"},
            "The driver is watched: 1 stalled; gold is stuck",
            id="a message",
        ),
    ],
)
def test_the_line_in_the_task_s_log(driver: dict[str, Any], words: str) -> None:
    assert watching.how_it_is(driver) == words
