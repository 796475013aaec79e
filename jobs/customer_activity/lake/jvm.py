"""The door to Java, for what Spark's Python API lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView
    from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> JVMView:
    """Return a session's view of its JVM.

    Raises:
        RuntimeError: the session has ended.
    """
    view = spark._jvm  # noqa: SLF001
    if view is None:
        raise RuntimeError("the Spark session has ended")
    return view
