"""A batch too large for one process goes through Spark's workers, and ends in the same rows and the same accounting."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from customer_activity.catalog import Table
from customer_activity.lake import delta, microbatch
from customer_activity.settings import Settings
from support.pipeline import Pipeline
from support.records import NOW_MS, PURCHASES, Record, profile, purchase, tombstone
from support.streams import Query

HISTORY = [
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


def outcome(pipeline: Pipeline) -> dict[str, Any]:
    for records in HISTORY:
        pipeline.send(*records)
        pipeline.run()
    rows = {
        table.label: [{k: v for k, v in row.items() if k not in WRITTEN} for row in pipeline.rows(table)]
        for table in Table
    }
    counts = [
        {topic: dict(found) for topic, found in batch.counts.items()}
        for query in (Query.BRONZE, Query.SILVER)
        for batch in pipeline.batches[query]
    ]
    view = {key: {k: v for k, v in row.items() if k != "viewVersion"} for key, row in pipeline.view.latest().items()}
    return {"rows": {label: sorted(found, key=str) for label, found in rows.items()}, "counts": counts, "view": view}


def test_large_batches_end_in_the_rows_of_small_ones(
    spark: SparkSession,
    settings: Settings,
    planned: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    small = outcome(planned)
    large_settings = settings.model_copy(update={"lake": f"{settings.lake}-large"})
    delta.ensure_tables(large_settings.lake)
    monkeypatch.setattr(microbatch, "SMALL_BATCH_BYTES", -1)
    monkeypatch.setattr(microbatch, "SMALL_BATCH_ROWS", -1)  # where Spark does not know the bytes

    large = outcome(Pipeline(spark, large_settings))

    assert large == small
    assert len(small["view"]) == 6
