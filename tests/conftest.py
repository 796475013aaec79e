"""Marks and orders tests, and makes what several layers share: settings, and one Spark session for all.

Unit tests import this, too, and no Spark: what brings it is imported where it is used.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import Phase

from customer_activity import topology
from customer_activity.settings import PREFIX, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Assertions of what tests share say what they saw, too.
pytest.register_assert_rewrite("support")
# How long an example takes is the machine's affair, and no test's.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")
# `--hypothesis-profile=as-found`: a failure is shown as it was found, which takes minutes less than its shortest form.
hypothesis.settings.register_profile(
    "as-found", deadline=None, phases=[phase for phase in Phase if phase is not Phase.shrink]
)

ROOT = Path(__file__).parent
# No JVM of a test lives long enough for its optimising compiler to earn back what it costs, which is a fifth of the
# processor time of all. Nightly they have the product's own options alone.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
# A test writes hundreds of small files, and none has to outlive a machine: in memory, where there is room for those of
# a whole run several times over. Nightly they are on a disk, as a lake is.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - pytest makes folders of its own in it, which nobody else can read
ROOM_BYTES = 8 << 30
LAYERS = ("drills", "integration", "spark", "component", "unit", "end_to_end")
DURATIONS = ROOT / "durations.json"  # of files of tests that take long: seconds, from one or several runs
LONG_SECONDS = 5


def pytest_addoption(parser: pytest.Parser) -> None:
    """Have the long forms on request: of the tests that are marked, and of the model."""
    parser.addoption("--nightly", action="store_true", help="run the tests that are marked nightly, too")
    parser.addoption("--lives", type=int, default=0, help="how many lives the model lives; 2000 takes most of an hour")
    parser.addoption("--life-processes", type=int, default=2, help="in how many processes, where they are many")
    parser.addoption("--note-durations", action="store_true", help="note which files of tests took long")
    parser.addoption("--visits-page", help="page in which the model's table of visits is replaced")


def pytest_configure(config: pytest.Config) -> None:
    """Have every JVM that a test starts, in whatever process, do without what costs more than it brings here.

    Folders of tests are in memory; so says pytest's own variable, which whoever sets it keeps.
    """
    if config.getoption("nightly"):
        return
    os.environ.setdefault("JDK_JAVA_OPTIONS", JAVA_OPTIONS)
    if IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its layer, leave out what is nightly unless it is asked for, and have long files first.

    `--dist loadfile --no-loadscope-reorder` hands out files in this order, each to the process that is through first:
    the last ones are of milliseconds, so that all processes end together. A file stays in one process, whose broker
    and Spark session all its files share. What is not noted comes after what is, layer by layer.
    """
    for item in items:
        item.add_marker(getattr(pytest.mark, layer(item.nodeid)))
    if not config.getoption("nightly"):
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("nightly")])
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
    seconds = noted_durations()
    items.sort(key=lambda item: (-seconds.get(file(item.nodeid), 0), LAYERS.index(layer(item.nodeid))))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what each layer took, set-up and teardown included, and note what each file took where that is asked for."""
    seconds = Counter[str]()
    for outcome in ("passed", "failed", "error", ""):
        for report in terminalreporter.stats.get(outcome, []):
            if isinstance(report, pytest.TestReport):  # a file that cannot be imported has no test that took any time
                seconds.update({file(report.nodeid): report.duration})
    for name in LAYERS:
        if taken := sum(taken for path, taken in seconds.items() if layer(path) == name):
            terminalreporter.write_line(f"{name}: {taken / 60:.1f} min")
    if config.getoption("note_durations"):
        note_durations(seconds)


def file(nodeid: str) -> str:
    """Return the file that a test is in, from the project's root."""
    return nodeid.split("::", 1)[0]


def layer(nodeid: str) -> str:
    """Return the layer of a test, or of a file of tests: the folder that it is in."""
    return Path(nodeid).parts[1]


def noted_durations() -> dict[str, int]:
    """Return how many seconds each file takes that takes long; it need not be exact, only their order counts."""
    noted: dict[str, int] = json.loads(DURATIONS.read_text(encoding="utf-8"))
    return noted


def note_durations(ran: Counter[str]) -> None:
    """Replace what is noted of the files that ran, forget files that are gone, and keep the rest."""
    kept = {path: taken for path, taken in noted_durations().items() if path not in ran}
    new = {path: round(taken) for path, taken in ran.items() if taken >= LONG_SECONDS}
    there = sorted((-taken, path) for path, taken in (kept | new).items() if (ROOT.parent / path).exists())
    text = json.dumps({path: -taken for taken, path in there}, indent=2)
    DURATIONS.write_text(f"{text}\n", encoding="utf-8")


@pytest.fixture(autouse=True, scope="module")
def nothing_optional_is_on() -> Iterator[None]:
    """Switch off what a file of tests, or a command that it ran in this process, has switched on."""
    yield
    topology.switch_on([], [])


@pytest.fixture(autouse=True)
def at_full_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a command that lowers its process's priority from lowering that of the tests, which is for good."""
    monkeypatch.setattr(os, "nice", lambda _: 0)


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
        patch.setattr(application, "ENDING_SECONDS", 0.1)
        yield started
    started.stop()
