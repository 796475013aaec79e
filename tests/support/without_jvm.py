"""Commits without a JVM: in the place of Delta's transaction class one of a few lines, which writes the same entry.

What executors do is done here, share after share, by the product's own tasks.

The product's own `commits.commit` runs, with its fences and its look at transaction ids. What Delta does besides,
conflicts between two writers and checksums, is for the tests that have Spark: a life has one writer.

As Delta does, it keeps a log that it has opened, and reads what is new in it, until a driver starts anew. A table's id
is read from where its log begins: nobody in a life makes a table anew, and to open one takes thirty times as long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.engine import executors, merge_spread
from customer_activity.engine.executors import ByLane, OnProgress, Reports, Stage, Task
from customer_activity.engine.workers import Executors, Here
from customer_activity.lake import delta, jvm
from customer_activity.state import catalogue


class NoSpark:
    """A session of which nothing is asked, and a plan that nobody runs."""

    def __init__(self) -> None:
        """Know no table."""
        self.opened: dict[str, DeltaTable] = {}

    @property
    def sparkSession(self) -> NoSpark:  # noqa: N802 - pyspark's name
        """Return the session."""
        return self

    def range(self, _rows: int) -> NoSpark:
        """Return a plan."""
        return self

    def forget_logs(self) -> None:
        """Know no table, as a new driver."""
        self.opened.clear()


opened_id = delta.table_id


class _Transaction(NamedTuple):
    """Delta's transaction, as far as one writer needs it."""

    table: DeltaTable
    log: Path


def _begin(nobody: NoSpark, path: str) -> _Transaction:
    if path not in nobody.opened:
        nobody.opened[path] = DeltaTable(path)
    nobody.opened[path].update_incremental()
    return _Transaction(nobody.opened[path], Path(path) / "_delta_log")


def _last_version(transaction: _Transaction, application: str) -> int:
    found = transaction.table.transaction_version(application)
    return -1 if found is None else found


def _read_version(transaction: _Transaction) -> int:
    return transaction.table.version()


def _commit(
    _: NoSpark,
    transaction: _Transaction,
    actions: Sequence[Mapping[str, Any]],
    user_metadata: str,
    *,
    is_append: bool = True,
) -> int:
    """Write the next entry; there must be none."""
    version = transaction.table.version() + 1
    info = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append" if is_append else "Overwrite"},
        "userMetadata": user_metadata,
    }
    with (transaction.log / f"{version:020}.json").open("x", encoding="utf-8") as entry:
        # As Delta writes them: deltalake reads some escapes of what is beyond U+FFFF as another character.
        entry.write("\n".join(json.dumps(each, ensure_ascii=False) for each in [{"commitInfo": info}, *actions]))
    return version


def _table_id(lake: str, table: Table) -> str:
    first = Path(table_path(lake, table)) / "_delta_log" / f"{0:020}.json"
    if not first.exists():
        return opened_id(lake, table)
    actions = map(json.loads, first.read_text(encoding="utf-8").splitlines())
    return str(next(action["metaData"]["id"] for action in actions if "metaData" in action))


def _run(_: NoSpark, shares: int, task: Task, progress: OnProgress) -> Reports:
    """Run a task for each share, one after the other."""
    return Here().run(shares, task, progress)


def _run_by_lane(_: NoSpark, shares: int, work: ByLane, progress: OnProgress) -> Reports:
    """Bring rows together by their lane, last rows first: Spark promises no order."""

    def reversing(stage: Stage) -> Stage:
        return stage._replace(task=lambda packed: stage.task(reversed(list(packed))))

    first, *others = map(reversing, work.stages)
    return Here().run_by_lane(shares, ByLane(work.pack, *first, tuple(others)), progress)


@contextmanager
def without_jvm(due_files: int = -1) -> Iterator[NoSpark]:
    """Commit, and do executors' work, without a JVM; yields what stands in for the session.

    Sorted runs are added to by each batch, or where more files than `due_files` are in none. Merges of a few rows are
    shared by some tasks.
    """
    with (
        patch.object(catalogue, "DUE_FILES", due_files),
        patch.object(merge_spread, "LEAST_ROWS", 1),
        patch.multiple(
            jvm,
            begin=_begin,
            last_version=_last_version,
            read_version=_read_version,
            read_all=_read_version,
            commit=_commit,
            forget_logs=NoSpark.forget_logs,
        ),
        patch.multiple(
            executors,
            run=_run,
            run_by_lane=_run_by_lane,
            parallelism=lambda _: 2,
        ),
        patch.object(Executors, "are_there", lambda _: True),
        patch.object(delta, "table_id", _table_id),
    ):
        yield NoSpark()
