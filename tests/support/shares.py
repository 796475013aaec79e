"""Many lives, in shares that follow from a seed each: a share can be lived by any process, and lived again alone."""

from __future__ import annotations

import logging
import multiprocessing
import shutil
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, Phase, given, seed, settings

from customer_activity.lake import delta
from support.life import Life
from support.lives import Step, lives
from support.visits import CRASHES_A_LIFE, ROUND, Triple, Visits, aimed, crashes_of, guided
from support.without_jvm import without_jvm

FAST = Path("/dev/shm")  # noqa: S108 - a life is hundreds of small files, which need not outlive it
LIVES_A_SHARE = 100  # of those that Hypothesis makes up

Live = Callable[[list[Step]], None]


class Share(NamedTuple):
    """Lives that are lived one after the other.

    Attributes:
        seed: what they follow from.
        lives: how many; the first of those that the seed gives.
        aims: what they aim at; empty: at everything.
        is_guided: whether they are one round of guided lives; otherwise Hypothesis makes them up.
    """

    seed: int
    lives: int
    is_guided: bool = False
    aims: tuple[Triple, ...] = ()

    @property
    def name(self) -> str:
        """What to call it where it failed."""
        return f"{self.kind} of seed {self.seed}"

    @property
    def kind(self) -> str:
        """What lives they are."""
        return "aimed lives" if self.aims else "guided lives" if self.is_guided else "made-up lives"


class Lived(NamedTuple):
    """What became of a share: what was visited, and what went wrong, in words."""

    share: Share
    seen: Counter[Triple]
    fault: str


def guided_shares(rounds: int) -> list[Share]:
    """Return rounds of guided lives."""
    return [Share(number, ROUND, is_guided=True) for number in range(1, rounds + 1)]


def made_up_shares(lives: int) -> list[Share]:
    """Return so many lives that Hypothesis makes up."""
    sizes = [LIVES_A_SHARE] * (lives // LIVES_A_SHARE) + [lives % LIVES_A_SHARE]
    return [Share(number, size) for number, size in enumerate(sizes, start=1) if size]


def aimed_shares(triples: Sequence[Triple], number: int, shares: int) -> list[Share]:
    """Return the next shares of lives that aim at some triples; each of them comes to all."""
    lives = -(-len(crashes_of(triples)) // CRASHES_A_LIFE)
    seeds = range(1 + number * shares, 1 + (number + 1) * shares)
    return [Share(seed, lives, is_guided=True, aims=tuple(triples)) for seed in seeds]


@contextmanager
def living(visits: Visits) -> Iterator[Live]:
    """Hand out what lives a life without a JVM, ten times as fast, on a lake of its own, in memory if there is room."""
    with (
        tempfile.TemporaryDirectory(prefix="lives-", dir=FAST if FAST.is_dir() else None) as folder,
        without_jvm(due_files=2) as nobody,
    ):
        home = Path(folder)
        delta.ensure_tables(str(home / "empty"))

        def live(steps: list[Step]) -> None:
            own = Path(tempfile.mkdtemp(dir=home))
            try:
                Life(nobody, home / "empty", own, visits).live(steps)
            finally:
                shutil.rmtree(own, ignore_errors=True)

        yield live


def live_share(share: Share, live: Live, phases: Sequence[Phase] | None = None) -> None:
    """Live a share.

    Args:
        share: which.
        live: lives a life.
        phases: of Hypothesis; None: as its profile says.
    """
    if not share.is_guided:
        seed(share.seed)(
            settings(
                max_examples=share.lives,
                deadline=None,
                database=None,
                phases=_phases() if phases is None else phases,
                suppress_health_check=[*HealthCheck],
            )(given(lives())(live))
        )()
        return
    steps_of = aimed(share.seed, share.aims) if share.aims else guided(share.seed)
    faults = []
    for number, steps in enumerate(islice(steps_of, share.lives), start=1):
        try:
            live(steps)
        except Exception as error:  # noqa: BLE001 - whatever it is; the others are lived none the less
            error.add_note(f"life {number} of the {share.name}")
            faults.append(error)
    if faults:
        raise ExceptionGroup(f"of {share.lives} {share.name}", faults)


def _phases() -> tuple[Phase, ...]:
    return tuple(settings().phases)


def _lived(share: Share, phases: Sequence[Phase]) -> Lived:
    """Live a share in a process of its own; what goes wrong is told in words, which every process understands."""
    logging.disable()
    visits = Visits()
    fault = ""
    try:
        with living(visits) as live:
            live_share(share, live, phases)
    except Exception as error:  # noqa: BLE001 - whatever it is
        fault = f"{share.name}: {''.join(traceback.format_exception(error))}"
    return Lived(share, visits.seen, fault)


def lived(shares: Sequence[Share], processes: int) -> Iterator[Lived]:
    """Live shares in so many processes, and yield each that is through; one that goes wrong ends no other."""
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawning, max_tasks_per_child=1) as pool:
        at_work = [pool.submit(_lived, share, _phases()) for share in shares]
        try:
            for done in as_completed(at_work):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)  # whoever interrupts it waits for what is at work alone
