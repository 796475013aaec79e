"""At which size a stream's local state was given up: the next driver keeps none while as much is too much."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path


def note(folder: Path, name: str, tables: Mapping[str, str], size: float) -> None:
    """Note that state was given up.

    Args:
        folder: where a run folder has local state.
        name: of the stream.
        tables: the ids of the tables that were held, by label: the folder may come to be that of another lake.
        size: in bytes, that it had or would have had.
    """
    _place(folder, name).write_text(json.dumps({"bytes": size, "tables": tables}), encoding="utf-8")


def at(folder: Path, name: str, tables: Mapping[str, str]) -> float:
    """Return at how many bytes the state of these tables was given up; -1 where it was not."""
    try:
        told = json.loads(_place(folder, name).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return -1.0
    if isinstance(told, int | float):  # the release before noted the size alone: as a rule it is the same lake
        return told
    return float(told["bytes"]) if isinstance(told, dict) and told.get("tables") == tables else -1.0


def forget(folder: Path, name: str) -> None:
    """Note nothing any more."""
    _place(folder, name).unlink(missing_ok=True)


def _place(folder: Path, name: str) -> Path:
    return folder / f"{name}.given-up"
