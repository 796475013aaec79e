"""Keeps tables and disk small: compaction, expired files, logs, old checkpoints.

### Reads
The tables' logs.

### Output
The same rows in fewer files; expired files and old checkpoints are gone. The log has each table's files and bytes
before and after. What a reader of the change feed may still need stays, and the log names the reader.

### Impact of failure
Tables keep their small files: reading gets slower and the disk fuller, and nothing else.

### Runbook
While the stream runs its driver does this between two batches, and the streams do it every few minutes by themselves;
otherwise the task does it. A table is never written by two. Run it by hand when a disk fills up.
Quarantine is kept: `activity quarantine list` shows what is in it.
Symptoms and what to do: docs/OPERATIONS.md.
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
        description="Compacts the tables and removes what is expired, once a night",
        schedule="17 3 * * *",
    ):
        ActivityOperator(
            pipeline=pipeline, task_id="maintain", arguments=["maintain"], retries=2, retry_delay=timedelta(minutes=10)
        )
