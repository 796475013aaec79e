"""Rebuilds silver and gold from bronze next to the live ones, compares them row by row, corrects them on request.

### Reads
Bronze at the version that gold has read; silver and gold at the matching versions. The streams keep running. With
`apply` or `undo`: all of bronze; **pause `customer_activity_stream` first** and wait until its driver has
stopped, because a correction is refused while it runs.

### Output
The task's log: rows that only one side has, columns that differ and how often, a few keys. Live tables change only
with `apply`: then the rows that differ are replaced, in one commit per table, and publish sends those of gold when
the stream continues. The last line names the correction; `undo` reverts it in the same way.

### Impact of failure
A failed `compare` whose last line counts rows means that silver or gold differs from what the installed code computes
from bronze: somebody changed a table, or a rule has changed since. An interrupted correction keeps the streams from
starting: clear the task to finish it. Other failures are explained in the log.

### Runbook
`activity show CUSTOMER` shows what is known about a key, `activity quality` which rule it breaks, `activity verify`
what Kafka has. `activity rebuild --list` lists the corrections that are kept, `--drop` removes what is kept of one.
Runbooks: docs/OPERATIONS.md.
"""

from __future__ import annotations

from airflow.sdk import DAG

from activity_dags.conventions import arguments_of
from activity_dags.pipelines import declared
from activity_dags.rebuilding import RebuildOperator, form

for pipeline in declared():
    with DAG(
        **arguments_of(pipeline, "rebuild", __doc__, tag="maintenance"),
        description="Rebuilds silver and gold next to the live ones, compares row by row, corrects on request",
        schedule=None,
        params=form(),
    ):
        RebuildOperator(pipeline=pipeline, task_id="compare")
