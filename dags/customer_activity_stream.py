"""Keeps the streams running: starts the driver, watches it in a deferred task, restarts it.

### Reads
The topics `purchase-events` and `customer-profile-state`.

### Output
The Delta tables of bronze, silver and gold, and the view topic. Every quarter of an hour an event of the asset
`customer_activity` reports gold's version, rows and freshness.

### Impact of failure
Gold and the view stay as they are; nothing is lost and nothing is counted twice. After a failure the next run
starts by itself; after three in a row the DAG is paused.

### Runbook
The task `driver` is *deferred* while all is well and occupies no worker slot. Its log shows the driver's state every
minute, and the reason for each restart. Clear it to restart the driver; pause the DAG to stop it. The connection
`customer_activity_spark` names the Spark master whose executors the driver uses: docs/CLUSTERS.md. The pipeline's
setting `ACTIVITY_STREAMS` names the optional streams that run with the others (windows and their topics):
docs/WINDOWS.md; clear the task when it has changed.
Runbooks: docs/OPERATIONS.md.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from activity_dags.conventions import arguments_of, gold
from activity_dags.driver import DriverOperator
from activity_dags.pipelines import declared

for pipeline in declared():
    with DAG(
        **arguments_of(pipeline, "stream", __doc__, tag="streaming"),
        description="Keeps the streams running: starts the driver, watches it, restarts it",
        schedule="@continuous",
        # Without one the first run and the second are of the same moment, and Airflow never makes the second.
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        max_consecutive_failed_dag_runs=3,  # then it is paused, until somebody has looked
    ):
        DriverOperator(
            pipeline=pipeline,
            task_id="driver",
            shift=timedelta(minutes=15),
            gold=gold(pipeline),
            retries=3,  # of a worker that died; failures of the driver are counted by the task itself
            retry_delay=timedelta(seconds=10),
        )
