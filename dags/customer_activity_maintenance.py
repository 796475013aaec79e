"""Table maintenance: compaction, VACUUM, log clean-up, old checkpoints.

### Reads
The tables' logs.

### Output
The same rows in fewer files, without expired files and old checkpoints. The task's log shows each table's files and
bytes before and after. Files that a reader of the change data feed may still need stay, and the log names the reader.

### Impact of failure
Tables keep their small files: reads get slower and the disk fills up, nothing else.

### Runbook
While the stream DAG runs, its driver does this work between two batches (and on its own every few minutes);
otherwise the task does it. A table never has two writers. Trigger the DAG manually when a disk fills up.
Quarantine is never expired: `activity quarantine list` shows what is in it.
Runbooks: docs/OPERATIONS.md.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from activity_dags.command import ActivityOperator
from activity_dags.conventions import arguments_of
from activity_dags.pipelines import declared

for pipeline in declared():
    with DAG(
        **arguments_of(pipeline, "maintenance", __doc__, tag="maintenance"),
        description="Table maintenance: compaction and VACUUM, once a night",
        schedule="17 3 * * *",
    ):
        ActivityOperator(
            pipeline=pipeline, task_id="maintain", arguments=["maintain"], retries=2, retry_delay=timedelta(minutes=10)
        )
