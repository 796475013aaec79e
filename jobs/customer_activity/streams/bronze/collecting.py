"""Bring a batch's records to this process when they are few: a plan, a job and a shuffle cost more than its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from customer_activity.lake import jvm, microbatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNKNOWN_BYTES = 1 << 62  # Spark's default for a source that does not tell its size is near the greatest long

# Generated code pays from some hundred thousand rows on; below, compiling it costs more than interpreting the plan.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}


def collected(frame: DataFrame, rows: int | None = None, *, is_sure: bool = False) -> pa.Table | None:
    """Bring a frame's rows to this process when they are few; None when they are many.

    The plans of whatever is done with them in Spark are interpreted when they are few and compiled when they are not.

    Args:
        frame: what to bring.
        rows: how many there are, where that is known.
        is_sure: that they are to be taken for many.
    """
    session = frame.sparkSession
    few = False if is_sure else _is_small(frame, rows)
    for key, value in (COMPILED if few is False else INTERPRETED).items():
        session.conf.set(key, value)
    if few:
        return frame.toArrow()
    if few is None:  # neither rows nor bytes are known: take one more than a small batch has
        head = frame.limit(microbatch.SMALL_BATCH_ROWS + 1).toArrow()
        if head.num_rows <= microbatch.SMALL_BATCH_ROWS:
            return head
        for key, value in COMPILED.items():
            session.conf.set(key, value)
    return None


def _is_small(frame: DataFrame, rows: int | None) -> bool | None:
    """Whether a frame is small, from its row count or the size of its files; None when neither is known."""
    if rows is not None:
        return rows <= microbatch.SMALL_BATCH_ROWS
    size = jvm.planned_bytes(frame)
    if size >= UNKNOWN_BYTES:
        return None
    return size <= microbatch.SMALL_BATCH_BYTES
