"""Where the driver runs: the pipeline's connection `…_spark` says, as it does for any Spark job of Airflow's.

Beside the worker (`local[*]`, `spark://…`, or no such connection) the driver is a process that a trigger watches. On
YARN and Kubernetes the cluster has it, and Airflow's own operator submits it, finds it again and waits for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, task
from airflow.sdk.exceptions import AirflowFailException, AirflowNotFoundException

from activity_dags.pipelines import PREFIX, Pipeline, named

CONNECTION = "spark"
CLUSTERS = ("yarn", "k8s://")
BESIDE, IN_CLUSTER = "driver", "driver_in_cluster"  # the tasks
APPLICATION = Path(__file__).resolve().parents[2] / "jobs" / "run.py"


def master(pipeline: Pipeline) -> str | None:
    """Return the Spark master of a pipeline's connection; None when there is no such connection."""
    try:
        connection = BaseHook.get_connection(pipeline.id(CONNECTION))
    except AirflowNotFoundException:
        return None
    return f"{connection.host}:{connection.port}" if connection.port else connection.host


@task.branch
def place(pipeline: str) -> str:
    """Choose the task for the place that the connection of the pipeline of this name says."""
    return IN_CLUSTER if (master(named(pipeline)) or "").startswith(CLUSTERS) else BESIDE


class ClusterDriverOperator(SparkSubmitOperator):
    """Submit the driver to a cluster, with the settings of its pipeline's file, and wait for it."""

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        """Take whose driver it is."""
        super().__init__(name=pipeline.name, conn_id=pipeline.id(CONNECTION), **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Any) -> None:
        """Run it; see SparkSubmitOperator.

        Raises:
            AirflowFailException: the settings cannot be read.
        """
        try:
            settings = self.pipeline.settings()
        except ValueError as error:
            raise AirflowFailException(str(error)) from None
        self.env_vars = {name: value for name, value in settings.items() if name.startswith(PREFIX)} or None
        super().execute(context)


def in_cluster(pipeline: Pipeline) -> ClusterDriverOperator:
    """Return the task for a driver that a cluster has; it holds a worker while it waits."""
    return ClusterDriverOperator(
        task_id=IN_CLUSTER,
        pipeline=pipeline,
        application=str(APPLICATION),
        application_args=["stream"],
        deploy_mode="cluster",
        durable=True,
    )
