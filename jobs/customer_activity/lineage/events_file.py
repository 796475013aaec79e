"""The file that events go to where OpenLineage's own configuration names no other place, one a line."""

from __future__ import annotations

from pathlib import Path

from customer_activity.settings import Settings
from customer_activity.storage.filesystem import PRIVATE

MOST_BYTES = 32 << 20  # a day of all streams
FOLDER, FILE = "lineage", "events.jsonl"


def events_file(settings: Settings) -> Path:
    """Return where it is."""
    return settings.run_dir / FOLDER / FILE


def keep_short(file: Path, most: int = MOST_BYTES) -> None:
    """Rotate it when it has grown large: what was in it is in `<name>.1` then."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    if file.exists() and file.stat().st_size >= most:
        file.replace(file.with_name(f"{file.name}.1"))
