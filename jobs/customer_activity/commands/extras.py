"""What optional packages add to `activity`: today only the demonstration.

Production code imports nothing of such a package, so it is looked up by its name. That works from an installed wheel
and from a source tree alike; an entry point is known only once something was installed, and `spark-submit jobs/run.py`
runs without.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

PACKAGES = ("customer_activity.demo",)


@cache
def _tables() -> tuple[ModuleType, ...]:
    return tuple(import_module(f"{package}.commands") for package in PACKAGES if find_spec(package) is not None)


def commands() -> dict[str, str]:
    """Return where each command is written, by its name; one that is a group adds to a group of that name."""
    return {name: place for table in _tables() for name, place in table.COMMANDS.items()}


def checks() -> dict[str, Any]:
    """Return what `activity doctor` looks at besides, by name."""
    return {name: resolve_name(place) for table in _tables() for name, place in table.CHECKS.items()}
