"""What the DAGs of a pipeline have in common, and what DAGs of other teams can wait for."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset

from activity_dags.alerts import alerts_of
from activity_dags.pipelines import Pipeline


def arguments_of(pipeline: Pipeline, kind: str, page: str | None, *, tag: str) -> dict[str, Any]:
    """Return a DAG's id, tags, page and alerts: one run at a time, and none for the past."""
    return {
        "dag_id": pipeline.id(kind),
        "max_active_runs": 1,
        "catchup": False,
        "tags": [pipeline.name, tag],
        "doc_md": pipeline.page(page),
        "default_args": {"on_failure_callback": alerts_of(pipeline)},
    }


def gold(pipeline: Pipeline) -> Asset:
    """Return the table of current rows, one of each pipeline."""
    return Asset(pipeline.prefix, uri=f"x-{pipeline.name}://gold/customer_activity")
