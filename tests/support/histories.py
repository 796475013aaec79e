"""Records with all that a batch may meet, and what two runs of them have in common."""

from __future__ import annotations

from typing import Any

from customer_activity import topology
from support.pipeline import Pipeline
from support.records import NOW_MS, PURCHASES, Record, profile, purchase, tombstone

REPEATS = [
    [
        *[profile(f"C-{n}") for n in range(6)],
        *[purchase(f"P-{n}", f"C-{n % 8}", f"{n}.10", sent=NOW_MS + n) for n in range(40)],
        purchase("P-3", "C-3", "3.10"),  # repeated in the batch
        purchase("P-4", "C-4", "99.00"),  # and with other content
        Record(PURCHASES, b"B", b"?"),
    ],
    [
        purchase("P-5", "C-5", "5.10"),  # repeated in a later batch
        purchase("P-6", "C-6", "0.01"),  # and with other content
        *[purchase(f"P-{n}", "C-1", "1.00", sent=NOW_MS + n) for n in range(40, 50)],
        tombstone("C-2"),
        profile("C-7", updated=3_000, sent=NOW_MS + 99),
        profile("C-1", updated=1),  # stale
    ],
]
# When a row was written, and which version it got, differ between two runs of anything.
WRITTEN = ("ingested_at", "quarantined_at", "view_version")


def rows(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """Return all tables' rows, without what differs between two runs."""
    return {
        table.label: sorted(
            ({k: v for k, v in row.items() if k not in WRITTEN} for row in pipeline.rows(table)), key=str
        )
        for table in topology.tables()
    }
