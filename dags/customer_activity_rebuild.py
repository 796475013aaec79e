"""Builds silver and gold from bronze once more, beside the live ones, compares row by row, corrects them if asked.

### Reads
Bronze at the version that gold has seen; silver and gold at the versions that follow from it. The streams go on. With
`apply` or `undo`: all that bronze has; **pause `customer_activity_stream` first** and wait until its driver has
stopped, because a correction refuses to begin beside it.

### Output
The task's log: rows that only one side has, columns with other values and how often, a few keys. Nothing live changes,
unless `apply` says so: then the rows that differ are replaced, in one commit a table, and publish sends those of gold
when the stream goes on. The last line names the correction; `undo` takes it back in the same way.

### Impact of failure
A failed `compare` whose last line counts rows says that silver or gold is not what bronze gives with the code that is
installed: somebody changed a table, or a rule was changed since. A correction that was interrupted keeps the streams
from starting: clear the task, and it is finished. Anything else is said in words.

### Runbook
`activity show CUSTOMER` tells what is known of a key; `activity quality` which rule it breaks; `activity verify` what
Kafka says. `activity rebuild --list` names the corrections that are kept, `--drop` removes what is kept of one.
Symptoms and what to do: docs/OPERATIONS.md.
"""

from __future__ import annotations

from airflow.sdk import DAG

from activity_dags.conventions import arguments_of
from activity_dags.pipelines import declared
from activity_dags.rebuilding import RebuildOperator, form

for pipeline in declared():
    with DAG(
        **arguments_of(pipeline, "rebuild", __doc__, tag="maintenance"),
        description="Builds silver and gold once more beside the live ones, compares row by row, corrects if asked",
        schedule=None,
        params=form(),
    ):
        RebuildOperator(pipeline=pipeline, task_id="compare")
