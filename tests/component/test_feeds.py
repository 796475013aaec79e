"""What commits added to tables, from their files: every row once, in parts of whole versions; what is none is refused.

That it is what Spark's change feed gives is in tests/spark/test_feeds.py.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import ChangeFeedLost, Corrected, ForeignCommit
from customer_activity.lake import feeds, microbatch, named_operations
from customer_activity.lake.named_operations import Operation
from customer_activity.maintenance import maintenance
from support import tables
from support.corrections import correct
from support.streams import Query
from support.tables import append

BOUGHT, PROFILES = Table.PURCHASES, Table.PROFILE_CHANGES
COLUMNS = {BOUGHT: ["purchase_id", "amount"], PROFILES: ["customer_id", "is_tombstone"]}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ("purchase_id",)
VERSIONS = 5  # with rows; version 0 is the empty table


def bought(number: int) -> dict[str, Any]:
    return {"purchase_id": f"P-{number}", "customer_id": "C-1", "amount": Decimal("1.50"), "kafka_timestamp": NOW}


def changed(number: int) -> dict[str, Any]:
    return {"customer_id": f"C-{number}", "is_tombstone": False, "kafka_timestamp": NOW}


@pytest.fixture
def lake(lake: str) -> str:
    """Return a lake with five commits to each of two tables: version n has n purchases, and one profile change."""
    for version in range(1, VERSIONS + 1):
        append(lake, BOUGHT, *(bought(10 * version + n) for n in range(version)), landing=version)
        append(lake, PROFILES, changed(version))
    return lake


def read(lake: str, *of: Table, after: int = -1, upto: int = VERSIONS, even_retracted: bool = False) -> feeds.Feed:
    chosen = of or tuple(COLUMNS)
    columns = {table: COLUMNS[table] for table in chosen}
    return feeds.read(lake, columns, dict.fromkeys(chosen, (after, upto)), even_retracted=even_retracted)


def keys(feed: feeds.Feed) -> list[str]:
    """Return the ids of all rows, in order."""
    return sorted(
        str(value)
        for table in feed.added
        for batch in feed.batches(table, COLUMNS[table])
        for value in batch.column(0).to_pylist()
    )


ALL = sorted([*(f"P-{10 * v + n}" for v in range(1, VERSIONS + 1) for n in range(v)), *(f"C-{v}" for v in range(1, 6))])


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param({}, [(5, 5)], id="all at once"),
        pytest.param({"PART_FILES": 2}, [(2, -1), (4, -1), (5, 1), (5, 3), (5, 5)], id="two files"),
        pytest.param({"PART_ROWS": 6}, [(3, -1), (4, -1), (5, 1), (5, 5)], id="six rows"),
        pytest.param({"PART_BYTES": 1}, [(n, -1) for n in range(1, 6)] + [(5, n) for n in range(1, 6)], id="a byte"),
    ],
)
def test_parts_are_whole_versions_and_together_everything(
    lake: str, limits: dict[str, int], expected: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in limits.items():
        monkeypatch.setattr(feeds, name, most)

    parts = list(read(lake).parts())

    assert [(part.versions[BOUGHT][1], part.versions[PROFILES][1]) for part in parts] == expected
    for table in COLUMNS:
        assert parts[0].versions[table][0] == -1
        assert all(one.versions[table][1] == other.versions[table][0] for one, other in pairwise(parts))
        for part in parts:
            after, upto = part.versions[table]
            assert {file.version for file in part.added[table]} <= {*range(after + 1, upto + 1)}
    assert sorted(key for part in parts for key in keys(part)) == ALL


@pytest.mark.parametrize(
    ("of", "stop", "expected"),
    [
        pytest.param([BOUGHT], None, [(4, -1), (5, 3), (5, 5)], id="nothing was written"),
        pytest.param([BOUGHT], 1, [(4, -1), (5, 3), (5, 5)], id="for the empty table"),
        pytest.param([BOUGHT], 3, [(2, -1), (5, 1), (5, 5)], id="for versions 1 and 2 of one"),
        pytest.param([BOUGHT], 5, [(4, -1), (5, 3), (5, 5)], id="for just such a part"),
        pytest.param([BOUGHT], 6, [(4, -1), (5, 3), (5, 5)], id="for all of one"),
        pytest.param([BOUGHT, PROFILES], 6 + 2, [(4, -1), (5, 1), (5, 5)], id="for a part of both"),
        pytest.param([BOUGHT, PROFILES], 6 + 6, [(4, -1), (5, 3), (5, 5)], id="for all of both"),
    ],
)
def test_what_was_written_for_a_part_before_a_crash_is_a_part_again(
    lake: str, of: list[Table], stop: int | None, expected: list[tuple[int, int]]
) -> None:
    parts = list(read(lake).parts(4, stop, of))
    assert [(part.versions[BOUGHT][1], part.versions[PROFILES][1]) for part in parts] == expected
    assert sorted(key for part in parts for key in keys(part)) == ALL


def test_versions_without_a_file_are_in_the_parts_too(lake: str) -> None:
    append(lake, BOUGHT)
    append(lake, PROFILES)
    (part,) = read(lake, after=VERSIONS, upto=VERSIONS + 1).parts()
    assert (part.files, part.versions) == ([], dict.fromkeys(COLUMNS, (VERSIONS, VERSIONS + 1)))
    *_, last = read(lake, upto=VERSIONS + 1).parts(files=1)
    assert last.versions[BOUGHT][1] == last.versions[PROFILES][1] == VERSIONS + 1


def test_a_version_of_several_files_is_never_divided(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [file.path for file in read(lake, BOUGHT).added[BOUGHT]]
    add = {"size": 1, "partitionValues": {}, "modificationTime": 0, "dataChange": True}
    info: dict[str, Any] = {"commitInfo": {"userMetadata": json.dumps({"query": "silver"})}}
    actions = [info, *({"add": {"path": path, **add}} for path in files[:3])]
    tables.entry(lake, BOUGHT, VERSIONS + 1).write_text("\n".join(map(json.dumps, actions)))
    monkeypatch.setattr(feeds, "PART_FILES", 2)
    parts = list(read(lake, BOUGHT, upto=VERSIONS + 1).parts())
    assert [len(part.files) for part in parts] == [2, 2, 1, 3]


def test_nothing_new_is_a_feed_without_files(lake: str) -> None:
    feed = read(lake, after=VERSIONS)
    assert feed.files == []
    assert list(feed.batches(BOUGHT, COLUMNS[BOUGHT])) == []
    (part,) = feed.parts()
    assert part.versions == feed.versions


@pytest.mark.parametrize(
    ("setting", "value"), [("SMALL_BATCH_BYTES", 10), ("SMALL_BATCH_FILES", 1)], ids=["many bytes", "many files"]
)
def test_a_feed_of_much_is_not_small(lake: str, setting: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    feed = read(lake, BOUGHT)
    small = keys(feed)
    assert feed.is_small
    monkeypatch.setattr(microbatch if "BYTES" in setting else feeds, setting, value)
    assert not feed.is_small
    assert keys(feed) == small


def test_a_compaction_is_no_change(lake: str) -> None:
    assert maintenance.compact(lake, BOUGHT) is not None
    newest = tables.newest(lake, BOUGHT)
    assert newest > VERSIONS
    assert keys(read(lake, BOUGHT, upto=newest)) == keys(read(lake, BOUGHT))
    assert keys(read(lake, BOUGHT, after=VERSIONS, upto=newest)) == []


def test_the_end_is_the_commit_that_made_it(lake: str) -> None:
    version = append(lake, BOUGHT, bought(99), commit="an attempt")
    place = read(lake, BOUGHT, upto=version).end(BOUGHT, "t")
    assert place == ("t", version, "an attempt")
    before = read(lake, BOUGHT).end(BOUGHT, "t")
    assert before.version == VERSIONS
    assert before.commit not in ("", "an attempt")
    assert before == read(lake, BOUGHT, after=VERSIONS).end(BOUGHT, "t")


def test_the_newest_landing_is_that_of_the_newest_commit_that_tells_one(lake: str) -> None:
    append(lake, BOUGHT, bought(99))
    assert read(lake, BOUGHT, upto=VERSIONS + 1).landing(BOUGHT) == VERSIONS
    assert read(lake, BOUGHT, upto=2).landing(BOUGHT) == 2
    assert read(lake, BOUGHT, after=VERSIONS, upto=VERSIONS + 1).landing(BOUGHT) is None


def shorten(lake: str, upto: int) -> None:
    """Have the log begin with a checkpoint, without the entries of the first versions."""
    assert maintenance.checkpoint_log(lake, BOUGHT, every=1)
    for version in range(upto + 1):
        tables.entry(lake, BOUGHT, version).unlink()


def test_a_first_batch_on_a_shortened_log_begins_with_the_table_as_it_is(lake: str) -> None:
    everything = keys(read(lake, BOUGHT))
    shorten(lake, 2)
    assert keys(read(lake, BOUGHT)) == everything


@pytest.mark.parametrize("after", [0, 1], ids=["the first is gone", "the second is gone"])
def test_an_entry_that_is_gone_is_an_error(lake: str, after: int) -> None:
    shorten(lake, 2)
    with pytest.raises(ChangeFeedLost, match=rf"silver.purchases: version {after + 1} is gone.*[\s\S]*backup"):
        read(lake, BOUGHT, after=after)
    assert keys(read(lake, BOUGHT, after=2))


def test_a_table_that_cannot_be_told_as_it_was_is_an_error(lake: str) -> None:
    shorten(lake, 4)
    with pytest.raises(ChangeFeedLost, match="version 3 is gone from the log"):
        read(lake, BOUGHT, upto=3)


@pytest.mark.parametrize("gone", [[0], [1], [2], [0, 1]], ids=lambda versions: f"without {versions}")
def test_a_log_with_a_hole_tells_no_table_as_it_was(gone: list[int], lake: str) -> None:
    """Entries go in slices, on S3 several at once. With a checksum, delta-rs opens a table of what is left."""
    tables.opened(lake, BOUGHT).create_checkpoint()
    for version in gone:
        tables.entry(lake, BOUGHT, version).unlink()
    with pytest.raises(ChangeFeedLost, match="is gone from the log"):
        feeds.snapshot(lake, BOUGHT, 2)
    assert len(feeds.snapshot(lake, BOUGHT, VERSIONS)) == VERSIONS


@pytest.mark.parametrize("is_small", [True, False], ids=["small", "large"])
def test_files_that_are_gone_are_an_error(lake: str, is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not is_small:
        monkeypatch.setattr(feeds, "SMALL_BATCH_FILES", 1)
    feed = read(lake, BOUGHT, after=1)
    for file in Path(table_path(lake, BOUGHT)).glob("*.parquet"):
        file.unlink()
    with pytest.raises(ChangeFeedLost, match=r"silver\.purchases: files that versions 2 to 5 added are gone"):
        list(feed.batches(BOUGHT, COLUMNS[BOUGHT]))


def somebodys_insert(table: DeltaTable) -> None:
    write_deltalake(table, pa.Table.from_pylist([bought(99)], arrow_schema(BOUGHT)), mode="append")


def somebodys_overwrite(table: DeltaTable) -> None:
    write_deltalake(table, pa.Table.from_pylist([bought(99)], arrow_schema(BOUGHT)), mode="overwrite")


def our_note_on_a_delete(table: DeltaTable) -> None:
    note = CommitProperties(custom_metadata={"userMetadata": json.dumps({"query": Query.SILVER})})
    table.delete("purchase_id = 'P-20'", commit_properties=note)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param(lambda table: table.delete("purchase_id = 'P-20'"), "DELETE, delta-rs", id="a delete"),
        pytest.param(
            lambda table: table.update({"amount": "0"}, predicate="purchase_id = 'P-20'"), "UPDATE", id="an update"
        ),
        pytest.param(somebodys_insert, "WRITE, delta-rs", id="an insert"),
        pytest.param(somebodys_overwrite, "WRITE, delta-rs", id="an overwrite"),
        pytest.param(our_note_on_a_delete, "DELETE, delta-rs", id="a delete with a writer's note"),
        pytest.param(lambda table: table.restore(2), "RESTORE", id="a restore"),
    ],
)
def test_somebody_elses_change_is_refused(lake: str, change: Any, said: str) -> None:
    change(tables.opened(lake, BOUGHT))
    newest = tables.newest(lake, BOUGHT)
    for upto in (newest, newest + 1):
        with pytest.raises(ForeignCommit, match=rf"silver.purchases: version {newest} .*{said}") as refused:
            read(lake, BOUGHT, after=VERSIONS - 1, upto=upto)
        assert refused.value.remedy
        append(lake, BOUGHT, bought(100))
    assert keys(read(lake, BOUGHT, after=newest, upto=newest + 1)) == ["P-100"]


def test_properties_and_empty_entries_are_no_change(lake: str) -> None:
    table = tables.opened(lake, BOUGHT)
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    write_deltalake(table, arrow_schema(BOUGHT).empty_table(), mode="append")
    newest = tables.newest(lake, BOUGHT)
    assert newest > VERSIONS
    assert keys(read(lake, BOUGHT, after=VERSIONS, upto=newest)) == []


@pytest.fixture(params=[Operation.ERASURE, Operation.ARCHIVING, Operation.CORRECTION], ids=str)
def operated(request: pytest.FixtureRequest, lake: str) -> tuple[str, Operation]:
    """Take a row out by a named operation, and append another one."""
    operation: Operation = request.param
    with named_operations.fenced(lake, operation, [BOUGHT], "a test") as fence:
        tables.opened(lake, BOUGHT).delete("purchase_id = 'P-50'", commit_properties=fence.properties(BOUGHT, rows=1))
    append(lake, BOUGHT, bought(99))
    return lake, operation


def test_a_named_operation_is_skipped_or_says_how_to_go_on(operated: tuple[str, Operation]) -> None:
    lake, operation = operated
    newest = tables.newest(lake, BOUGHT)
    if operation is Operation.CORRECTION:  # one that does not note which rows it added
        for even_retracted in (False, True):
            with pytest.raises(Corrected, match=rf"version {newest - 1} is a correction[\s\S]*rebuild --apply"):
                read(lake, BOUGHT, after=VERSIONS, upto=newest, even_retracted=even_retracted)
        return
    assert keys(read(lake, BOUGHT, after=VERSIONS, upto=newest)) == ["P-99"]


def test_what_a_correction_adds_is_appended_and_what_it_retracts_ends_the_feed(lake: str) -> None:
    correct(lake, BOUGHT, KEY, [], [bought(70), bought(71)])
    assert tables.opened(lake, BOUGHT).history(1)[0]["operation"] == "WRITE"  # no merge reads the whole table
    append(lake, BOUGHT, bought(99))
    newest = tables.newest(lake, BOUGHT)
    assert keys(read(lake, BOUGHT, after=VERSIONS, upto=newest)) == ["P-70", "P-71", "P-99"]

    correct(lake, BOUGHT, KEY, [bought(70)], [bought(72)])
    with pytest.raises(Corrected, match=rf"version {newest + 1} is a correction[\s\S]*rebuild --apply"):
        read(lake, BOUGHT, after=newest, upto=newest + 1)
    found = read(lake, BOUGHT, after=newest, upto=newest + 1, even_retracted=True)
    assert (keys(found), [file.rows for file in found.corrections]) == (["P-72"], [1])
    assert keys(read(lake, BOUGHT, after=newest + 1, upto=newest + 1)) == []


def test_what_a_correction_put_right_is_refused_no_more(lake: str) -> None:
    somebodys_insert(tables.opened(lake, BOUGHT))
    correct(lake, BOUGHT, KEY, [bought(99)], [])
    newest = tables.newest(lake, BOUGHT)
    for even_retracted in (False, True):
        with pytest.raises(Corrected):
            read(lake, BOUGHT, after=VERSIONS, upto=newest, even_retracted=even_retracted)
    append(lake, BOUGHT, bought(100))
    assert keys(read(lake, BOUGHT, after=newest, upto=newest + 1)) == ["P-100"]
    somebodys_insert(tables.opened(lake, BOUGHT))
    with pytest.raises(ForeignCommit):
        read(lake, BOUGHT, after=newest, upto=newest + 2)
