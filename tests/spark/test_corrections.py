"""Spark's own queries go on behind a correction, and behind its undoing: on the checkpoints that these have written.

All else about corrections is in tests/component/test_corrections.py, whose queries drain without Spark.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from customer_activity.settings import Settings
from support.correcting import applied, rows_of, undone
from support.corrections import count_wrongly
from support.records import profile, purchase
from support.streaming import StreamingPipeline


@pytest.fixture
def streaming(spark: SparkSession, settings: Settings) -> StreamingPipeline:
    """Return a lake that streams have read to its end."""
    pipeline = StreamingPipeline(spark, settings)
    pipeline.land(profile("C-1"), profile("C-2"), purchase("P-1", "C-1", "1.00"), purchase("P-2", "C-2", "2.00"))
    pipeline.stream()
    pipeline.publish()
    return pipeline


def test_what_differs_is_replaced_and_alone_reaches_consumers(streaming: StreamingPipeline) -> None:
    count_wrongly(streaming.settings.lake, "P-1")
    streaming.stream()
    assert streaming.publish().keys() == {"C-1"}

    forward = applied(streaming).correction
    assert forward is not None
    assert rows_of(forward) == {"silver.purchases": (1, 0), "gold.activity_changes": (0, 1)}
    streaming.land(purchase("P-3", "C-2", "3.00"), purchase("P-1", "C-1", "1.00"))
    streaming.stream()
    assert {key: (row or {})["totalAmount"] for key, row in streaming.publish().items()} == {"C-1": 1.0, "C-2": 5.0}

    assert undone(streaming, forward.run).correction is not None
    streaming.land(purchase("P-4", "C-1", "4.00"))
    streaming.stream()
    assert {key: (row or {})["totalAmount"] for key, row in streaming.publish().items()} == {"C-1": 105.0}
