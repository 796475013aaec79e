"""A batch too large for one process goes through Spark's workers, and ends in the same rows and the same accounting."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from customer_activity.lake import delta, microbatch
from customer_activity.settings import Settings
from support import histories
from support.pipeline import Pipeline
from support.streams import Query


def outcome(pipeline: Pipeline) -> dict[str, Any]:
    for records in histories.REPEATS:
        pipeline.send(*records)
        pipeline.run()
    counts = [
        {topic: dict(found) for topic, found in batch.counts.items()}
        for query in (Query.BRONZE, Query.SILVER)
        for batch in pipeline.batches[query]
    ]
    view = {key: {k: v for k, v in row.items() if k != "viewVersion"} for key, row in pipeline.view.latest().items()}
    return {"rows": histories.rows(pipeline), "counts": counts, "view": view}


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
