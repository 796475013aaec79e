"""Marks tests by the folder they are in, and makes what several layers share: settings, and one Spark session for all.

Unit tests import this, too, and no Spark: what brings it is imported where it is used.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import Phase

from customer_activity.settings import PREFIX, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# `--hypothesis-profile=as-found`: a failure is shown as it was found, which takes minutes less than its shortest form.
hypothesis.settings.register_profile("as-found", phases=[phase for phase in Phase if phase is not Phase.shrink])

LAYERS = ("drills", "integration", "spark", "component", "unit", "end_to_end")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Have the long forms on request: of the tests that are marked, and of the model."""
    parser.addoption("--nightly", action="store_true", help="run the tests that are marked nightly, too")
    parser.addoption("--lives", type=int, default=0, help="how many lives the model lives; 2000 takes most of an hour")
    parser.addoption("--life-processes", type=int, default=2, help="in how many processes, where they are many")
    parser.addoption("--visits-page", help="page in which the model's table of visits is replaced")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its layer, leave out what is nightly unless it is asked for, and have what takes long first.

    So the last to end, where two processes share the tests, are tests of milliseconds.
    """
    root = Path(__file__).parent
    for item in items:
        item.add_marker(getattr(pytest.mark, item.path.relative_to(root).parts[0]))
    if not config.getoption("nightly"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("nightly")])
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    items.sort(key=lambda item: LAYERS.index(item.path.relative_to(root).parts[0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what each layer took, set-up and teardown included."""
    seconds = Counter[str]()
    for outcome in ("passed", "failed", "error", ""):
        for report in terminalreporter.stats.get(outcome, []):
            seconds.update({layer: report.duration for layer in LAYERS if layer in report.keywords})
    for layer, taken in seconds.items():
        terminalreporter.write_line(f"{layer}: {taken / 60:.1f} min")


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
    """Start the product's own session, once, and look often whether a query has ended: each drain waits for seven."""
    from customer_activity import application  # noqa: PLC0415 - brings pyspark
    from customer_activity.engine import session  # noqa: PLC0415 - likewise

    started = session.start(Settings(driver_memory="2g"), "tests")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(application, "WATCH_SECONDS", 0.1)
        yield started
    started.stop()
