"""Checksums of what delta-rs commits: Spark's Delta runs a job over the log where one is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from customer_activity.catalog import Table, table_path
from customer_activity.lake import checksums, delta
from customer_activity.lake.checksums import following, write_checksum
from support import tables

TABLE = Table.PROFILES
BEFORE = {"numFiles": 2, "tableSizeBytes": 20, "setTransactions": []}


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Return a table with three appends of a row and no checksum but its first."""
    lake = str(tmp_path)
    delta.create(lake, TABLE)
    for number in range(3):
        tables.append(lake, TABLE, {"customer_id": f"C-{number}"})
    return table_path(lake, TABLE)


def log(table: str, version: int, suffix: str) -> Path:
    return Path(table) / "_delta_log" / f"{version:020}.{suffix}"


def written(table: str, version: int = 3) -> dict[str, Any]:
    """Write the checksum of a version; return it, or nothing where there is none."""
    write_checksum(table, version)
    path = log(table, version, "crc")
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def test_one_follows_from_the_newest_before_it(table: str) -> None:
    sizes = DeltaTable(table).get_add_actions().column("size_bytes").to_pylist()
    found = written(table)
    assert (found["numFiles"], found["tableSizeBytes"]) == (3, sum(sizes))
    assert found["metadata"]["id"] == str(DeltaTable(table).metadata().id)


def test_one_follows_from_where_the_table_begins_when_there_is_none(table: str) -> None:
    log(table, 0, "crc").unlink()
    assert written(table)["numFiles"] == 3


def test_one_that_a_loss_of_power_has_emptied_is_none(table: str) -> None:
    log(table, 2, "crc").touch()
    assert written(table)["numFiles"] == 3


def test_none_is_written_where_the_log_does_not_reach_back_to_one(table: str) -> None:
    DeltaTable(table).create_checkpoint()
    log(table, 0, "crc").unlink()
    log(table, 0, "json").unlink()
    assert written(table) == {}


def test_none_is_written_from_one_far_back(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksums, "NEAR", 2)
    assert written(table) == {}
    assert written(table, 2) != {}


def test_one_lists_the_newest_of_each_transaction_id(table: str) -> None:
    opened = DeltaTable(table)
    for number in (1, 2):
        properties = CommitProperties(app_transactions=[Transaction("one", number), Transaction(f"of {number}", 0)])
        opened.create_write_transaction([], mode="append", schema=opened.schema(), commit_properties=properties)
        opened.update_incremental()
    listed = {txn["appId"]: txn["version"] for txn in written(table, 5)["setTransactions"]}
    assert listed == {"one": 2, "of 1": 0, "of 2": 0}


def test_nothing_is_left_beside_one(table: str) -> None:
    before = {path.name for path in log(table, 3, "crc").parent.iterdir()}
    assert written(table) != {}
    assert {path.name for path in log(table, 3, "crc").parent.iterdir()} - before == {f"{3:020}.crc"}


@pytest.mark.parametrize(
    "action",
    [
        pytest.param({"remove": {"path": "a"}}, id="a file that is removed without its size"),
        pytest.param({"domainMetadata": {"domain": "d"}}, id="what we do not know"),
    ],
)
def test_what_another_writer_commits_may_not_be_told(action: dict[str, Any]) -> None:
    known = {"remove": {"path": "b", "size": 5}}
    assert following(BEFORE, [known]) == {"numFiles": 1, "tableSizeBytes": 15, "setTransactions": []}
    assert following(BEFORE, [known, action]) is None
