"""Builds silver and gold from bronze once more, beside the live ones, and compares them row by row.

### Reads
Bronze at the version that gold has seen; silver and gold at the versions that follow from it. The streams go on.

### Output
The task's log: rows that only one side has, columns with other values and how often, a few keys. Nothing live changes.

### Impact of failure
A failed `compare` whose last line counts rows says that silver or gold is not what bronze gives with the code that is
installed: somebody changed a table, or a rule was changed since. Anything else is said in words.

### Runbook
`activity show CUSTOMER` tells what is known of a key; `activity quality` which rule it breaks; `activity verify` what
Kafka says. Symptoms and what to do: docs/OPERATIONS.md.
"""

from __future__ import annotations

from airflow.sdk import DAG, Param

from activity_dags.alerts import alert
from activity_dags.rebuilding import RebuildOperator


def moment(description: str) -> Param:
    """Return a field for a time that may be left empty."""
    return Param(None, type=["null", "string"], format="date-time", description=description)


with DAG(
    dag_id="customer_activity_rebuild",
    description="Builds silver and gold once more beside the live ones, and compares them row by row",
    schedule=None,
    max_active_runs=1,
    catchup=False,
    tags=["customer-activity", "maintenance"],
    doc_md=__doc__,
    default_args={"on_failure_callback": alert},
    params={
        "customers": Param([], type="array", items={"type": "string"}, description="One a line; everybody when empty."),
        "since": moment("Only customers with a record from then on."),
        "until": moment("Only customers with a record before then."),
    },
):
    RebuildOperator(task_id="compare")
