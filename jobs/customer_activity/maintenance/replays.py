"""Replays from quarantine that a driver was asked for (`activity quarantine replay`): done while its writers wait.

In a thread, because a large one may take longer than the driver may be silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import msgspec

from customer_activity import topology, unforeseen
from customer_activity.contracts import RULES
from customer_activity.engine.logs import log
from customer_activity.engine.queries import RunningQuery, paused
from customer_activity.errors import ActivityError, TerminalError
from customer_activity.lake import delta
from customer_activity.quarantine import contents, replay
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import HalfLanded, Replay
from customer_activity.settings import Settings
from customer_activity.supervision import requests
from customer_activity.supervision.requests import REPLAY, Request

MOST_BYTES = 64 << 20  # of keys and values: judging takes ten times as much, in the process of all streams
MOST_RECORDS = 100_000


def asked(settings: Settings, selection: Selection, reason: str) -> dict[str, Any]:
    """Put in JSON's types what a driver that runs is asked for; it says by which rules the records are to be judged.

    Raises:
        SettingsError: there is no lake.
    """
    delta.require_tables(settings.lake)
    return {"selection": msgspec.to_builtins(selection), "reason": reason, "judged_by": _judged_by(settings)}


def _judged_by(settings: Settings) -> list[Any]:
    """Return what a record's verdict depends on beside the record."""
    topics = [settings.topics[role] for stream in topology.landings() for role in stream.topics]
    return [RULES, settings.currency, *topics]


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
            Exception: after a replay a stream could not learn of it.
        """
        if self.at_work is not None:
            is_done = self.at_work.done()
            for query in self.writers:
                query.status.moved("" if is_done else "waits for a replay from quarantine")
            if is_done:
                done, self.at_work = self.at_work, None
                done.result()
            return True
        found = requests.pending(self.settings, REPLAY) if self.writers else None
        if found is None:
            return False
        with ExitStack() as held:
            if held.enter_context(paused(self.writers)) and requests.begin(self.settings.run_dir, REPLAY, found.id):
                self.at_work = self.thread.submit(self._serve, found, held.pop_all())
        return True

    def close(self) -> None:
        """Wait for what is at work."""
        self.thread.shutdown()

    def _serve(self, request: Request, held: ExitStack) -> None:
        run_dir = self.settings.run_dir
        with held:
            try:
                done = self._replay(request)
                requests.answer(run_dir, REPLAY, request.id, {"replay": done._asdict()})
                log.info("replayed as asked: %s", done)
            except HalfLanded:  # a driver that has just started repeats that batch first
                requests.leave(run_dir, REPLAY)
                log.info("a replay waits until bronze has repeated the batch that was interrupted")
            except ActivityError as fault:
                requests.refuse(run_dir, REPLAY, request.id, fault)
            except Exception as error:  # noqa: BLE001 - a replay that fails is no reason to end the streams
                kind = unforeseen.kind(error)
                log.error("a replay failed: %s", kind)
                failed = TerminalError(f"the replay failed: {kind}", remedy="stop the streams, and replay without them")
                requests.refuse(run_dir, REPLAY, request.id, failed)
            finally:
                self._tell_streams()

    def _replay(self, request: Request) -> Replay:
        """Do what is asked for.

        Raises:
            TerminalError: the driver's settings or release differ from the command's, or the selection is too large.
            HalfLanded, TransientError, LeaseLost: as `bring_back`.
        """
        if request.asked["judged_by"] != _judged_by(self.settings):
            raise TerminalError(
                "the driver that runs judges records by other settings, or is of another release",
                remedy="restart it, then replay: what was fixed has to be fixed for the streams, too",
            )
        selection = msgspec.convert(request.asked["selection"], Selection)
        records, size = contents.size(self.settings.lake, selection)
        if records > MOST_RECORDS or size > MOST_BYTES:
            raise TerminalError(
                f"{records:,} records of {size >> 20:,} MB are too many for a driver that runs",
                remedy=f"choose at most {MOST_RECORDS:,} and {MOST_BYTES >> 20} MB by --reason, --topic, --since and "
                "--until, or stop the streams",
            )
        epochs = {query.query: query.fencing_epoch for query in self.writers}
        streams = [stream.name for stream in topology.landings()]
        landed = {query.query: query.status.batch_id for query in self.writers if query.query in streams}
        return replay.bring_back(
            self.settings, selection, request.asked["reason"], lambda query: epochs[query]() or 0, landed
        )

    def _tell_streams(self) -> None:
        try:
            for query in self.writers:
                query.refresh()
        except BaseException:
            for query in self.writers:  # none goes on with what it knew before
                query.stopping.set()
            raise
