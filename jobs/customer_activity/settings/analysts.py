"""Settings of what analysts and other readers of gold get: the key of masked values, and how far back feeds reach."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from customer_activity.settings.optional import OptionalStreams

OWN_KEY = "mask_key"  # in the folder of running processes


class Analysts(OptionalStreams):
    """What readers of gold outside the pipeline get."""

    mask_key_file: Path | None = Field(
        None,
        description="File with the key that names, e-mail addresses and addresses are hashed with for "
        "`gold.customer_activity_masked`: one line of at least 32 characters; when not set, `mask_key` in "
        "`ACTIVITY_RUN_DIR`, where `activity run` has made one. With a key the stream `masked` is on.",
    )

    change_feed_hours: float = Field(
        24.0,
        ge=0,
        le=24 * 366,
        description="Hours for which readers outside the pipeline can read every change of gold's current rows from "
        "their change data feeds; maintenance removes no log entry and no file before.",
    )

    @field_validator("mask_key_file")
    @classmethod
    def _absolute_key_file(cls, file: Path | None) -> Path | None:
        return None if file is None else file.expanduser().resolve()
