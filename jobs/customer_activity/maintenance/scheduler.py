"""When tables are looked after: logs and small files every few seconds, what is expired every hour, all when asked.

What else is asked of a driver is done here, too: between batches, while the tables' writers wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from customer_activity import topology, unforeseen
from customer_activity.catalog import Table
from customer_activity.contracts.tables import TABLES
from customer_activity.engine.logs import keep_log_short, log
from customer_activity.engine.queries import RunningQuery, paused
from customer_activity.lake import change_feeds, delta, deltalog, failpoints
from customer_activity.maintenance import maintenance, tending
from customer_activity.maintenance.maintenance import FAULTS
from customer_activity.maintenance.replays import Replays
from customer_activity.maintenance.spread import Rewriting
from customer_activity.maintenance.tending import Tended
from customer_activity.settings import Settings
from customer_activity.supervision import requests
from customer_activity.supervision.requests import MAINTENANCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS = 20.0  # from the end of one round over the tables to the next
PAUSE_SECONDS = 2.0  # within a round, after a table that had something to do: what waited for it goes first
VACUUM_SECONDS = 3600.0
# Files that no commit names are removed after an hour at the earliest. No batch has older ones than it is itself, and
# this leaves time to list a table's folder, and for the clock of its storage.
LONG_SECONDS = 1800.0


class Scheduler:
    """Looks after the tables that are written here and nowhere else."""

    def __init__(
        self,
        settings: Settings,
        running: Sequence[RunningQuery],
        *,
        serves: bool = True,
        spark: SparkSession | None = None,
    ) -> None:
        """Begin to count: nothing is done at the start, which is busy enough.

        With `serves` it also does what somebody asks for; an application that runs one query after the other does not.
        With `spark` executors, where there are some, compact large tables.
        """
        self.settings = settings
        self.writers = writers_of(running)
        self.replays = Replays(settings, self.writers.get(Table.QUARANTINE, []))
        self.failpoint = failpoints.of(settings, failpoints.MAINTENANCE)
        self.rewriting = Rewriting(spark, settings, self.failpoint)
        self.next_look = time.monotonic() + LOOK_SECONDS
        self.next_vacuum = time.monotonic() + VACUUM_SECONDS
        self.due: list[Callable[[], bool]] = []
        self.unvacuumed: set[Table] = set()  # whose turn came while they had files that no commit names yet
        self.ids: dict[Table, str] = {}
        self.tidied: dict[Table, int] = {}  # the version at which a table had nothing to do
        self.serves = serves
        self.request: str | None = None
        self.tended: list[Tended] = []

    def is_due(self) -> bool:
        """Whether the next look may have work that takes a while."""
        return time.monotonic() >= self.next_look or self.request is not None

    def look(self) -> None:
        """Go on with the round over all tables: every one gets its turn, however busy those before it are."""
        self.rewriting.look()
        if (self.serves and (self.replays.serve() or self.fulfil())) or time.monotonic() < self.next_look:
            return
        if not self.due:
            self.cut_log()
            self.due = [partial(self.tidy, table, writers) for table, writers in self.writers.items()]
            if time.monotonic() >= self.next_vacuum:
                self.due += [partial(self.vacuum, table) for table in self.writers]
                self.next_vacuum = time.monotonic() + VACUUM_SECONDS
        while self.due:
            if self.due.pop(0)():
                break
        self.next_look = time.monotonic() + (PAUSE_SECONDS if self.due else LOOK_SECONDS)

    def close(self) -> None:
        """Wait for what is at work, or end it: it needs this driver's leases."""
        self.rewriting.close()
        self.replays.close()

    def cut_log(self) -> None:
        """Keep the driver's log short."""
        try:
            keep_log_short(self.settings.run_dir)
        except OSError as error:
            log.warning("the log is not cut, tried again later: %s", error)

    def fulfil(self) -> bool:
        """Do the next table of what somebody asked for (`activity maintain`); say whether anybody did."""
        run_dir = self.settings.run_dir
        found = requests.pending(self.settings, MAINTENANCE)
        request = None if found is None else found.id
        if request != self.request:
            self.request, self.tended = request, []
        if request is None:
            return False
        tended = {done.table for done in self.tended}
        left = [table for table in self.writers if table.label not in tended]
        free = [table for table in left if table is not self.rewriting.table]
        if left and not free:  # other upkeep goes on until executors are through with the last one
            return False
        for table in free[:1]:
            with paused(self.writers[table]) as are_paused:
                if are_paused:
                    self.tended.append(self.tend(table))
                    log.info("%s: maintenance done as requested", table.label, extra={"table": table.label})
        if len(self.tended) == len(self.writers):
            requests.answer(run_dir, MAINTENANCE, request, {"tables": msgspec.to_builtins(self.tended)})
        return True

    def tend(self, table: Table) -> Tended:
        """Do all that there is to do to a table, between its writers' batches."""
        promised = change_feeds.promise(self.settings, table)
        return tending.tend(self.settings.lake, table, failpoint=self.failpoint, promised=promised)

    def tidy(self, table: Table, writers: Sequence[RunningQuery]) -> bool:
        """Keep a table's log short and its files few, between its writers' batches; say whether there was work."""
        lake = self.settings.lake
        if table is self.rewriting.table:
            return False
        try:
            tidied = self.tidied.get(table)
            is_written = has_small = False
            # Opening a table replays its log: that would be most of what an idle driver costs.
            if tidied is None or not deltalog.is_newest(lake, table, tidied):
                opened, promised = maintenance.opened(lake, table), change_feeds.promise(self.settings, table)
                is_written = maintenance.checkpoint_log(lake, table, opened, promised=promised)
                if is_written:
                    self.due.append(partial(self.shorten, table))
                has_small = maintenance.needs_compaction(opened)
                if has_small:
                    self.compact(table, writers)
                if not (is_written or has_small):
                    self.tidied[table] = opened.version()
            # Last: nothing else is done to the table from then on until the commit, and then it may be due again.
            is_vacuumed = table in self.unvacuumed and self.vacuum(table)
            return self.rewriting.begin(table, writers) or is_written or has_small or is_vacuumed
        except FAULTS as error:  # the table is as it was: the streams go on
            _later(table, error)
        return True

    def compact(self, table: Table, writers: Sequence[RunningQuery]) -> None:
        """Compact the newest of a table's files between its writers' batches, if there is a moment."""
        with paused(writers) as are_paused:
            if are_paused:
                started = time.monotonic()
                maintenance.compact(self.settings.lake, table, self.failpoint)
                seconds = time.monotonic() - started
                extra = {"table": table.label, "seconds": round(seconds, 3)}
                log.info("%s: compacted in %.2f s", table.label, seconds, extra=extra)

    def shorten(self, table: Table) -> bool:
        """Shorten the log of a table further that was kept for a reader; say whether there was anything to remove.

        What one time leaves is for the end of the round: other tables and the streams have their turn in between.
        """
        if table is self.rewriting.table:  # which will ask for the entries since it began
            return False
        try:
            kept, promised = TABLES[table].kept.commits, change_feeds.promise(self.settings, table)
            gone = maintenance.shorten(self.settings.lake, table, kept, self.id_of(table), promised)
        except FAULTS as error:
            _later(table, error)
            return True
        if gone:
            extra = {"table": table.label, "commits": gone}
            log.info("%s: log shortened by %d commits", table.label, gone, extra=extra)
            self.due.append(partial(self.shorten, table))
        return gone > 0

    def id_of(self, table: Table) -> str:
        """Return a table's id, which no other has while this driver writes to it."""
        if table not in self.ids:
            self.ids[table] = delta.table_id(self.settings.lake, table)
        return self.ids[table]

    def vacuum(self, table: Table) -> bool:
        """Remove what is expired; say whether there was work."""
        at_work = max(query.seconds_at_work() for query in self.writers[table])
        if table is self.rewriting.table or at_work > LONG_SECONDS:  # whose new files no commit names yet
            self.unvacuumed.add(table)
            return False
        self.unvacuumed.discard(table)
        try:
            promised = change_feeds.promise(self.settings, table)
            done = maintenance.vacuum(self.settings.lake, table, failpoint=self.failpoint, promised=promised)
        except FAULTS as error:
            _later(table, error)
            return True
        for reader in done.behind:
            log.warning("%s: not vacuumed: %s", table.label, reader, extra={"table": table.label})
        if done.files:
            extra = {"table": table.label, "files": done.files, "bytes": done.bytes}
            log.info("%s: vacuumed, %d files of %d bytes", table.label, done.files, done.bytes, extra=extra)
        return True


def _later(table: Table, error: Exception) -> None:
    extra = {"table": table.label}
    log.warning("%s: maintenance failed, tried again later: %s", table.label, unforeseen.brief(error), extra=extra)


def writers_of(running: Sequence[RunningQuery]) -> dict[Table, list[RunningQuery]]:
    """Tables that are written here and nowhere else, with the queries that write them."""
    here = {query.query: query for query in running}
    writers = {table: topology.writers(table) for table in topology.tables()}
    return {
        table: [here[query] for query in queries]
        for table, queries in writers.items()
        if queries and set(queries) <= set(here)
    }
