"""VACUUM removes what nobody reads any more, and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.contracts.columns import Kept
from customer_activity.contracts.tables import TABLES
from customer_activity.lake import delta
from customer_activity.lake.datafiles import ROW_GROUP_ROWS
from customer_activity.lake.failpoints import FailPoint
from customer_activity.maintenance import maintenance, tending
from customer_activity.settings import PROJECT
from customer_activity.verification import lake as verified
from support import tables
from support.streams import Query

TABLE = Table.PURCHASES
FILES = 4
BEGIN = datetime(2026, 1, 2, tzinfo=UTC)
NOW = timedelta(0)  # a retention that is over at once


def append(lake: str, *numbers: int) -> None:
    tables.append(lake, TABLE, *({"purchase_id": f"P-{number}"} for number in numbers), batch_id=numbers[0])


@pytest.fixture
def compacted(lake: str) -> str:
    """Return a lake whose silver.purchases was written in four commits and compacted to one file."""
    for number in range(FILES):
        append(lake, number)
    assert maintenance.compact(lake, TABLE) == FILES + 1
    return lake


def has_read(lake: str, query: Query, version: int) -> None:
    """Write the checkpoint of a query whose last batch began behind a version of silver.purchases."""
    end = {"reservoirId": delta.table_id(lake, TABLE), "reservoirVersion": version + 1, "index": -1}
    checkpoint.write(lake, query, "g-1", 1, OffsetRange([json.dumps(end)], [json.dumps(end)]), is_committed=True)


READERS = (Query.GOLD, Query.SUMMARIES)


def all_have_read(lake: str) -> None:
    """Write the checkpoints of readers that are through."""
    for query in READERS:
        has_read(lake, query, tables.newest(lake, TABLE))


def files(lake: str) -> int:
    """How many data files there are, in the table or not."""
    return len(list(Path(table_path(lake, TABLE)).glob("*.parquet")))


def ids(lake: str) -> list[str]:
    """The rows."""
    return sorted(tables.opened(lake, TABLE).to_pyarrow_table().column("purchase_id").to_pylist())


COMPACTION = """
import sys
from customer_activity.catalog import Table
from customer_activity.maintenance import maintenance, tending
maintenance.compact(sys.argv[1], Table.PURCHASES)
"""
ALL = [f"P-{number}" for number in range(FILES)]


def test_a_compaction_divides_a_file_into_what_a_task_reads_at_once(lake: str) -> None:
    append(lake, *range(ROW_GROUP_ROWS))
    append(lake, *range(ROW_GROUP_ROWS, ROW_GROUP_ROWS + 10))
    maintenance.compact(lake, TABLE, target_bytes=maintenance.RESTING_BYTES[TABLE])
    (file,) = DeltaTable(table_path(lake, TABLE)).file_uris()
    made = pq.read_metadata(file)
    assert [made.row_group(group).num_rows for group in range(made.num_row_groups)] == [ROW_GROUP_ROWS, 10]


def test_a_compaction_cuts_the_bounds_of_long_texts(lake: str) -> None:
    """Whole, they would be in the statistics of each row group: of large records more than the rows take."""
    for number in range(2):
        tables.append(lake, TABLE, {"purchase_id": f"{number}{'x' * 5_000}"}, batch_id=number)
    maintenance.compact(lake, TABLE)
    (file,) = DeltaTable(table_path(lake, TABLE)).file_uris()
    made = pq.ParquetFile(file)
    column = made.schema_arrow.get_field_index("purchase_id")
    assert len(made.metadata.row_group(0).column(column).statistics.max) <= 64


def test_a_table_is_tended_however_little_there_is_to_do(compacted: str) -> None:
    all_have_read(compacted)
    append(compacted, FILES)
    done = tending.tend(compacted, TABLE)
    assert (done.files_before, done.files_after, done.error) == (2, 1, "")
    assert done.bytes_before > done.bytes_after == tending.size(compacted, TABLE)[1] > 0
    assert (log_of(compacted) / "_last_checkpoint").exists()
    assert ids(compacted) == [*ALL, f"P-{FILES}"]


def test_a_reader_that_is_behind_is_named_when_a_table_is_tended(compacted: str) -> None:
    assert tending.tend(compacted, TABLE).behind == tuple(
        f"{query} has not begun to read silver.purchases" for query in READERS
    )


def test_what_fails_while_a_table_is_tended_is_said(compacted: str) -> None:
    shutil.rmtree(table_path(compacted, TABLE))
    done = tending.tend(compacted, TABLE)
    assert done.error.startswith("TableNotFoundError")


def test_what_a_compaction_replaced_is_removed(compacted: str) -> None:
    all_have_read(compacted)
    done = maintenance.vacuum(compacted, TABLE, NOW)
    assert (done.files, done.behind, files(compacted)) == (FILES, [], 1)
    assert done.bytes > 0
    assert ids(compacted) == ALL


def test_what_a_reader_still_needs_stays(compacted: str) -> None:
    has_read(compacted, Query.GOLD, FILES + 1)
    has_read(compacted, Query.SUMMARIES, 2)

    done = maintenance.vacuum(compacted, TABLE, NOW)

    assert done.files == 0
    assert done.behind == [f"summaries needs silver.purchases from version 2 on, which has {FILES + 1}"]
    feed = pa.table(tables.opened(compacted, TABLE).load_cdf(3, FILES))
    assert sorted(feed.column("purchase_id").to_pylist()) == ALL[2:]


def test_a_reader_that_has_not_begun_needs_everything(compacted: str) -> None:
    has_read(compacted, Query.GOLD, FILES + 1)
    assert maintenance.vacuum(compacted, TABLE, NOW).behind == ["summaries has not begun to read silver.purchases"]


def test_without_the_guard_the_reader_would_lose_its_change_feed(
    compacted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_read(compacted, Query.SUMMARIES, 2)
    monkeypatch.setattr(maintenance, "readers_behind", lambda *_: [])
    assert maintenance.vacuum(compacted, TABLE, NOW).files == FILES
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        pa.table(tables.opened(compacted, TABLE).load_cdf(3, FILES))


def test_what_is_within_the_retention_stays_without_a_look_at_readers(compacted: str) -> None:
    has_read(compacted, Query.GOLD, FILES + 1)
    has_read(compacted, Query.SUMMARIES, 2)
    assert maintenance.vacuum(compacted, TABLE) == (0, 0, [])
    assert files(compacted) == FILES + 1


def test_a_file_that_was_never_committed_is_removed(compacted: str) -> None:
    all_have_read(compacted)
    Path(table_path(compacted, TABLE), "part-of-a-crashed-batch.snappy.parquet").write_bytes(b"PAR1")
    assert maintenance.vacuum(compacted, TABLE, NOW).files == FILES + 1


class Crash(Exception):
    """Raised at a fail point, as if the process had ended there."""


def test_a_vacuum_that_ends_halfway_is_finished_by_the_next(compacted: str) -> None:
    all_have_read(compacted)

    def end(at: FailPoint) -> None:
        assert at is FailPoint.VACUUMING
        raise Crash

    with pytest.raises(Crash):
        maintenance.vacuum(compacted, TABLE, NOW, end)
    assert files(compacted) == 1 + FILES - FILES // 2
    assert ids(compacted) == ALL

    assert maintenance.vacuum(compacted, TABLE, NOW).files == FILES - FILES // 2
    assert ids(compacted) == ALL


def test_a_compaction_that_is_killed_changes_nothing(lake: str) -> None:
    for part in range(40):
        append(lake, *range(part * 10_000, (part + 1) * 10_000))
    before, version, wanted = files(lake), tables.newest(lake, TABLE), ids(lake)
    with subprocess.Popen([sys.executable, "-c", COMPACTION, lake], cwd=PROJECT / "jobs") as compaction:
        Retrying(
            retry=retry_if_result(lambda is_at_work: not is_at_work), stop=stop_after_delay(60), wait=wait_fixed(0.001)
        )(lambda: files(lake) > before)
        compaction.kill()

    assert tables.newest(lake, TABLE) == version, "killed after its commit"
    assert ids(lake) == wanted
    assert maintenance.compact(lake, TABLE) == version + 1
    assert ids(lake) == wanted


KEPT = 3


@pytest.fixture
def long(lake: str) -> str:
    """Return a lake with fifteen commits to silver.purchases, and checkpoints of its log at 5 and 10."""
    for number in range(1, 16):
        append(lake, number)
        if number in (5, 10):
            tables.opened(lake, TABLE).create_checkpoint()
    return lake


def log_of(lake: str) -> Path:
    return Path(table_path(lake, TABLE), "_delta_log")


def in_log(lake: str) -> list[int]:
    """Versions that the log of silver.purchases has."""
    return sorted(int(entry.name[:20]) for entry in log_of(lake).glob("*.json"))


def said(lake: str) -> tuple[int, list[int]]:
    """What the verifier finds of the commits: the first version, and the batches' numbers."""
    found = verified.commits(lake, TABLE, tables.opened(lake, TABLE))
    return found.first_version, sorted(note["batch_id"] for note in found.metadata)


def test_a_log_is_shortened_to_a_checkpoint_and_what_it_said_is_kept(long: str) -> None:
    all_have_read(long)
    wanted = ids(long)
    assert maintenance.shorten(long, TABLE, KEPT) == 10
    assert in_log(long) == [10, 11, 12, 13, 14, 15]
    assert ids(long) == wanted
    assert said(long) == (0, list(range(1, 16)))
    assert maintenance.shorten(long, TABLE, KEPT) == 0
    assert maintenance.shorten(long, TABLE, 15) == 0


@pytest.mark.parametrize(("read", "first"), [(15, 10), (10, 10), (9, 5), (4, 0), (0, 0), (None, 0)])
def test_a_log_keeps_what_a_reader_needs(long: str, read: int | None, first: int) -> None:
    has_read(long, Query.GOLD, 15)
    if read is not None:
        has_read(long, Query.SUMMARIES, read)
    maintenance.shorten(long, TABLE, KEPT)
    assert in_log(long)[0] == first


def test_a_shortening_that_ends_halfway_is_finished_by_the_next(long: str, tmp_path: Path) -> None:
    all_have_read(long)
    whole = shutil.copytree(log_of(long), tmp_path / "whole")
    maintenance.shorten(long, TABLE, KEPT)
    for version in range(4, 10):  # it had come as far as version 3
        shutil.copy(whole / f"{version:020}.json", log_of(long))
    assert said(long) == (0, list(range(1, 16)))
    assert maintenance.shorten(long, TABLE, KEPT) == 6
    assert in_log(long)[0] == 10
    assert said(long) == (0, list(range(1, 16)))


def test_a_log_that_was_kept_for_a_reader_becomes_short_by_slices(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "SLICE_COMMITS", 4)
    all_have_read(long)
    wanted = ids(long)
    first = []
    while maintenance.shorten(long, TABLE, KEPT):
        first.append(in_log(long)[0])
        assert ids(long) == wanted
        assert said(long) == (0, list(range(1, 16)))
    assert first == [4, 8, 10]


def test_checksums_that_nobody_needs_do_not_wait_for_a_reader(long: str) -> None:
    for version in range(16):
        (log_of(long) / f"{version:020}.crc").touch()
    maintenance.shorten(long, TABLE, KEPT)  # nobody has begun to read
    assert in_log(long) == list(range(16))
    assert sorted(int(path.stem) for path in log_of(long).glob("*.crc")) == [12, 13, 14, 15]


def test_the_log_of_a_table_that_grows_stays_short(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    declared = TABLES[TABLE]._replace(kept=Kept(KEPT, 1))
    monkeypatch.setitem(TABLES, TABLE, declared)
    for number in range(16, 60):
        append(long, number)
        for query in READERS:
            checkpoint.set_aside(long, query, BEGIN + timedelta(seconds=number))
        all_have_read(long)
        maintenance.checkpoint_log(long, TABLE, every=5)
        assert len(in_log(long)) <= 15
    assert len(ids(long)) == 59
    assert said(long)[0] == 0
