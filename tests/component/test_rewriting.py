"""Executors rewrite a large table's small files: the same rows in fewer files, and no reader sees anything of it.

What executors do is done here by their own tasks, one after the other; tests/spark/test_rewriting.py has Spark do it.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity import topology
from customer_activity.catalog import Table, lease_id, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors, queries, reach
from customer_activity.engine.queries import RunningQuery
from customer_activity.errors import LeaseLost, TransientError
from customer_activity.lake import commits, deltalog, feeds, jvm, named_operations
from customer_activity.lake.datafiles import ROW_GROUP_ROWS, FileWriter
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.feeds import Added
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.named_operations import Kind
from customer_activity.maintenance import maintenance, spread, tasks
from customer_activity.settings import Settings
from support import tables
from support.dying import Died, dies
from support.inspected import strip
from support.streams import Query
from support.without_jvm import NoSpark, without_jvm

TABLE = Table.PURCHASES
FILES = 12


@pytest.fixture
def nobody() -> Iterator[NoSpark]:
    """Commit, and work as executors do, without a JVM."""
    with without_jvm() as found:
        yield found


@pytest.fixture
def lake(lake: str, nobody: NoSpark, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a lake whose silver.purchases has twelve small files, of which four make a file of the new size."""
    for number in range(FILES):
        append(nobody, lake, number)
    size = max(file.size for file in spread.small_files(lake, TABLE))
    monkeypatch.setattr(spread, "TARGET_BYTES", 4 * size + size // 2)
    monkeypatch.setattr(spread, "SMALL_BYTES", 2 * size)
    monkeypatch.setattr(spread, "LARGE_BYTES", 8 * size)
    return lake


def append(nobody: NoSpark, lake: str, number: int, epoch: int = 1) -> None:
    """Append a purchase as silver does."""
    batch = MicroBatch(Query.SILVER, "g-1", number, fencing_epoch=lambda: epoch)
    bulk = random.Random(number).randbytes(20_000).hex()
    row = {"purchase_id": f"P-{number:03}", "product_id": bulk, "landing": number}
    commits.append(nobody, lake, TABLE, pa.Table.from_pylist([row], arrow_schema(TABLE)), batch)  # type: ignore[arg-type]


def writers(settings: Settings, epoch: int = 1) -> list[RunningQuery]:
    return [
        RunningQuery(
            query,
            lambda: pytest.fail("nothing starts here"),
            settings,
            threading.Event(),
            fencing_epoch=lambda: epoch,
        )
        for query in topology.writers(TABLE)
    ]


def rewrite(nobody: NoSpark, settings: Settings, *, epoch: int = 1, **more: Any) -> int:
    stopping = threading.Event()
    return spread.rewrite(nobody, settings, TABLE, writers(settings, epoch), **{"stopping": stopping, **more})  # type: ignore[arg-type]


def ids(lake: str) -> list[str]:
    return sorted(tables.opened(lake, TABLE).to_pyarrow_table().column("purchase_id").to_pylist())


ALL = [f"P-{number:03}" for number in range(FILES)]


def in_file(lake: str, path: str) -> list[str]:
    return list(pq.read_table(Path(table_path(lake, TABLE), path)).column("purchase_id").to_pylist())


def test_neighbours_become_one_file_and_no_row_changes(settings: Settings, nobody: NoSpark, lake: str) -> None:
    version = tables.newest(lake, TABLE)
    assert rewrite(nobody, settings) == 4, "half of two cores is one task's work at a time"
    assert tables.newest(lake, TABLE) == version + 1
    assert len(tables.opened(lake, TABLE).file_uris()) == FILES - 4 + 1
    assert ids(lake) == ALL
    (made,) = [file for file in feeds.snapshot(lake, TABLE, version + 1) if file.rows > 1]
    assert in_file(lake, made.path) == ALL[:4], "in the order in which they landed"


def test_all_of_a_table_is_rewritten_once_and_then_nothing(settings: Settings, nobody: NoSpark, lake: str) -> None:
    assert [rewrite(nobody, settings) for _ in range(4)] == [4, 4, 4, 0]
    assert len(tables.opened(lake, TABLE).file_uris()) == FILES / 4
    assert ids(lake) == ALL


def test_no_reader_of_the_feed_sees_anything(settings: Settings, nobody: NoSpark, lake: str) -> None:
    version = tables.newest(lake, TABLE)
    rewrite(nobody, settings)
    entry = deltalog.entry(lake, TABLE, version + 1)
    assert entry is not None
    assert named_operations.classify(entry.actions).kind is Kind.MAINTENANCE
    feed = feeds.read(lake, {TABLE: ["purchase_id"]}, {TABLE: (version, version + 1)})
    assert feed.files == []
    whole = feeds.read(lake, {TABLE: ["purchase_id"]}, {TABLE: (-1, version + 1)})
    assert sum(file.rows for file in whole.files) == FILES


@pytest.mark.parametrize("point", [FailPoint.STAGED, FailPoint.COMPACTED])
def test_a_crash_changes_no_row_and_the_next_time_does_the_rest(
    settings: Settings, nobody: NoSpark, lake: str, point: FailPoint
) -> None:
    version = tables.newest(lake, TABLE)
    with pytest.raises(Died):
        rewrite(nobody, settings, failpoint=dies(point))
    assert ids(lake) == ALL
    assert tables.newest(lake, TABLE) == version + (point is FailPoint.COMPACTED)
    while rewrite(nobody, settings):
        pass
    assert ids(lake) == ALL
    assert len(tables.opened(lake, TABLE).file_uris()) == FILES / 4


def test_a_driver_that_was_replaced_commits_nothing(settings: Settings, nobody: NoSpark, lake: str) -> None:
    append(nobody, lake, FILES, epoch=2)
    version = tables.newest(lake, TABLE)
    with pytest.raises(LeaseLost):
        rewrite(nobody, settings)
    assert tables.newest(lake, TABLE) == version


def test_a_driver_that_is_replaced_meanwhile_commits_nothing(
    settings: Settings, nobody: NoSpark, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "require_here", lambda *_: append(nobody, lake, FILES, epoch=2))
    with pytest.raises(LeaseLost):
        rewrite(nobody, settings)
    assert tables.newest(lake, TABLE) == FILES + 1


def test_the_epoch_of_the_lease_is_noted_as_with_an_append(settings: Settings, nobody: NoSpark, lake: str) -> None:
    rewrite(nobody, settings, epoch=3)
    assert tables.opened(lake, TABLE).transaction_version(lease_id(Query.SILVER)) == 3
    with pytest.raises(LeaseLost):
        append(nobody, lake, FILES, epoch=2)


def test_an_append_meanwhile_is_no_conflict(
    settings: Settings, nobody: NoSpark, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "require_here", lambda *_: append(nobody, lake, FILES))
    assert rewrite(nobody, settings) == 4
    assert ids(lake) == [*ALL, f"P-{FILES:03}"]


def test_files_that_somebody_else_has_removed_are_not_replaced(
    settings: Settings, nobody: NoSpark, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "require_here", lambda *_: maintenance.compact(lake, TABLE))
    with pytest.raises(TransientError, match=r"removed 4 of 4 files that were rewritten from silver.purchases"):
        rewrite(nobody, settings)
    assert ids(lake) == ALL


@pytest.mark.parametrize("ends", ["waiting", "the driver"])
def test_it_is_committed_between_two_batches_or_not_at_all(
    settings: Settings, nobody: NoSpark, lake: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "HELD_SECONDS", 0.0)
    monkeypatch.setattr(spread, "COMMIT_SECONDS", 0.05 if ends == "waiting" else 3_600.0)
    stopping = threading.Event()
    if ends == "the driver":
        stopping.set()
    version = tables.newest(lake, TABLE)
    busy = writers(settings)
    with busy[0].at_work, pytest.raises(spread.NotNow):
        spread.rewrite(nobody, settings, TABLE, busy, stopping=stopping)  # type: ignore[arg-type]
    assert tables.newest(lake, TABLE) == version


class Noted:
    """A writer's lock that was not taken yet, and says so when it is."""

    def __init__(self) -> None:
        self.was_taken = False

    def locked(self) -> bool:
        return False

    def acquire(self, *, timeout: float) -> bool:
        assert timeout > 0.0
        self.was_taken = True
        return True

    def release(self) -> None:
        pass


def test_a_writer_is_not_held_while_another_is_waited_for(
    settings: Settings, nobody: NoSpark, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "HELD_SECONDS", 0.01)
    monkeypatch.setattr(spread, "COMMIT_SECONDS", 0.05)
    idle, busy = writers(settings)[0], writers(settings)[0]
    noted = Noted()
    monkeypatch.setattr(idle, "at_work", noted)
    with busy.at_work, pytest.raises(spread.NotNow):
        spread.rewrite(nobody, settings, TABLE, [idle, busy], stopping=threading.Event())  # type: ignore[arg-type]
    assert not noted.was_taken


def test_rows_that_are_not_what_the_log_says_are_not_committed(
    settings: Settings, nobody: NoSpark, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = FileWriter.close

    def loses_a_row(writer: FileWriter) -> Any:
        made = close(writer)
        return made and made._replace(rows=made.rows - 1)

    monkeypatch.setattr(FileWriter, "close", loses_a_row)
    version = tables.newest(lake, TABLE)
    with pytest.raises(AssertionError, match=r"silver.purchases: executors have not written the rows"):
        rewrite(nobody, settings)
    assert tables.newest(lake, TABLE) == version


def test_a_column_that_a_file_lacks_is_null_and_row_groups_are_of_64_k_rows(lake: str) -> None:
    rows = 3 * ROW_GROUP_ROWS - 1
    older = pa.table({"purchase_id": [f"P-{number}" for number in range(rows)]})
    pq.write_table(older, Path(table_path(lake, TABLE), "older.parquet"), row_group_size=rows)
    work = tasks.Work(lake, TABLE, [["older.parquet"]])
    (report,) = reports_of(work)
    made = pq.ParquetFile(Path(table_path(lake, TABLE), report["file"][0]))
    assert [made.metadata.row_group(group).num_rows for group in range(made.num_row_groups)] == [
        ROW_GROUP_ROWS,
        ROW_GROUP_ROWS,
        ROW_GROUP_ROWS - 1,
    ]
    assert made.schema_arrow.names == arrow_schema(TABLE).names
    found = made.read()
    assert found.column("purchase_id").equals(older.column("purchase_id"))
    assert found.column("landing").null_count == rows


def reports_of(work: tasks.Work) -> list[dict[str, Any]]:
    return executors.run(None, len(work.shares), partial(tasks.rewrite, work), lambda _: None)  # type: ignore[arg-type]


SIZES = st.lists(st.integers(1, spread.SMALL_BYTES - 1), max_size=40)


@given(SIZES)
def test_shares_are_neighbours_of_about_the_target(sizes: list[int]) -> None:
    files = [Added(0, str(number), size, 1) for number, size in enumerate(sizes)]
    found = spread.shares(files)
    assert [file for group in found for file in group] == sorted(
        (file for group in found for file in group), key=lambda file: int(file.path)
    )
    for group in found:
        numbers = [int(file.path) for file in group]
        assert numbers == list(range(numbers[0], numbers[-1] + 1))
        assert len(group) > 1
        assert spread.SMALL_BYTES <= sum(file.size for file in group) <= spread.TARGET_BYTES
    left = sum(sizes) - sum(file.size for group in found for file in group)
    assert left < spread.SMALL_BYTES, "of files each below half of the target no more than one group is left"


def test_files_of_the_target_and_those_of_unknown_content_stay(lake: str) -> None:
    bulk = random.Random(0).randbytes(spread.SMALL_BYTES).hex()
    tables.append(lake, TABLE, {"purchase_id": bulk})
    assert len(tables.opened(lake, TABLE).file_uris()) == FILES + 1
    assert len(spread.small_files(lake, TABLE)) == FILES, "the large one is none of them"
    tables.entry(lake, TABLE, FILES).write_text(
        "\n".join(
            json.dumps(strip(json.loads(line))) for line in tables.entry(lake, TABLE, FILES).read_text().splitlines()
        )
    )
    assert len(spread.small_files(lake, TABLE)) == FILES - 1, "nor is the one without statistics"


class TestIsDue:
    @pytest.fixture
    def cluster(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
        monkeypatch.setattr(jvm, "executors", lambda _: 2)
        return settings.model_copy(update={"spark_master": "spark://somewhere:7077"})

    def test_many_small_files_are(self, cluster: Settings, nobody: NoSpark, lake: str) -> None:
        assert spread.is_due(nobody, cluster, TABLE)  # type: ignore[arg-type]

    def test_few_are_not(self, cluster: Settings, nobody: NoSpark, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spread, "LARGE_BYTES", 1 << 30)
        assert not spread.is_due(nobody, cluster, TABLE)  # type: ignore[arg-type]

    def test_current_rows_are_not(
        self, cluster: Settings, nobody: NoSpark, lake: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(spread, "LARGE_BYTES", 0)
        due = {table for table in topology.tables() if spread.is_due(nobody, cluster, table)}  # type: ignore[arg-type]
        assert due == set(topology.tables()) - {Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY}

    @pytest.mark.parametrize(
        "changed", [{"spark_master": "local[*]"}, {"placement": "driver"}], ids=["local", "in the driver"]
    )
    def test_without_executors_nothing_is(
        self, cluster: Settings, nobody: NoSpark, lake: str, changed: dict[str, str]
    ) -> None:
        assert not spread.is_due(nobody, cluster.model_copy(update=changed), TABLE)  # type: ignore[arg-type]


class Session:
    """A session of which nothing is asked but to name its jobs."""

    master = "local[2]"

    @property
    def sparkContext(self) -> Session:  # noqa: N802 - pyspark's name
        return self

    def setJobGroup(self, *_: object, **__: object) -> None:  # noqa: N802
        pass

    def cancelJobGroup(self, _: str) -> None:  # noqa: N802
        pass


class TestRewriting:
    @pytest.fixture(autouse=True)
    def due(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spread, "is_due", lambda *_: True)
        monkeypatch.setattr(jvm, "is_alive", lambda _: True)

    def test_one_table_is_at_work_at_a_time(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        goes_on = threading.Event()
        monkeypatch.setattr(spread, "rewrite", lambda *_, **__: goes_on.wait() and 4)
        rewriting = spread.Rewriting(Session(), settings)  # type: ignore[arg-type]
        assert rewriting.begin(TABLE, [])
        assert not rewriting.begin(Table.PURCHASE_EVENTS, [])
        rewriting.look()
        assert rewriting.table is TABLE
        goes_on.set()
        rewriting.thread.shutdown()
        rewriting.look()
        assert rewriting.table is None

    def test_what_failed_is_tried_again_later(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(*_: object, **__: object) -> int:
            raise LeaseLost("lease of silver")

        monkeypatch.setattr(spread, "rewrite", fails)
        now = 1_000.0
        monkeypatch.setattr(spread.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
        rewriting = spread.Rewriting(Session(), settings)  # type: ignore[arg-type]
        assert rewriting.begin(TABLE, [])
        rewriting.thread.shutdown()
        rewriting.look()
        assert "silver.purchases: compaction on executors failed, tried again later: lease of silver" in caplog.text
        rewriting.thread = ThreadPoolExecutor(1)
        assert not rewriting.begin(TABLE, [])
        now += spread.RETRY_SECONDS
        assert rewriting.begin(TABLE, [])
        rewriting.close()

    def test_a_driver_that_stops_ends_what_is_at_work(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cancelled = threading.Event()
        monkeypatch.setattr(Session, "cancelJobGroup", lambda *_: cancelled.set())
        monkeypatch.setattr(spread, "rewrite", lambda *_, **__: cancelled.wait(60) and 0)
        rewriting = spread.Rewriting(Session(), settings)  # type: ignore[arg-type]
        rewriting.begin(TABLE, [])
        rewriting.close()
        assert cancelled.is_set()

    def test_what_waits_for_executors_that_have_gone_is_ended(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Nothing else is done to its table meanwhile, and they may be gone for days."""
        cancelled, now = threading.Event(), 1_000.0
        is_alone = iter([True, False, True, True, True])  # one comes in between

        def waits(*_: Any, **__: Any) -> int:
            cancelled.wait(60)
            raise TransientError("the job was cancelled")

        monkeypatch.setattr(Session, "cancelJobGroup", lambda *_: cancelled.set())
        monkeypatch.setattr(jvm, "lacks_executors", lambda _: next(is_alone))
        monkeypatch.setattr(spread, "rewrite", waits)
        monkeypatch.setattr(spread.time, "monotonic", lambda: now)  # type: ignore[attr-defined]
        rewriting = spread.Rewriting(Session(), settings)  # type: ignore[arg-type]
        rewriting.begin(TABLE, [])
        for _ in range(3):
            rewriting.look()
            now += spread.ALONE_SECONDS
        rewriting.look()
        assert not cancelled.is_set()
        now += 1
        rewriting.look()
        assert cancelled.is_set()
        rewriting.thread.shutdown()
        rewriting.look()
        assert rewriting.table is None
        assert "silver.purchases: compaction on executors failed, tried again later" in caplog.text

    def test_without_a_session_nothing_is_begun(self, settings: Settings) -> None:
        rewriting = spread.Rewriting(None, settings)
        assert not rewriting.begin(TABLE, [])
        rewriting.close()
