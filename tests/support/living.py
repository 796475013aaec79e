"""A pipeline that lives through what happens to a lake: real checkpoints, real starts, several machines, and a ledger.

The ledger is what each commit of a table of the path appended, read from the log and the files as soon as they are
there: later, compaction and VACUUM may have taken them.
"""

from __future__ import annotations

import copy
import json
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.lake import delta, jvm
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.microbatch import MicroBatch, metadata_of
from customer_activity.lake.numbering import Numbering
from customer_activity.operations import recovery
from support.quick_pipeline import QuickPipeline
from support.streams import Query

IN_DRIVER: dict[str, object] = {"placement": "driver"}
PLACEMENTS: tuple[dict[str, object], ...] = (  # of the drivers, in turn
    IN_DRIVER,
    {"placement": "executors"},
    IN_DRIVER,
    {"placement": "auto", "local_state_gb": 0},
)
REMEMBERED = ("machine", "drivers", "settings", "log", "view", "batches", "cursors", "versions", "sent", "fetched")


class Appended(NamedTuple):
    """What a commit appended, and what it says of itself."""

    version: int
    rows: list[dict[str, Any]]
    note: dict[str, Any]


@dataclass
class Ledger:
    """What the commits of a table appended, oldest first."""

    lake: str
    table: Table
    next: int = 0
    commits: list[Appended] = field(default_factory=list)

    def update(self) -> list[Appended]:
        """Take what is new, and return it."""
        folder = Path(table_path(self.lake, self.table))
        new = []
        while (entry := folder / "_delta_log" / f"{self.next:020}.json").exists():
            actions = [json.loads(line) for line in entry.read_text(encoding="utf-8").splitlines()]
            added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
            rows = [row for file in added for row in _rows(folder / unquote(file["path"]))]
            said: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
            new.append(Appended(self.next, rows, metadata_of(said.get("userMetadata"))))
            self.next += 1
        self.commits += new
        return new

    def rows(self, upto: int | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of commits up to a version, in their order."""
        for commit in self.commits:
            if upto is None or commit.version <= upto:
                yield from commit.rows


def _rows(file: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(file, partitioning=None).to_pylist()
    for row in rows:
        row.pop("value", None)  # a megabyte now and then
    return rows


@dataclass
class LivingPipeline(QuickPipeline):
    """All queries on one lake, as drivers run them that come and go."""

    machine: int = 0
    numbering: Numbering = field(init=False)
    known_ids: dict[Table, str] = field(default_factory=dict)
    drivers: int = 0

    def restart(self, *, loses_indexes: bool = False) -> None:
        """Start as a driver does, which may be refused; the one before has ended. Batches are elsewhere than its."""
        self.settings = self.settings.model_copy(update=PLACEMENTS[self.drivers % len(PLACEMENTS)])
        self.drivers += 1
        self.forget_logs()
        recovery.check_agreement(self.settings.lake, list(Query))
        if not self.known_ids:
            self.known_ids = {table: delta.table_id(self.settings.lake, table) for table in topology.tables()}
        self.ids = self.known_ids
        self.numbering = Numbering(self.settings.lake, topology.landing())

    def _numbering(self, query: str) -> Numbering:
        return self.numbering

    def stop(self) -> None:
        """End as a driver does when it is killed."""
        self.close()

    def forget_logs(self) -> None:
        """Have the JVM know nothing of any table, as a new one."""
        if isinstance(self.spark, SparkSession):
            jvm.forget_logs(self.spark)
        else:
            self.spark.forget_logs()

    def repeat(self, query: str, *, loses_indexes: bool = False) -> MicroBatch:
        """Give a hop its last batch again; its driver has started anew."""
        return self._again(query)

    def _plan(self, batch: MicroBatch) -> None:
        self._note(batch, is_committed=False)

    def _work(self, query: str, batch: MicroBatch) -> None:
        batch.failpoint(FailPoint.PLANNED)
        self._write(query, batch)
        batch.failpoint(FailPoint.WRITTEN)
        self._note(batch, is_committed=True)

    def _note(self, batch: MicroBatch, *, is_committed: bool) -> None:
        """Write Spark's checkpoint."""
        checkpoint.write(
            self.settings.lake,
            batch.query,
            batch.generation,
            batch.batch_id,
            OffsetRange(**batch.cut),
            is_committed=is_committed,
        )

    def on_machine(self, number: int) -> None:
        """Have the next driver run on another machine, or again on one of earlier, whose index is as it was left."""
        here, folder = self.settings.index_dir, Path(self.settings.lake).parent
        if number == self.machine:
            return
        if here.exists():
            here.rename(folder / f"index-{self.machine}")
        if (left := folder / f"index-{number}").exists():
            left.rename(here)
        self.machine = number
        self.settings = self.settings.model_copy(update={"run_dir": folder / f"run-{number}"})

    def put_back(self, table: Table, commits: int) -> bool:
        """Put a table back to what it was some commits ago; say whether that is another state."""
        log = Path(table_path(self.settings.lake, table)) / "_delta_log"
        versions = sorted(int(path.stem) for path in log.glob("*.json"))
        compacted = [v for v in versions if '"OPTIMIZE"' in (log / f"{v:020}.json").read_text(encoding="utf-8")]
        held = [int(path.name[:20]) for path in log.glob("*.checkpoint.parquet")]
        # What publish puts into quarantine is noted there alone: `verify` tells that it is gone, and no start does.
        alone = [
            v for v in versions if '\\"query\\": \\"publish\\"' in (log / f"{v:020}.json").read_text(encoding="utf-8")
        ]
        oldest = max([versions[0], *compacted, *held, *alone])  # files of earlier versions may be gone
        to = max(versions[-1] - commits, oldest)
        if to == versions[-1]:
            return False
        for path in log.iterdir():
            if path.name[:20].isdigit() and int(path.name[:20]) > to:
                path.unlink()
        return True

    @contextmanager
    def saved(self) -> Iterator[Callable[[], None]]:
        """Keep a copy of everything, and hand out what puts it back."""
        folder, aside = Path(self.settings.lake).parent, Path(f"{Path(self.settings.lake).parent}.aside")
        held = copy.deepcopy({name: getattr(self, name) for name in REMEMBERED if name != "batches"})
        batches = {query: list(done) for query, done in self.batches.items()}
        inputs = dict(self.last_input)
        shutil.copytree(folder, aside)

        def put_back() -> None:
            self.stop()
            shutil.rmtree(folder)
            shutil.copytree(aside, folder)
            for name, value in held.items():
                setattr(self, name, value)
            self.batches, self.last_input = batches, inputs

        try:
            yield put_back
        finally:
            shutil.rmtree(aside)


@contextmanager
def full_disk(most_bytes: int = 4_096) -> Iterator[None]:
    """Have every file that this process writes end after so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
