"""On which Spark the driver works: the connection says, and spark-submit is told it with nothing that is secret."""

from __future__ import annotations

import json
import stat
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, BaseHook, Connection
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from activity_dags import pipelines, place
from activity_dags.command import ActivityOperator
from activity_dags.driver import DriverOperator
from activity_dags.pipelines import DEFAULT, Pipeline

NAME = "customer_activity_spark"
PROJECT = Path(__file__).resolve().parents[2]
WORD = "a-secret-of-this-test"
MASTERS = [
    pytest.param("local[*]", None, "local[*]", id="local"),
    pytest.param("spark://master", 7077, "spark://master:7077", id="standalone"),
    pytest.param("yarn", None, "yarn", id="YARN"),
    pytest.param("k8s://https://cluster", 6443, "k8s://https://cluster:6443", id="Kubernetes"),
]

# In the place of spark-submit: notes its command line, and starts nothing.
SUBMIT = """#!/bin/sh
for word in "$@"; do printf '%s\\0' "$word"; done >"$(dirname "$0")/told"
exit 1
"""
# In the place of the driver: all that it does up to Java's start.
LAUNCH = """#!/bin/sh
export PYTHONPATH={jobs}
exec {python} -c 'from customer_activity import settings
from customer_activity.engine import session
session.launch(settings.load())'
"""


def named(monkeypatch: pytest.MonkeyPatch, name: str, host: str, port: int | None) -> None:
    connection = Connection(conn_id=name, conn_type="spark", host=host, port=port)
    monkeypatch.setattr(BaseHook, "get_connection", {name: connection}.__getitem__)


def driver(pipeline: Pipeline) -> DriverOperator:
    with DAG(dag_id="stream", schedule=None):
        gold = Asset("gold", uri="x-test://gold")
        return DriverOperator(pipeline=pipeline, task_id="driver", shift=timedelta(minutes=15), gold=gold)


def executable(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


@pytest.mark.parametrize(("host", "port", "master"), MASTERS)
def test_the_driver_is_beside_the_worker_and_is_told_the_connections_master(
    host: str,
    port: int | None,
    master: str,
    program: Any,
    well: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    named(monkeypatch, NAME, host, port)
    program.answers(driver_start=[{"lines": [well(is_new=True)]}])
    assert driver(Pipeline(DEFAULT)).submit_job({}) == 4711
    *line, seen = program.asked[0]
    assert line == ["driver", "start", "--attended", "120.0", "--json"]
    assert seen == {"ACTIVITY_SPARK_MASTER": master}


def test_a_backfill_runs_there_too(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    named(monkeypatch, NAME, "yarn", None)
    program.answers(stream=[{}], quality=[{}])
    for command, on_spark in (("stream", True), ("quality", False)):
        ActivityOperator(pipeline=Pipeline(DEFAULT), task_id=command, arguments=[command], on_spark=on_spark).execute(
            {}
        )
    assert [call[-1] for call in program.asked] == [{"ACTIVITY_SPARK_MASTER": "yarn"}, {}]


def test_without_a_connection_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Connection:
        raise AirflowNotFoundException

    monkeypatch.setattr(BaseHook, "get_connection", missing)
    assert place.settings(Pipeline(DEFAULT)) == {}


@pytest.mark.parametrize(("host", "port", "master"), MASTERS[1:])
def test_spark_is_told_the_master_and_the_code_and_nothing_secret(
    host: str, port: int | None, master: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the task to the command line of spark-submit, with the settings that a pipeline's file has."""
    submit = executable(tmp_path / "spark" / "bin" / "spark-submit", SUBMIT)
    launch = LAUNCH.format(jobs=PROJECT / "jobs", python=PROJECT / ".venv" / "bin" / "python")
    jars = [tmp_path / "jars" / folder / "a.jar" for folder in ("spark", "own", "s3")]
    for jar in jars:
        jar.parent.mkdir(parents=True)
        jar.touch()
    properties, kafka = tmp_path / "spark.conf", tmp_path / "kafka.properties"
    properties.write_text(
        f"spark.authenticate.secret {WORD}\nspark.kubernetes.container.image registry/activity:1\n", encoding="utf-8"
    )
    kafka.write_text(f"sasl.password={WORD}\n", encoding="utf-8")
    settings = {
        "ACTIVITY_PIPELINE": "orders-eu",
        "ACTIVITY_LAKE": "s3a://lakes/orders-eu",
        "ACTIVITY_RUN_DIR": str(tmp_path / "run"),
        "ACTIVITY_JARS_DIR": str(tmp_path / "jars"),
        "ACTIVITY_KAFKA_CONFIG": str(kafka),
        "ACTIVITY_SPARK_PROPERTIES_FILE": str(properties),
        "CUSTOMER_ACTIVITY_PROGRAM": str(executable(tmp_path / "activity", launch)),
    }
    (tmp_path / "pipelines").mkdir()
    lines = "".join(f"{name}={value}\n" for name, value in settings.items())
    (tmp_path / "pipelines" / "orders-eu.env").write_text(lines, encoding="utf-8")
    monkeypatch.setenv(pipelines.FOLDER, str(tmp_path / "pipelines"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    if master != "yarn":  # where keys of S3 in the environment are refused
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", WORD)
    named(monkeypatch, "orders_eu_spark", host, port)
    with pytest.raises(AirflowException):
        driver(pipelines.named("orders-eu")).submit_job({})

    told = submit.with_name("told").read_text(encoding="utf-8").split("\0")
    conf = dict(told[at + 1].split("=", 1) for at, word in enumerate(told) if word == "--conf")
    assert (conf["spark.master"], conf["spark.submit.deployMode"]) == (master, "client")
    assert told[told.index("--properties-file") + 1] == str(properties)
    assert conf["spark.jars"] == ",".join(map(str, jars))
    assert imported(conf["spark.submit.pyFiles"])
    assert WORD not in json.dumps(told)


def imported(release: str) -> str:
    """Return where a Python that knows the release alone finds its package."""
    line = ["python3", "-S", "-c", "import customer_activity; print(customer_activity.__file__)"]
    done = subprocess.run(line, env={"PYTHONPATH": release}, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(release)
    return done.stdout
