"""Which Spark the driver works on: the pipeline's connection `…_spark` says, as it does for any Spark job of Airflow's.

The driver itself is a process beside the worker, whatever the connection says: a trigger watches it, and its executors
are where the master has them. Without a connection its settings say (`ACTIVITY_SPARK_MASTER`). What else a cluster has
to be told is in the settings, too, and in the file of properties that they name: nothing of it is in a connection.
"""

from __future__ import annotations

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from activity_dags.pipelines import Pipeline

CONNECTION = "spark"
MASTER = "ACTIVITY_SPARK_MASTER"


def master(pipeline: Pipeline) -> str | None:
    """Return the Spark master of a pipeline's connection; None when there is no such connection."""
    try:
        connection = BaseHook.get_connection(pipeline.id(CONNECTION))
    except AirflowNotFoundException:
        return None
    return f"{connection.host}:{connection.port}" if connection.port else connection.host


def settings(pipeline: Pipeline) -> dict[str, str]:
    """Return what a command that starts Spark gets besides its pipeline's settings."""
    return {MASTER: named} if (named := master(pipeline)) else {}
