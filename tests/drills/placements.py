"""The ways to place batches that drills go through, one driver after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Placed = Mapping[str, Any]  # settings

PLACED: tuple[Placed, ...] = (
    {"placement": "auto"},
    {"placement": "executors"},
    {"placement": "driver"},
    {"placement": "auto", "local_state_gb": 0.0},
)
