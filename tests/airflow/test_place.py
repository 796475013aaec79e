"""Where the driver runs, by the connection's master."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG, BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from activity_dags import place
from activity_dags.pipelines import DEFAULT, Pipeline

NAME = "customer_activity_spark"


@pytest.mark.parametrize(
    ("host", "port", "master", "task"),
    [
        pytest.param("local[*]", None, "local[*]", "driver", id="local"),
        pytest.param("spark://master", 7077, "spark://master:7077", "driver", id="standalone"),
        pytest.param("yarn", None, "yarn", "driver_in_cluster", id="YARN"),
        pytest.param("k8s://https://cluster", 6443, "k8s://https://cluster:6443", "driver_in_cluster", id="Kubernetes"),
    ],
)
def test_the_connection_says_where(
    host: str, port: int | None, master: str, task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(conn_id=NAME, conn_type="spark", host=host, port=port)
    monkeypatch.setattr(BaseHook, "get_connection", {NAME: connection}.__getitem__)
    assert place.master(Pipeline(DEFAULT)) == master
    assert chosen() == task


def test_without_a_connection_it_is_beside_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Connection:
        raise AirflowNotFoundException

    monkeypatch.setattr(BaseHook, "get_connection", missing)
    assert place.master(Pipeline(DEFAULT)) is None
    assert chosen() == "driver"


def chosen() -> Any:
    return place.place.function(DEFAULT)


def test_a_cluster_gets_the_same_job() -> None:
    with DAG(dag_id="stream", schedule=None):
        task = place.in_cluster(Pipeline(DEFAULT))
    assert place.APPLICATION.exists()
    assert (task.application, task.application_args) == (str(place.APPLICATION), ["stream"])
    assert task.durable
    assert (task.name, task._conn_id) == (DEFAULT, NAME)
