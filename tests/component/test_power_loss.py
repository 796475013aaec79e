"""What outlasts a loss of power: a data file before a commit names it, and a commit before anything relies on it."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import TerminalError
from customer_activity.lake import delta, deltalog
from customer_activity.lake.datafiles import FileWriter
from customer_activity.maintenance import maintenance
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import replay
from customer_activity.rebuild import building
from customer_activity.settings import Settings
from customer_activity.storage import filesystem
from support import tables
from support.corrections import correct
from support.records import NOW_MS, PROFILES, profile
from support.streams import Query

TABLE = Table.PURCHASES
REFUSED = {"reason": "timestamp_in_future", "topic": PROFILES, "partition": 0, "offset": 5, "landing": 1}


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what is brought to the disk, by name."""
    names: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return names


def rows(number: int) -> pa.Table:
    return pa.Table.from_pylist([{"purchase_id": f"P-{number}"}], arrow_schema(TABLE))


def test_a_data_file_is_on_the_disk_before_it_can_be_committed(lake: str, settled: list[str]) -> None:
    writer = FileWriter(lake, TABLE)
    writer.write(rows(1))
    file = writer.close()
    assert file is not None
    assert settled == [file.path, "purchases"]


def test_what_others_commit_for_us_is_brought_to_the_disk(lake: str, settled: list[str]) -> None:
    for number in range(2):
        write_deltalake(table_path(lake, TABLE), rows(number), mode="append")
    assert maintenance.compact(lake, TABLE) == 3
    (added,) = (Path(uri).name for uri in tables.opened(lake, TABLE).file_uris())
    assert {added, f"{3:020}.json"} <= set(settled)


def test_a_new_table_is_on_the_disk(settings: Settings, settled: list[str]) -> None:
    delta.create(settings.lake, TABLE)
    assert {f"{0:020}.json", "_delta_log"} <= set(settled)


def test_a_replay_has_appended_what_it_removes(settings: Settings, lake: str, settled: list[str]) -> None:
    sent = {"key": b"C-1", "value": profile("C-1").value, "kafka_timestamp": datetime.fromtimestamp(NOW_MS / 1000, UTC)}
    tables.append(lake, Table.QUARANTINE, REFUSED | sent, query=Query.BRONZE, landing=1)
    settled.clear()
    replay(settings, Selection(), "clocks are set")
    appended, removed = f"{1:020}.json", f"{2:020}.json"
    assert {appended, removed} <= set(settled)
    assert settled.index(appended) < settled.index(removed)


def test_what_a_rebuild_commits_is_brought_to_the_disk(lake: str, settled: list[str]) -> None:
    building.add(lake, TABLE, [])
    assert f"{1:020}.json" in settled


def test_what_a_correction_commits_is_brought_to_the_disk(lake: str, settled: list[str]) -> None:
    rows = [{"purchase_id": "P-1"}]
    correct(lake, TABLE, ("purchase_id",), [], rows)
    assert next(at for at, name in enumerate(settled) if name.endswith("added.parquet")) < settled.index(
        f"{1:020}.json"
    )
    correct(lake, TABLE, ("purchase_id",), rows, [])
    assert f"{2:020}.json" in settled


def test_small_files_of_ours_are_whole_after_a_loss_of_power(tmp_path: Path, settled: list[str]) -> None:
    filesystem.write_whole(str(tmp_path / "gate.json"), b"{}")
    assert [re.sub(r"\.[0-9a-f]{32}\.", ".", name) for name in settled] == ["gate.json.draft"]


def test_an_entry_that_was_cut_off_is_named_with_the_file_to_remove(lake: str) -> None:
    for number in range(2):
        tables.append(lake, TABLE, {"purchase_id": f"P-{number}"})
    entry = tables.entry(lake, TABLE, 2)
    entry.write_text(entry.read_text()[:200])
    with pytest.raises(TerminalError, match=rf"(?s)silver.purchases: version 2 .*cut off.*remove {entry}"):
        delta.require_tables(lake)
    entry.unlink()
    delta.require_tables(lake)
    assert tables.newest(lake, TABLE) == 1


def test_an_entry_that_was_left_empty_is_a_commit_of_nothing(lake: str) -> None:
    """The transaction id went with it, so the batch that it was of is appended by the next one."""
    properties = CommitProperties(app_transactions=[Transaction("a batch", 7)])
    write_deltalake(table_path(lake, TABLE), rows(1), mode="append", commit_properties=properties)
    tables.entry(lake, TABLE, 1).write_text("")
    delta.require_tables(lake)
    log = tables.opened(lake, TABLE)
    assert (log.version(), log.transaction_version("a batch"), log.to_pyarrow_table().num_rows) == (1, None, 0)


@pytest.mark.parametrize("left", [b"", b"\0" * 64, b'{"version":', b"null", b"{}", b'{"version":null}'], ids=repr)
def test_a_hint_to_a_log_checkpoint_that_was_cut_off_is_written_again(lake: str, left: bytes) -> None:
    tables.opened(lake, TABLE).create_checkpoint()
    hint = tables.entry(lake, TABLE, 0).with_name("_last_checkpoint")
    assert hint.exists()
    hint.write_bytes(left)
    tables.append(lake, TABLE, {"purchase_id": "P-1"})
    assert maintenance.checkpoint_log(lake, TABLE, every=1)
    assert not maintenance.checkpoint_log(lake, TABLE, every=1)


def test_a_version_that_is_not_there_is_nothing_to_bring_there(lake: str, settled: list[str]) -> None:
    deltalog.settle(lake, TABLE, 9)
    filesystem.settle("s3a://bucket/object")
    assert settled == []
