"""Data quality: checks the lake against its rules, and verifies a sample of customers against Kafka.

### Reads
All tables at pinned versions, and all three topics. The streams are not disturbed. Runs are triggered by gold's asset
events and by time.

### Output
`judge`: `ops/quality_results` in the lake, the Data Docs, and the gate: a failed rule of severity `hold` shuts it. The
task's page links to the Data Docs.
`prove`, once an hour: a thousand customers, recomputed from the input, compared with silver, gold and the view.
`report`, once an hour: a page about the last day, beside the Data Docs; the task's page links to it.

### Impact of failure
A failed `judge` says which rules failed and by how much. While the gate is shut nothing is published to the view
topic, and nothing is lost. A failed `prove` lists what differs.

### Runbook
`activity quality` explains each rule with examples; `activity quality release --reason …` opens the gate.
Runbooks: docs/OPERATIONS.md, docs/QUALITY.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable, task

from activity_dags.command import ActivityOperator
from activity_dags.conventions import arguments_of, gold
from activity_dags.judging import JudgeOperator, ReportOperator
from activity_dags.pipelines import declared

for pipeline in declared():
    with DAG(
        **arguments_of(pipeline, "quality", __doc__, tag="quality"),
        description="Data quality: checks the lake against its rules, verifies a sample of customers against Kafka",
        schedule=AssetOrTimeSchedule(
            timetable=CronTriggerTimetable("0 * * * *", timezone="UTC"), assets=[gold(pipeline)]
        ),
    ):
        again: dict[str, Any] = {"retries": 2, "retry_delay": timedelta(minutes=1)}
        JudgeOperator(pipeline=pipeline, task_id="judge", **again)

        @task.short_circuit
        def on_the_hour(dag_run: Any = None) -> bool:
            """Let gold's events be judged only: a proof reads all that Kafka has."""
            return bool(dag_run.run_type != "asset_triggered")

        # Another sample every hour: its seed is the hour that the run is for.
        seed = "{{ dag_run.run_after.strftime('%Y%m%d%H') }}"
        prove = ActivityOperator(
            pipeline=pipeline, task_id="prove", arguments=["verify", "--sample", "1000", "--seed", seed], **again
        )
        on_the_hour() >> [prove, ReportOperator(pipeline=pipeline, task_id="report", **again)]
