"""Queries that drain without Spark leave the checkpoints that Spark's own leave: tests of much else go by them."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from support.damages import HISTORY
from support.micro_batches import without_spark
from support.pipeline import copied_lake
from support.streaming import STREAMS, StreamingPipeline
from support.streams import Query
from support.without_jvm import without_jvm

Batches = dict[Query, list[OffsetRange | None]]


def batches(spark: SparkSession, empty_lake: Path, folder: Path) -> Batches:
    """Let streams drain twice, a third time with nothing new; return which batches their checkpoints have."""
    pipeline = StreamingPipeline(spark, copied_lake(empty_lake, folder))
    for records in (HISTORY[0], HISTORY[1], []):
        pipeline.land(*records)
        pipeline.stream()
    found: Batches = {}
    for query in STREAMS:
        state = checkpoint.state(pipeline.settings.lake, query)
        assert state is not None
        assert state.planned == state.committed
        found[query] = [checkpoint.cut(pipeline.settings.lake, query, number) for number in range(10)]
    return found


def test_batches_are_cut_as_spark_cuts_them(spark: SparkSession, empty_lake: Path, tmp_path: Path) -> None:
    sparks = batches(spark, empty_lake, tmp_path / "spark")
    with without_jvm() as nobody, without_spark():
        ours = batches(nobody, empty_lake, tmp_path / "none")  # type: ignore[arg-type]
    assert ours == sparks
    assert any(cut is not None for cut in ours[Query.ACTIVITY])
