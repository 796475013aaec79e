"""The source that Spark plans batches of change feeds from (infra/spark): whole versions, by Delta's own offsets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from customer_activity.catalog import Table, checkpoint_path, table_path
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import commits, delta
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from support.waiting import until

TABLE = Table.PROFILE_CHANGES  # any of those that are appended to
ROW = pa.table([pa.nulls(1, field.type) for field in arrow_schema(TABLE)], schema=arrow_schema(TABLE))
QUERY = "reader"
AWAIT_SECONDS = 30
GENERATION = "5f2d36b4-6d2a-4f6f-9c3c-0a4a2a0b9a11"


class Reader:
    """A stream that does nothing but note the versions of its batches."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        """Start nothing yet."""
        self.spark, self.lake = spark, lake
        self.batches: list[tuple[int, int]] = []  # the version read last, and the newest of the batch
        self.then: Callable[[], object] | None = None  # what happens once, in the next batch
        self.table_id = delta.table_id(lake, TABLE)

    def write(self, files: int = 1) -> int:
        """Commit so many files at once; return the version."""
        newest = DeltaTable(table_path(self.lake, TABLE)).version()
        written = []
        for _ in range(files):
            writer = FileWriter(self.lake, TABLE)
            writer.write(ROW)
            written.append(writer.close())
        version = commits.commit(self.spark, self.lake, TABLE, written, MicroBatch("writer", "by hand", newest))
        assert version == newest + 1
        return version

    def source(self, first: int | None = 0) -> DataFrame:
        """Return the frame that a stream is planned from."""
        return delta.read_versions(self.spark, self.lake, TABLE, self.table_id, starting_version=first)

    def deltas(self) -> DataFrame:
        """Return the frame of Delta's own source."""
        reader = self.spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        return reader.load(table_path(self.lake, TABLE)).select("_commit_version")

    def drain(self, frame: DataFrame | None = None) -> list[tuple[int, int]]:
        """Read what is there, and return the batches of it."""
        before = len(self.batches)
        self.begin_to_drain(frame).awaitTermination()
        return self.batches[before:]

    def begin_to_drain(self, frame: DataFrame | None = None) -> StreamingQuery:
        """Start a stream that ends."""
        return self._writer(self.source() if frame is None else frame).trigger(availableNow=True).start()

    def start(self) -> StreamingQuery:
        """Start a stream that stays."""
        return self._writer(self.source()).start()

    def has_read(self, version: int) -> bool:
        """Whether a batch has ended with a version."""
        return any(upto == version for _, upto in self.batches)

    def offset(self) -> dict[str, object]:
        """Return the newest offset in the checkpoint."""
        folder = Path(checkpoint_path(self.lake, QUERY), "offsets")
        newest = max(int(path.name) for path in folder.iterdir() if path.name.isdigit())
        found: dict[str, object] = json.loads((folder / str(newest)).read_text().splitlines()[2])
        return found

    def _writer(self, frame: DataFrame) -> DataStreamWriter:
        def note(rows: DataFrame, batch_id: int) -> None:
            cut = checkpoint.cut(self.lake, QUERY, batch_id)
            assert cut is not None
            self.batches.append(cut.versions({TABLE: 0})[TABLE])
            then, self.then = self.then, None
            if then is not None:
                then()

        return frame.writeStream.foreachBatch(note).option("checkpointLocation", checkpoint_path(self.lake, QUERY))


@pytest.fixture
def reader(spark: SparkSession, settings: Settings) -> Iterator[Reader]:
    """Return a reader of a table that has one version."""
    reader = Reader(spark, settings.lake)
    yield reader
    for query in spark.streams.active:
        query.stop()


def entry(lake: str, version: int) -> Path:
    """Return where a version's entry is."""
    return Path(table_path(lake, TABLE), "_delta_log", f"{version:020}.json")


def test_a_batch_has_the_versions_since_the_last_one(reader: Reader) -> None:
    assert reader.drain() == [(-1, 0)]
    assert reader.drain() == []
    for _ in range(3):
        reader.write()
    assert reader.drain() == [(0, 3)]
    assert reader.drain() == []


def test_a_stream_that_stays_takes_what_comes(reader: Reader) -> None:
    query = reader.start()
    for _ in range(3):
        version = reader.write()
        until(partial(reader.has_read, version))
    query.stop()
    assert [after for after, _ in reader.batches[1:]] == [upto for _, upto in reader.batches[:-1]]
    assert reader.batches[-1] == (version - 1, version)


@pytest.mark.parametrize("who_is_first", ["Delta", "ours"])
def test_a_checkpoint_goes_on_with_either_source(reader: Reader, who_is_first: str) -> None:
    first, second = (reader.deltas, reader.source) if who_is_first == "Delta" else (reader.source, reader.deltas)
    reader.write()
    assert reader.drain(first()) == [(-1, 1)]
    assert reader.offset() == json.loads(offsets.after(reader.table_id, 1))
    assert reader.drain(second()) == []
    reader.write()
    assert reader.drain(second()) == [(1, 2)]
    assert reader.offset() == json.loads(offsets.after(reader.table_id, 2))


@pytest.mark.parametrize(
    ("noted", "next_one"),
    [
        pytest.param({"reservoirVersion": 2, "index": -1}, 2, id="everything before a version"),
        pytest.param({"reservoirVersion": 2, "index": 0}, 3, id="a version with change files, which is read whole"),
        pytest.param({"reservoirVersion": 2, "index": 1}, 3, id="inside a version, by a limit on files"),
        pytest.param(
            {"reservoirVersion": 2, "index": 1, "isStartingVersion": True}, 3, id="inside the initial snapshot"
        ),
        pytest.param(
            {"reservoirVersion": 2, "index": -1, "isStartingVersion": True}, 0, id="before the initial snapshot"
        ),
        pytest.param({"reservoirVersion": 3, "index": 0}, 4, id="the newest version, after which nothing has come"),
    ],
)
def test_what_deltas_source_has_noted_is_read_as_it_was_meant(
    reader: Reader, noted: dict[str, object], next_one: int
) -> None:
    for _ in range(3):
        reader.write()
    source = {"sourceVersion": 1, "reservoirId": reader.table_id, "isStartingVersion": False, **noted}
    end = json.dumps(source, separators=(",", ":"))
    checkpoint.write(reader.lake, QUERY, GENERATION, 1, offsets.OffsetRange([end], [end]), is_committed=True)

    assert reader.drain() == ([(next_one - 1, 3)] if next_one <= 3 else [])
    assert reader.drain() == []


@pytest.mark.parametrize(
    ("limit", "most", "batches"),
    [
        pytest.param("MOST_FILES_A_BATCH", 2, [(-1, 2), (2, 4), (4, 5), (5, 6)], id="files"),
        pytest.param("MOST_BYTES_A_BATCH", 1, [(-1, 0), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)], id="bytes"),
    ],
)
def test_a_batch_of_several_versions_keeps_within_the_limits(
    reader: Reader, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, batches: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(delta, limit, most)
    for files in (1, 1, 1, 1, 3, 1):
        reader.write(files)
    assert reader.drain() == batches


def test_a_version_that_the_log_has_lost_ends_no_stream_in_silence(reader: Reader) -> None:
    reader.drain()
    for _ in range(3):
        reader.write()
    entry(reader.lake, 1).unlink()
    assert reader.drain() == [(0, 3)], "who reads the batch says what is lost"


@pytest.mark.parametrize("is_staying", [False, True], ids=["by a run that ends", "by one that stays"])
def test_a_table_that_was_put_back_is_noticed(reader: Reader, is_staying: bool) -> None:
    for _ in range(3):
        reader.write()
    reader.drain()
    for version in (2, 3):
        entry(reader.lake, version).unlink()
    query = reader.start() if is_staying else reader.begin_to_drain()
    with pytest.raises(StreamingQueryException, match="TABLE_PUT_BACK"):
        query.awaitTermination(AWAIT_SECONDS)


def test_a_run_that_ends_reads_what_was_there_when_it_began(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "MOST_FILES_A_BATCH", 3)
    for files in (3, 1, 1):
        reader.write(files)
    reader.then = partial(reader.write, 1)
    assert reader.drain() == [(-1, 1), (1, 3)], "the second batch has room for what came with the first"
    assert reader.drain() == [(3, 4)]


def test_a_log_without_its_beginning_is_read_from_its_newest_version(reader: Reader) -> None:
    for _ in range(2):
        reader.write()
    for version in (0, 1):
        entry(reader.lake, version).unlink()
    reader.drain(reader.source(None))
    assert reader.offset()["reservoirVersion"] == 3


def test_another_table_in_its_place_is_refused(reader: Reader) -> None:
    reader.drain()
    end = offsets.after("another-id", 0)
    checkpoint.set_aside(reader.lake, QUERY, datetime.now(UTC))
    checkpoint.write(reader.lake, QUERY, GENERATION, 1, offsets.OffsetRange([end], [end]), is_committed=True)
    with pytest.raises(StreamingQueryException, match="the checkpoint is of another table"):
        reader.drain()
