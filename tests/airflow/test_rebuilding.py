"""A rebuild's form: what somebody enters there is what the command is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import DAG
from airflow.sdk.definitions.param import ParamsDict
from airflow.sdk.exceptions import AirflowFailException

from activity_dags.pipelines import DEFAULT, Pipeline
from activity_dags.rebuilding import RebuildOperator, options

FILE = Path(__file__).resolve().parents[2] / "dags" / "customer_activity_rebuild.py"


@pytest.fixture
def dag() -> DAG:
    (found,) = DagBag(FILE, load_op_links=False).dags.values()
    return found


def filled(dag: DAG, entered: dict[str, Any]) -> dict[str, Any]:
    """Return a run's params, as Airflow checks them."""
    params = ParamsDict(dag.params)
    params.update(entered)
    return dict(params.validate())


@pytest.mark.parametrize(
    ("entered", "expected"),
    [
        pytest.param({}, [], id="nothing: everybody"),
        pytest.param({"customers": None}, [], id="a field that was emptied: everybody"),
        pytest.param({"customers": ["C-1", "--all"]}, ["--customer=C-1", "--customer=--all"], id="customers"),
        pytest.param(
            {"since": "2026-11-01T00:00:00+01:00", "until": "2026-11-02T00:00:00Z"},
            ["--since=2026-11-01T00:00:00+01:00", "--until=2026-11-02T00:00:00Z"],
            id="a time",
        ),
        pytest.param({"apply": True}, ["--apply"], id="a correction"),
        pytest.param({"undo": "20261122T101500Z"}, ["--undo=20261122T101500Z"], id="a correction that was kept"),
    ],
)
def test_the_form_becomes_options(dag: DAG, entered: dict[str, Any], expected: list[str]) -> None:
    assert options(filled(dag, entered)) == expected


@pytest.mark.parametrize(
    "entered",
    [
        pytest.param({"customers": "C-1"}, id="customers that are no list"),
        pytest.param({"since": 20261101}, id="a time that is a number"),
        pytest.param({"apply": "maybe"}, id="a correction that is neither"),
    ],
)
def test_what_is_no_choice_is_refused(dag: DAG, entered: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Invalid input"):
        filled(dag, entered)


def test_differences_fail_the_task_with_the_last_words(dag: DAG, program: Any) -> None:
    program.answers(rebuild=[{"lines": ["6 rows differ"], "code": 1}])
    task = RebuildOperator(pipeline=Pipeline(DEFAULT), task_id="compare")
    with pytest.raises(AirflowFailException, match="6 rows differ"):
        task.execute({"params": filled(dag, {"customers": ["C-1"]})})
    assert program.asked[0][:-1] == ["rebuild", "--customer=C-1"]
