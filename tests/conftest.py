"""Marks tests by the folder they are in, and starts what several layers share: one Spark session for all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from pyspark.sql import SparkSession

from customer_activity import session
from customer_activity.settings import Settings

# `--hypothesis-profile=as-found`: a failure is shown as it was found, which takes minutes less than its shortest form.
settings.register_profile("as-found", phases=[phase for phase in Phase if phase is not Phase.shrink])

LAYERS = ("unit", "spark", "integration", "end_to_end", "drills")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its layer."""
    root = Path(__file__).parent
    for item in items:
        layer = item.path.relative_to(root).parts[0]
        if layer in LAYERS:
            item.add_marker(getattr(pytest.mark, layer))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start the product's own session, once."""
    started = session.start(Settings(driver_memory="2g"), "tests")
    yield started
    started.stop()
