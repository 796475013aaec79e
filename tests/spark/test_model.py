"""Whatever is sent, in whatever order the hops take it, wherever they crash and whatever happens: the tables are right.

A life is a list of steps: records come, hops take batches, a batch ends at a fail point, something happens to the lake
or the machine, and the next driver repeats the batch as Spark would. The hops, their commits, the Delta tables and the
starts are the real ones; Kafka is a list. After each step the tables are looked at, and at the end all is through.
Where lives are many, Delta's transaction is replaced by one of a few lines, so that no step waits for a JVM.

Hypothesis makes up lives, and shrinks one that fails. Beside them guided lives come to each fail point with each event
and each kind of record, and others aim at what these have missed. `--lives 2000` is the long form, which the table in
docs/RELIABILITY.md is of; it lives in several processes, and tells of each share of lives that is through.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from _pytest.capture import CaptureManager
from pyspark.sql import SparkSession

from support import shares
from support import visits as counted
from support.found import FOUND
from support.life import Life
from support.lives import Step
from support.shares import FAST, Share
from support.visits import ENOUGH, Visits

LIVES = 45  # the short form's: a minute or two
NIGHTLY_LIVES = 200
# Of the lives that were found, those that have Delta's own transactions in CI, too: their logs and files changed most.
IN_CI = ("a vacuumed table whose index is of earlier", "silver's purchases are put back from a backup")
LONG_ROUNDS = 10
LONG = 1_000  # from so many on each triple has to be visited often enough
AIMED_ROUNDS = 6  # after so many, what is still missing cannot be come to
BEGIN, END = "<!-- visits: begin -->\n", "<!-- visits: end -->\n"


class Many:
    """Lives many lives, and tells of them."""

    def __init__(self, config: pytest.Config, capsys: pytest.CaptureFixture[str], visits: Visits) -> None:
        """Read how many, and in how many processes."""
        self.lives = int(config.getoption("--lives")) or (NIGHTLY_LIVES if config.getoption("--nightly") else LIVES)
        self.is_long = self.lives >= LONG
        self.rounds = LONG_ROUNDS if self.is_long else 1
        self.processes = int(config.getoption("--life-processes"))
        self.capsys, self.visits = capsys, visits

    def live(self, some: Sequence[Share]) -> list[str]:
        """Live shares, and return what went wrong; few are lived here, and the first that goes wrong fails."""
        began, before, faults = time.monotonic(), self.visits.seconds, []

        def note(share: Share) -> None:
            self.visits.seconds = before + time.monotonic() - began
            self.visits.note(share.kind, share.seed, share.lives)

        if self.is_long:
            for share, seen, fault in shares.lived(some, self.processes):
                self.visits.seen += seen
                note(share)
                self.say(f"{self.visits.seconds / 60:.1f} min: {share.lives} {share.name} {fault or 'ended right'}")
                faults += [fault] if fault else []
        else:
            with shares.living(self.visits) as live:
                for share in some:
                    shares.live_share(share, live)
                    note(share)
        return faults

    def say(self, words: str) -> None:
        """Print at once."""
        with self.capsys.disabled():
            sys.stdout.write(f"\n{words}")
            sys.stdout.flush()


@pytest.fixture(scope="module")
def visits(pytestconfig: pytest.Config) -> Iterator[Visits]:
    """Count what the lives of all tests here came to, and show it at the end."""
    visits = Visits()
    yield visits
    table = counted.table(visits)
    capture: CaptureManager | None = pytestconfig.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        sys.stdout.write(f"\n{table}\n")
    if page := pytestconfig.getoption("--visits-page"):
        text = Path(page).read_text(encoding="utf-8")
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        Path(page).write_text(f"{before}{BEGIN}{table}\n{END}{after}", encoding="utf-8")


@pytest.fixture
def many(pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str], visits: Visits) -> Many:
    """Return what lives many lives."""
    return Many(pytestconfig, capsys, visits)


@pytest.fixture
def home() -> Iterator[Path]:
    """Return a folder for lives, in memory where there is one."""
    with tempfile.TemporaryDirectory(prefix="lives-", dir=FAST if FAST.is_dir() else None) as folder:
        yield Path(folder)


@pytest.mark.parametrize("steps", FOUND.values(), ids=FOUND.keys())
def test_a_life_that_once_ended_wrong_ends_right(steps: list[Step]) -> None:
    with shares.living(Visits()) as live:
        live(steps)


@pytest.mark.parametrize(
    "steps",
    [pytest.param(FOUND[name], id=name, marks=[] if name in IN_CI else pytest.mark.nightly) for name in FOUND],
)
def test_a_life_that_once_ended_wrong_ends_right_with_deltas_own_transactions(
    steps: list[Step], spark: SparkSession, empty_lake: Path, home: Path
) -> None:
    Life(spark, empty_lake, home, Visits()).live(steps)


@pytest.mark.timeout(7200)
def test_each_kind_of_record_is_at_each_fail_point_when_each_event_happens(many: Many, visits: Visits) -> None:
    """A round of guided lives has each two of them together, the long form all three, three times at least."""
    faults = many.live(shares.guided_shares(many.rounds))
    # What one event ends well the next one finds done: what was missed so, or comes seldom, is aimed at.
    for number in range(AIMED_ROUNDS):
        if not (rare := visits.rare() if many.is_long else visits.unseen_of_pairs()):
            break
        faults += many.live(shares.aimed_shares(rare, number, many.processes))
    assert not faults, "\n".join(faults)
    assert visits.unexpected() == [], "listed as impossible, and visited"
    assert visits.rare_pairs() == []
    if many.is_long:
        assert [f"{rare}: {visits.seen[rare]} times" for rare in visits.rare(ENOUGH)] == []


@pytest.mark.timeout(7200)
def test_every_life_ends_in_the_right_view(many: Many) -> None:
    guided = sum(share.lives for share in shares.guided_shares(many.rounds))
    faults = many.live(shares.made_up_shares(max(1, many.lives - guided)))
    assert not faults, "\n".join(faults)
