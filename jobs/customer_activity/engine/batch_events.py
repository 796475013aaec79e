"""What is logged of a batch: a line that a person reads in a task's log, and all of it as fields."""

from __future__ import annotations

from typing import Any

from customer_activity.engine.logs import log
from customer_activity.lake.microbatch import MicroBatch

TOLD_SHARE = 0.1  # of a batch's time: shorter phases are not in the line


def tell(batch: MicroBatch, seconds: float) -> None:
    """Log a finished batch.

    `silver batch 3: 1,020 rows in 2.50 s (compute 1.90, commit 0.40), in the driver: 1,020 rows are few`
    """
    phases = {name: millis for name, millis in batch.phases.items() if millis >= TOLD_SHARE * seconds * 1000}
    details = ", ".join(f"{name} {millis / 1000:.2f}" for name, millis in phases.items())
    log.info(
        "%s batch %d: %s rows in %.2f s%s%s",
        batch.query,
        batch.batch_id,
        f"{batch.rows:,}",
        seconds,
        f" ({details})" if details else "",
        "" if batch.placement is None else f", {batch.placement}",
        extra=fields(batch, seconds),
    )


def fields(batch: MicroBatch, seconds: float) -> dict[str, Any]:
    """Return what a batch's event has, by the names of `logs.FIELDS`."""
    found: dict[str, Any] = {
        "query": batch.query,
        "batch": batch.batch_id,
        "rows": batch.rows,
        "seconds": round(seconds, 3),
        "phases": {name: round(millis, 1) for name, millis in batch.phases.items()},
    }
    if batch.placement is not None:
        found |= {"place": batch.placement.place.value, "why": batch.placement.why}
    if batch.ranges:
        found["offsets"] = {
            topic: {str(partition): [begin, end] for partition, (begin, end) in ranges.items() if begin < end}
            for topic, ranges in batch.ranges.items()
            if any(begin < end for begin, end in ranges.values())
        }
    if batch.versions:
        found["versions"] = {table.label: list(versions) for table, versions in batch.versions.items()}
    if batch.written:
        found["written"] = {table.label: version for table, version in batch.written.items()}
    return found
