"""Audit records: who changed what in a lake by hand, when and why; one file for each action in its `_audit` folder."""

from __future__ import annotations

import getpass
import json
from datetime import datetime
from typing import Any

from customer_activity.storage.filesystem import write_whole


def append(lake: str, now: datetime, what: str, query: str, reason: str, **details: Any) -> None:
    """Record an action."""
    entry = {
        "at": now.isoformat(timespec="milliseconds"),
        "by": getpass.getuser(),
        "what": what,
        "query": query,
        "reason": reason,
        **details,
    }
    name = f"{now:%Y%m%dT%H%M%S%fZ}-{what}-{query}.json"
    write_whole(f"{lake}/_audit/{name}", json.dumps(entry, indent=2).encode())
