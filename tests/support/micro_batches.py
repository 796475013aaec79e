"""Spark's streaming queries without Spark: each drains its sources as one batch, on checkpoints as Spark writes them.

The product's own `application.host` runs, with its leases, fences and checks at a start; its queries are these.
`tests/spark/test_versions.py` has the source that Spark plans batches from, `tests/spark/test_corrections.py` Spark's
own queries on checkpoints that a correction has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self
from unittest.mock import patch
from uuid import uuid4

from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.engine import session
from customer_activity.lake import delta, deltalog
from customer_activity.lease.epochs import ProcessLock


class Sources(NamedTuple):
    """What a query is planned from: the tables of a lake whose versions it reads, with their ids."""

    lake: str
    tables: Mapping[Table, str]

    def union(self, other: Sources) -> Sources:
        """Read both."""
        return Sources(self.lake, {**self.tables, **other.tables})

    @property
    def writeStream(self) -> Query:  # noqa: N802 - pyspark's name
        """Return a query of it that was not started."""
        return Query(self)


class Frame(NamedTuple):
    """A batch's frame, of which nothing but the id of its query is asked."""

    generation: str

    @property
    def sparkSession(self) -> Self:  # noqa: N802 - pyspark's name
        """Return what has the Spark context."""
        return self

    @property
    def sparkContext(self) -> Self:  # noqa: N802 - pyspark's name
        """Return what has the local properties."""
        return self

    def getLocalProperty(self, _name: str) -> str:  # noqa: N802 - pyspark's name
        """Return the query's id."""
        return self.generation


@dataclass
class Query:
    """A query that is described, and then has run."""

    sources: Sources
    name: str = ""
    work: Callable[[Frame, int], None] = lambda *_: None
    failure: Exception | None = None
    isActive: bool = False  # noqa: N815 - pyspark's name
    lastProgress: None = None  # noqa: N815 - pyspark's name

    def queryName(self, name: str) -> Self:  # noqa: N802 - pyspark's name
        """Name it."""
        self.name = name
        return self

    def foreachBatch(self, work: Callable[[Any, int], None]) -> Self:  # noqa: N802 - pyspark's name
        """Have each batch worked on so."""
        self.work = work
        return self

    def option(self, _name: str, _value: str) -> Self:
        """Its checkpoint is where its lake and its name say."""
        return self

    def trigger(self, **_how: object) -> Self:
        """It always ends with what is there."""
        return self

    def start(self) -> Self:
        """Repeat a batch that was not ended, and take what is there as the next one."""
        try:
            for generation, number, batch in self._batches():
                checkpoint.write(self.sources.lake, self.name, generation, number, batch)
                self.work(Frame(generation), number)
                checkpoint.write(self.sources.lake, self.name, generation, number, batch, is_committed=True)
        except Exception as error:  # noqa: BLE001 - whatever it is, the query has failed
            self.failure = error
        return self

    def exception(self) -> Exception | None:
        """Return why it failed."""
        return self.failure

    def stop(self) -> None:
        """It has ended."""

    def _batches(self) -> Iterator[tuple[str, int, OffsetRange]]:
        lake = self.sources.lake
        state = checkpoint.state(lake, self.name)
        generation = str(uuid4()) if state is None else state.generation
        last = None if state is None else state.planned
        begin = None
        if state is not None and last is not None:
            planned = checkpoint.cut(lake, self.name, last)
            assert planned is not None
            if state.committed != last:
                yield generation, last, planned
            begin = planned.end
        end = [
            offsets.after(table_id, deltalog.newest_version(lake, table))
            for table, table_id in self.sources.tables.items()
        ]
        if end != begin:
            yield generation, 0 if last is None else last + 1, OffsetRange(begin, end)


def _sources(_nobody: object, lake: str, table: Table, table_id: str, *, starting_version: int | None) -> Sources:
    return Sources(lake, {table: table_id})


def _lock(_nobody: object, path: Path) -> ProcessLock:
    return ProcessLock(path)


@contextmanager
def without_spark() -> Iterator[None]:
    """Have the queries that `application.host` starts drain here."""
    with patch.object(delta, "read_versions", _sources), patch.object(session, "JvmLock", _lock):
        yield
