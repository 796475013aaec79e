"""Backfills from both topics on a schedule, for teams that do not want a driver that is always on.

### Reads
The topics `purchase-events` and `customer-profile-state`, from where the last run stopped.

### Output
The same tables and view topic as the stream DAG, by the same streams (`activity stream --available-now`).

### Impact of failure
Gold and the view stay as they are; the next run continues where this one stopped.

### Runbook
Either this DAG or `customer_activity_stream`, never both: only one driver may write a table, and a run of this
DAG ends with *another driver holds the query* while the stream runs. Pause the other first.
Runbooks: docs/OPERATIONS.md.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from activity_dags.command import ActivityOperator
from activity_dags.conventions import arguments_of, gold
from activity_dags.pipelines import declared

for pipeline in declared():
    with DAG(
        **arguments_of(pipeline, "batch", __doc__, tag="batch"),
        description="Backfill: processes all available input through every stream, once an hour",
        schedule="@hourly",
    ):
        ActivityOperator(
            pipeline=pipeline,
            task_id="drain",
            arguments=["stream", "--available-now"],
            on_spark=True,
            outlets=[gold(pipeline)],
            retries=3,
            retry_delay=timedelta(minutes=1),
        )
