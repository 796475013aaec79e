"""Whatever is sent, in whatever order the hops take it, wherever they crash and whatever happens: the tables are right.

A life is a list of steps: records come, hops take batches, a batch ends at a fail point, something happens to the lake
or the machine, and the next driver repeats the batch as Spark would. The hops, their commits, the Delta tables and the
starts are the real ones; Kafka is a list. After each step the tables are looked at, and at the end all is through.
Where lives are many, Delta's transaction is replaced by one of a few lines, so that no step waits for a JVM.

Hypothesis makes up lives, and shrinks one that fails. Beside them guided lives come to each fail point with each event
and each kind of record: `--lives 2000` is the long form, which the table in docs/RELIABILITY.md is of.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession

from customer_activity import delta
from support import visits as counted
from support.found import FOUND
from support.life import Life
from support.lives import Crash, Step, lives
from support.visits import ENOUGH, ROUND, Visits
from support.without_jvm import NoSpark, without_jvm

FAST = Path("/dev/shm")  # noqa: S108 - a life is hundreds of small files, which need not outlive it
LIVES = 45  # the short form's: some minutes
LONG_ROUNDS = 10
LONG = 1_000  # from so many on each triple has to be visited often enough
BEGIN, END = "<!-- visits: begin -->\n", "<!-- visits: end -->\n"

Live = Callable[[list[Step]], None]


@pytest.fixture(scope="module")
def visits() -> Visits:
    """Count what the lives of all tests here came to."""
    return Visits()


@pytest.fixture
def number_of_lives(pytestconfig: pytest.Config) -> int:
    """Return how many lives to live."""
    return int(pytestconfig.getoption("--lives")) or LIVES


MORE_ROUNDS = 3  # that are looked through for lives with what one round has missed


def guided_lives(lives: int) -> int:
    """Return how many of some lives are guided: one round, or enough rounds for each triple to be there three times."""
    return ROUND if lives < LONG else LONG_ROUNDS * ROUND


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a folder for lives, in memory where there is one."""
    with tempfile.TemporaryDirectory(prefix="lives-", dir=FAST if FAST.is_dir() else None) as folder:
        yield Path(folder)


def living(spark: SparkSession | NoSpark, empty_lake: Path, home: Path, visits: Visits) -> Live:
    """Return what lives a life on a lake of its own."""

    def live(steps: list[Step]) -> None:
        Life(spark, empty_lake, Path(tempfile.mkdtemp(dir=home)), visits).live(steps)

    return live


@pytest.fixture
def live(home: Path, visits: Visits) -> Iterator[Live]:
    """Return what lives a life without a JVM: ten times as fast."""
    delta.ensure_tables(str(home / "empty"))
    with without_jvm() as nobody:
        yield living(nobody, home / "empty", home, visits)


@pytest.mark.parametrize("steps", [pytest.param(steps, id=name) for name, steps in FOUND.items()])
def test_a_life_that_once_ended_wrong_ends_right(
    steps: list[Step], spark: SparkSession, empty_lake: Path, home: Path
) -> None:
    """With Delta's own transactions."""
    living(spark, empty_lake, home, Visits())(steps)


@pytest.mark.timeout(7200)
def test_every_life_ends_in_the_right_view(live: Live, number_of_lives: int) -> None:
    made_up = given(lives())(live)
    settings(
        max_examples=max(1, number_of_lives - guided_lives(number_of_lives)),
        deadline=None,
        derandomize=True,
        suppress_health_check=[*HealthCheck],
    )(made_up)()


@pytest.mark.timeout(7200)
def test_each_kind_of_record_is_at_each_fail_point_when_each_event_happens(
    live: Live, visits: Visits, number_of_lives: int, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """A round of guided lives has each two of them together, the long form all three, three times at least."""
    made = counted.guided(seed=1)
    for steps in islice(made, guided_lives(number_of_lives)):
        live(steps)
    # What one event ends well the next one finds done: pairs that were missed so come once more.
    for steps in islice(made, MORE_ROUNDS * ROUND):
        if not (rare := visits.rare_pairs()):
            break
        if any(isinstance(step, Crash) and counted.brings(step, rare) for step in steps):
            live(steps)
    with capsys.disabled():
        sys.stdout.write(f"\n{counted.table(visits)}\n")
    if page := pytestconfig.getoption("--visits-page"):
        text = Path(page).read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        Path(page).write_text(f"{before}{BEGIN}{counted.table(visits)}{END}{after}", encoding="utf-8")
    assert visits.unexpected() == [], "listed as impossible, and visited"
    assert visits.rare_pairs() == []
    if number_of_lives >= LONG:
        assert [f"{rare}: {visits.seen[rare]} times" for rare in visits.rare(ENOUGH)] == []
