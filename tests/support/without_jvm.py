"""Commits without a JVM: in the place of Delta's transaction class one of a few lines, which writes the same entry.

The product's own `commits.commit` runs, with its fences and its look at transaction ids. What Delta does besides,
conflicts between two writers and checksums, is for the tests that have Spark: a life has one writer.

As Delta does, it keeps a log that it has opened, and reads what is new in it, until a driver starts anew. A table's id
is read from where its log begins: nobody in a life makes a table anew, and to open one takes thirty times as long.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.lake import commits, delta


class NoSpark:
    """A session of which nothing is asked, and a plan that nobody runs."""

    _jsparkSession = None  # noqa: N815 - pyspark's name

    def __init__(self) -> None:
        """Know no table."""
        self.delta_log = _DeltaLog()

    @property
    def sparkSession(self) -> NoSpark:  # noqa: N802 - pyspark's name
        """Return the session."""
        return self

    def range(self, _rows: int) -> NoSpark:
        """Return a plan."""
        return self

    def forget_logs(self) -> None:
        """Know no table, as a new driver."""
        self.delta_log.opened.clear()


opened_id = delta.table_id


class _Nothing:
    """Scala's None."""

    def isDefined(self) -> bool:  # noqa: N802 - as Scala names it
        return False


class _Snapshot:
    def checksumOpt(self) -> _Nothing:  # noqa: N802
        return _Nothing()


class _Transaction:
    """Delta's OptimisticTransaction, as far as one writer needs it."""

    def __init__(self, path: str, table: DeltaTable) -> None:
        self.table = table
        self.log = Path(path) / "_delta_log"

    def snapshot(self) -> _Snapshot:
        return _Snapshot()

    def txnVersion(self, application: str) -> int:  # noqa: N802
        found = self.table.transaction_version(application)
        return -1 if found is None else found

    def commit(self, actions: Sequence[str], metadata: str) -> int:
        """Write the next entry; there must be none."""
        version = self.table.version() + 1
        info = {
            "timestamp": time.time_ns() // 1_000_000,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append"},
            "userMetadata": metadata,
        }
        with (self.log / f"{version:020}.json").open("x", encoding="utf-8") as entry:
            entry.write("\n".join([json.dumps({"commitInfo": info}), *actions]))
        return version


class _Log:
    def __init__(self, path: str) -> None:
        self.path = path
        self.table = DeltaTable(path)

    def startTransaction(self) -> _Transaction:  # noqa: N802
        self.table.update_incremental()
        return _Transaction(self.path, self.table)


class _DeltaLog:
    def __init__(self) -> None:
        self.opened: dict[str, _Log] = {}

    def forTable(self, _session: object, path: str) -> _Log:  # noqa: N802
        if path not in self.opened:
            self.opened[path] = _Log(path)
        return self.opened[path]


class _Action:
    @staticmethod
    def fromJson(text: str) -> str:  # noqa: N802
        return text


class _Actions(list[str]):
    def add(self, action: str) -> None:
        self.append(action)

    def toSeq(self) -> _Actions:  # noqa: N802
        return self


class _Same:
    @staticmethod
    def apply(value: Any) -> Any:
        return value

    @staticmethod
    def asScala(value: Any) -> Any:  # noqa: N802
        return value


def _write(_mode: object, _partitions: object, _predicate: object, metadata: str, *_more: object) -> str:
    return metadata


def _table_id(lake: str, table: Table) -> str:
    first = Path(table_path(lake, table)) / "_delta_log" / f"{0:020}.json"
    if not first.exists():
        return opened_id(lake, table)
    actions = map(json.loads, first.read_text(encoding="utf-8").splitlines())
    return str(next(action["metaData"]["id"] for action in actions if "metaData" in action))


@contextmanager
def without_jvm() -> Iterator[NoSpark]:
    """Commit without a JVM; yields what stands in for the session."""
    nobody = NoSpark()
    java = commits._Java(
        delta_log=nobody.delta_log,
        action=_Action,
        write=_write,
        append=None,
        some=_Same,
        none=None,
        to_scala=_Same,
        array_list=_Actions,
    )
    with (
        patch.object(commits, "_java", lambda _: java),
        patch.object(commits, "jvm", lambda _: None),
        patch.object(delta, "table_id", _table_id),
    ):
        yield nobody
