"""Marks tests by the folder they are in, and starts what several layers share: one Spark session for all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from pyspark.sql import SparkSession

from customer_activity.engine import session
from customer_activity.settings import Settings
from customer_activity.streams import registry as _registry  # noqa: F401 - installs the streams

# `--hypothesis-profile=as-found`: a failure is shown as it was found, which takes minutes less than its shortest form.
settings.register_profile("as-found", phases=[phase for phase in Phase if phase is not Phase.shrink])

LAYERS = ("unit", "spark", "integration", "end_to_end", "drills")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Have the long form of the model on request."""
    parser.addoption("--lives", type=int, default=0, help="how many lives the model lives; 2000 takes most of an hour")
    parser.addoption("--life-processes", type=int, default=2, help="in how many processes, where they are many")
    parser.addoption("--visits-page", help="page in which the model's table of visits is replaced")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its layer."""
    root = Path(__file__).parent
    for item in items:
        layer = item.path.relative_to(root).parts[0]
        if layer in LAYERS:
            item.add_marker(getattr(pytest.mark, layer))


@pytest.fixture(autouse=True)
def where_s3_is() -> Iterator[None]:
    """Take back what a test has told this process about S3: the next test has a store of its own."""
    before = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    yield
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start the product's own session, once."""
    started = session.start(Settings(driver_memory="2g"), "tests")
    yield started
    started.stop()
