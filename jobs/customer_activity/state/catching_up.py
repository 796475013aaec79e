"""Brings local state on behind its stream, in a thread, until it is nearly where the stream is by then.

For as long as it is at it the tables' logs and files are held from where it reads (`lake/holds.py`): to make the
state of many keys takes longer than logs are kept. Each part is a transaction, so what a stop leaves is of use to
whoever goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from customer_activity.catalog import Table
from customer_activity.lake import holds
from customer_activity.lake.deltalog import Position

STOP_SECONDS = 5.0
NEAR_SECONDS = 2.0  # what was taken in within this time has left little to take in

OnProgress = Callable[[str], None]
Bring = Callable[[Table, Position, OnProgress], None]


class _Stopped(Exception):
    """Raised where the state is closed, or too large, while it is being brought on."""


class CatchUp(threading.Thread):
    """Brings a stream's state to some places; nobody else uses its file until that has ended."""

    def __init__(
        self,
        lake: str,
        stream: str,
        holder: str,
        to: Mapping[Table, Position],
        *,
        bring: Bring,
        at: Callable[[Table], int | None],
        is_too_large: Callable[[], bool],
    ) -> None:
        """Begin.

        Args:
            lake: where the tables are.
            stream: whose state.
            holder: by which name versions of the tables are held meanwhile.
            to: places of tables; set anew while the stream goes on.
            bring: brings one table to its place.
            at: tells which version of a table the state holds; None: nothing of it.
            is_too_large: tells that it does no good to go on.
        """
        super().__init__(name=f"catch-up-{stream}", daemon=True)
        self.lake = lake
        self.stream = stream
        self.holder = holder
        self.to = to
        self.bring = bring
        self.at = at
        self.is_too_large = is_too_large
        self.told = ""
        self.error: BaseException | None = None
        self.is_stopping = threading.Event()
        self.start()

    def run(self) -> None:
        """Bring each table to its place, and on to where the stream is by then."""
        try:
            while True:
                to, begun = dict(self.to), time.monotonic()
                holds.hold(self.lake, self.stream, self.holder, {table: self._reads_from(table) for table in to})
                for table, place in to.items():
                    self.bring(table, place, self._tell)
                if self.to == to or time.monotonic() - begun < NEAR_SECONDS:
                    return
        except _Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - told where the state is used next
            self.error = error
        finally:
            self._release()

    def _release(self) -> None:
        try:
            holds.release(self.lake, self.stream, self.holder)
        except OSError as error:  # the next one of this holder takes its place
            self.error = self.error or error

    def _reads_from(self, table: Table) -> int:
        at, to = self.at(table), self.to[table].version
        return to if at is None else min(at, to)

    def _tell(self, how_far: str) -> None:
        self.told = how_far
        if self.is_too_large() or self.is_stopping.is_set():
            raise _Stopped

    def wait(self, progress: OnProgress) -> None:
        """Wait for its end, and pass on how far it is."""
        told = ""
        while self.is_alive():
            self.join(timeout=1.0)
            if self.told != told:
                told = self.told
                progress(told)

    def has_stopped(self) -> bool:
        """End it where it is, and say whether it has ended; what it cannot leave at once ends with the process."""
        self.is_stopping.set()
        self.join(STOP_SECONDS)
        return not self.is_alive()
