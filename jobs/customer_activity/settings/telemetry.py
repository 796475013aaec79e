"""Settings of what a process tells of itself: its log, and lineage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from customer_activity.settings.pipeline import Pipeline


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
    lineage_seconds: float = Field(
        60.0,
        ge=1,
        description="Seconds between two events of a stream that runs; its begin and its end have their own.",
    )
