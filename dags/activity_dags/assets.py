"""What DAGs of other teams can wait for."""

from __future__ import annotations

from airflow.sdk import Asset

from activity_dags.pipelines import Pipeline


def gold(pipeline: Pipeline) -> Asset:
    """Return the table of current rows, one of each pipeline."""
    return Asset(pipeline.prefix, uri=f"x-{pipeline.name}://gold/customer_activity")
