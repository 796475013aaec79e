"""Whether the pipeline is still at work: a verification that found differences waits until it is not."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from customer_activity.catalog import Table
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input, lake

POLL_SECONDS = 0.5
QUIET_SECONDS = 5.0  # no driver in sight here: it may run on another machine, and then something changes soon
STATUS_AGE = timedelta(seconds=10)  # a running application writes its status every three seconds


def state(settings: Settings, tables: lake.Tables, topics: Iterable[str]) -> tuple[Any, ...]:
    """Return what changes whenever the pipeline does something: tables, the view topic, and further topics."""
    ends = (kafka_input.ends(settings, topic) for topic in (settings.view_topic, *topics))
    return lake.versions(tables), *(tuple(sorted(of_topic.items())) for of_topic in ends)


def has_moved(
    settings: Settings, wanted: Sequence[Table], topics: Collection[str], before: tuple[Any, ...], deadline: float
) -> bool:
    """Wait until the pipeline has written to tables or topics since `before`; False when it has not in time."""
    quiet_until = time.monotonic() + QUIET_SECONDS
    while time.monotonic() < deadline:
        if state(settings, lake.open_tables(settings, wanted), topics) != before:
            return True
        if time.monotonic() > quiet_until and not is_running(settings):
            return False
        time.sleep(POLL_SECONDS)
    return False


def is_running(settings: Settings) -> bool:
    """Whether a streaming application on this machine has written its status lately."""
    for path in (settings.run_dir / "status").glob("*.json"):
        try:
            status = json.loads(path.read_text(encoding="utf-8"))
            age = datetime.now(UTC) - datetime.fromisoformat(status["updated_at"])
        except (OSError, ValueError, KeyError, TypeError):  # none, or one from another version
            continue
        if status.get("state") in ("starting", "running") and age < STATUS_AGE:
            return True
    return False
