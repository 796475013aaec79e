"""Settings of what analysts and other readers of gold get: the key of masked values, and how far back feeds reach."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator

from customer_activity.settings.optional import OptionalStreams


class Analysts(OptionalStreams):
    """What readers of gold outside the pipeline get."""

    mask_key_file: Path | None = Field(
        None,
        description="File with the key that names, e-mail addresses and addresses are hashed with for "
        "`gold.customer_activity_masked`: one line of at least 32 characters. Where it is set, the stream `masked` is "
        "on. `activity rebuild --stream masked` recomputes all hashes by another key.",
    )

    @field_validator("mask_key_file")
    @classmethod
    def _absolute_key_file(cls, file: Path | None) -> Path | None:
        return None if file is None else file.expanduser().resolve()

    @property
    def present(self) -> list[str]:
        """Names of the settings that have a value: some switch an optional stream on."""
        return [name for name, value in self if value is not None]
