"""Marks tests by the folder they are in, and makes what several layers share: settings, and one Spark session for all.

Unit tests import this, too, and no Spark: what brings it is imported where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import Phase

from customer_activity.settings import PREFIX, Settings
from customer_activity.streams import registry as _registry  # noqa: F401 - installs the streams

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `--hypothesis-profile=as-found`: a failure is shown as it was found, which takes minutes less than its shortest form.
hypothesis.settings.register_profile("as-found", phases=[phase for phase in Phase if phase is not Phase.shrink])

LAYERS = ("unit", "component", "spark", "integration", "end_to_end", "drills")


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


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings of a deployment that has nothing yet, and whose broker does not answer."""
    return Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run", kafka_bootstrap_servers="localhost:1")


@pytest.fixture
def deployment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Have the command line load the same settings: they are what the environment says, and nothing else is."""
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
    for variable, value in settings.environment().items():
        monkeypatch.setenv(variable, value)
    return settings


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start the product's own session, once."""
    from customer_activity.engine import session  # noqa: PLC0415 - brings pyspark

    started = session.start(Settings(driver_memory="2g"), "tests")
    yield started
    started.stop()
