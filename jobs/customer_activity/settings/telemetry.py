"""Settings of what a process tells of itself: its log, and lineage."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from customer_activity.settings.pipeline import Pipeline

RunId = Annotated[str, StringConstraints(pattern=r"^.+/.+/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class LogsAndLineage(Pipeline):
    """How logs are written, and whether lineage is told."""

    log_format: Literal["text", "json"] = Field(
        "text", description="Logs as text for people, or as one JSON object an event; the driver's JVM follows."
    )
    lineage: bool = Field(
        True,  # noqa: FBT003
        description="Tell lineage as OpenLineage events: to a folder in `ACTIVITY_RUN_DIR`, or where OpenLineage's own "
        "`OPENLINEAGE_URL` or `OPENLINEAGE_CONFIG` say.",
    )
    lineage_namespace: str | None = Field(
        None,
        min_length=1,
        description="Namespace of the pipeline's jobs in OpenLineage; the pipeline's name when not set.",
    )
    lineage_parent: RunId | None = Field(
        None,
        description="OpenLineage run that started this process, `namespace/job/run id`; Airflow's tasks set it.",
    )
    lineage_root: RunId | None = Field(
        None, description="OpenLineage run at the top of that one, in the same form: Airflow's DAG run."
    )
    lineage_seconds: float = Field(
        60.0,
        ge=1,
        description="Seconds between two events of a stream that runs; its begin and its end have their own.",
    )
