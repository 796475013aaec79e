"""A lake of its own for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from customer_activity.lake import delta
from customer_activity.settings import Settings
from support.pipeline import Pipeline, copied_lake
from support.quick_pipeline import QuickPipeline


@pytest.fixture(scope="session")
def empty_lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the tables once; a test takes a copy."""
    lake = tmp_path_factory.mktemp("lake")
    delta.ensure_tables(str(lake))
    return lake


@pytest.fixture
def settings(empty_lake: Path, tmp_path: Path) -> Settings:
    """Return settings with a lake of the test's own."""
    return copied_lake(empty_lake, tmp_path)


@pytest.fixture
def pipeline(spark: SparkSession, settings: Settings) -> Pipeline:
    """Return all queries on an empty lake, each reading as it does where a batch is small."""
    return QuickPipeline(spark, settings)


@pytest.fixture
def planned(spark: SparkSession, settings: Settings) -> Pipeline:
    """Return the same with Spark's plans, and with rows as Spark reads them."""
    return Pipeline(spark, settings)
