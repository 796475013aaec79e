"""Replays from quarantine that a driver was asked for (`activity quarantine replay`): done while its writers wait.

In a thread, because a large one may take longer than the driver may be silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

from customer_activity.engine.observability import log
from customer_activity.engine.queries import RunningQuery, paused
from customer_activity.errors import ActivityError, TransientError
from customer_activity.maintenance.maintenance import FAULTS
from customer_activity.quarantine import replay
from customer_activity.settings import Settings
from customer_activity.supervision import requests
from customer_activity.supervision.requests import REPLAY, Request


class Replays:
    """Does one replay after the other, where all of quarantine's writers run here: their epochs fence it."""

    def __init__(self, settings: Settings, writers: Sequence[RunningQuery]) -> None:
        """Serve the requests of a driver; without writers none."""
        self.settings = settings
        self.writers = writers
        self.thread = ThreadPoolExecutor(1, "replay")
        self.at_work: Future[None] | None = None

    def serve(self) -> bool:
        """Begin what is asked for, or look after what is at work; say whether there is anything.

        Raises:
            Exception: what is at work failed in a way that nobody foresaw.
        """
        if self.at_work is not None:
            if self.at_work.done():
                self.at_work.result()
                self.at_work = None
            else:
                for query in self.writers:
                    query.status.moved("waits for a replay from quarantine")
            return True
        found = requests.pending(self.settings.run_dir, REPLAY)
        if found is None or not self.writers:
            return False
        with ExitStack() as held:
            if held.enter_context(paused(self.writers)):
                self.at_work = self.thread.submit(self._replay, found, held.pop_all())
        return True

    def _replay(self, request: Request, held: ExitStack) -> None:
        run_dir = self.settings.run_dir
        epochs = {query.query: query.fencing_epoch for query in self.writers}
        with held:
            try:
                done = replay.as_asked(self.settings, request.asked, lambda query: epochs[query]() or 0)
                requests.answer(run_dir, REPLAY, request.id, {"replay": done._asdict()})
                log.info("replayed as asked: %s", done)
            except ActivityError as fault:
                requests.refuse(run_dir, REPLAY, request.id, fault)
            except FAULTS as error:
                log.warning("a replay failed, and may be asked for again: %s", error)
                why = f"the replay failed: {type(error).__name__}"
                failed = TransientError(why, remedy="the driver's log has more; ask again")
                requests.refuse(run_dir, REPLAY, request.id, failed)
            finally:
                for query in self.writers:
                    query.refresh()
