"""Where the driver runs: the connection `customer_activity_spark` says, as it does for any Spark job of Airflow's.

Beside the worker (`local[*]`, `spark://…`, or no such connection) the driver is a process that a trigger watches. On
YARN and Kubernetes the cluster has it, and Airflow's own operator submits it, finds it again and waits for it.
"""

from __future__ import annotations

from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import BaseHook, task
from airflow.sdk.exceptions import AirflowNotFoundException

CONNECTION = "customer_activity_spark"
CLUSTERS = ("yarn", "k8s://")
BESIDE, IN_CLUSTER = "driver", "driver_in_cluster"  # the tasks
APPLICATION = Path(__file__).resolve().parents[2] / "jobs" / "run.py"


def master() -> str | None:
    """Return the Spark master of the connection; None when there is no such connection."""
    try:
        connection = BaseHook.get_connection(CONNECTION)
    except AirflowNotFoundException:
        return None
    return f"{connection.host}:{connection.port}" if connection.port else connection.host


@task.branch
def place() -> str:
    """Choose the task for the place that the connection names."""
    return IN_CLUSTER if (master() or "").startswith(CLUSTERS) else BESIDE


def in_cluster() -> SparkSubmitOperator:
    """Return the task for a driver that a cluster has; it holds a worker while it waits."""
    return SparkSubmitOperator(
        task_id=IN_CLUSTER,
        conn_id=CONNECTION,
        application=str(APPLICATION),
        application_args=["stream"],
        name="customer-activity",
        deploy_mode="cluster",
        durable=True,
    )
