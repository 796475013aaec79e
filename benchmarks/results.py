"""Results: several runs of a scenario as medians and spread, and the file that keeps them."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from customer_activity.settings import PROJECT

FILE_NAME = "results.json"
OK = "ok"

Result = dict[str, Any]


def figure(runs: Iterable[Mapping[str, Any]], *path: str) -> Result:
    """Return median, lowest and highest of one figure over the runs that count.

    A run in which the figure was not reached (None) is worse than any other; when it is the median, so is the median.
    """
    values = [_at(run, path) for run in runs if run["status"] == OK]
    known = sorted(value for value in values if value is not None)
    missing = len(values) - len(known)
    if not values:
        return {"median": None, "low": None, "high": None, "runs": 0}
    ranked = [*known, *[float("inf")] * missing]
    median = statistics.median(ranked)
    return {
        "median": None if median == float("inf") else round(median, 3),
        "low": known[0] if known else None,
        "high": None if missing else known[-1],
        "runs": len(values),
    }


def _at(run: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    value: Any = run
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def status(runs: Iterable[Mapping[str, Any]]) -> str:
    """Return `ok` when every run counts, otherwise the first status that says why not."""
    return next((str(run["status"]) for run in runs if run["status"] != OK), OK)


def record(folder: Path, name: str, result: Result, options: Mapping[str, Any]) -> Path:
    """Put a scenario's result into the results file, in place of an older one of the same name."""
    path = folder / FILE_NAME
    results = load(path) if path.exists() else {"scenarios": {}}
    results["machine"] = machine()
    results["scenarios"][name] = {
        **result,
        "commit": commit(),
        "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "options": dict(options),
    }
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(results, indent=1, default=str) + "\n", encoding="utf-8")
    unfinished.replace(path)
    return path


def load(path: Path) -> Result:
    """Read a results file."""
    return dict(json.loads(path.read_text(encoding="utf-8")))


def commit() -> str:
    """Return the commit that was measured; `+` says that files were changed besides."""
    head = _first_line("git", "rev-parse", "--short", "HEAD")
    is_changed = bool(_first_line("git", "status", "--porcelain", "--untracked-files=no"))
    return f"{head or 'unknown'}{'+' * is_changed}"


def machine() -> Result:
    """Return what the figures depend on besides the code."""
    return {
        "cores": os.cpu_count(),
        "memory_gigabytes": round(psutil.virtual_memory().total / 1e9, 1),
        "processor": _processor(),
        "java": _first_line("java", "-version"),
        "python": platform.python_version(),
        "spark": version("pyspark"),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _first_line(*command: str) -> str:
    """Return the first line that a command prints, on either stream; nothing when it fails."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    return next(iter((answer.stdout or answer.stderr).splitlines()), "") if answer.returncode == 0 else ""
