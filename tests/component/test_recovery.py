"""Checkpoints and tables that agree or not, and checkpoints written anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from customer_activity.catalog import Table, checkpoint_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.checkpoint import State
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.errors import CheckpointMismatch, SettingsError
from customer_activity.operations import recovery
from support.streams import Query
from support.tables import append

BEGIN = ['{"purchase-events":{"0":5},"customer-profile-state":{"0":1}}', None]
END = [
    '{"purchase-events":{"0":9},"customer-profile-state":{"0":1}}',
    '{"another-topic":{"0":2}}',
]
CUT = OffsetRange(BEGIN, END)
BATCH_7 = {"generation": "g-1", "batch_id": 7, "cut": CUT._asdict()}
TABLE_OF = {
    Query.BRONZE: Table.PURCHASE_EVENTS,
    Query.SILVER: Table.PROFILE_CHANGES,
    Query.GOLD: Table.ACTIVITY_CHANGES,
}


def write_checkpoint(lake: str, query: Query, state: State) -> Path:
    """Write what Spark would have: the newest batches, whole."""
    root = Path(checkpoint_path(lake, query))
    for folder in ("offsets", "commits"):
        (root / folder).mkdir(parents=True)
    (root / "metadata").write_text(json.dumps({"id": state.generation}))
    if state.planned is not None:
        (root / "offsets" / f"{state.planned}").write_text(f"v1\n{{}}\n{END[0]}")
    if state.committed is not None:
        (root / "commits" / f"{state.committed}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    return root


@pytest.mark.parametrize("query", TABLE_OF, ids=str)
@pytest.mark.parametrize(
    ("state", "fault"),
    [
        pytest.param(State("g-1", 7, 7), None, id="both are through with the batch"),
        pytest.param(State("g-1", 7, 6), None, id="a crash between the table's commit and Spark's"),
        pytest.param(State("g-1", 8, 7), None, id="the next batch is planned"),
        pytest.param(None, "no checkpoint", id="the checkpoint is lost"),
        pytest.param(State("g-1", 6, 6), "knows of none after 6", id="the checkpoint is older than the table"),
        pytest.param(State("g-1", None, None), "knows of none after None", id="the checkpoint is empty"),
        pytest.param(State("g-2", 7, 7), "of generation g-1", id="the checkpoint is another one"),
    ],
)
def test_a_query_starts_only_on_a_checkpoint_that_its_table_belongs_to(
    lake: str, query: Query, state: State | None, fault: str | None
) -> None:
    append(lake, TABLE_OF[query], query=query, **BATCH_7)
    if state is not None:
        write_checkpoint(lake, query, state)

    if fault is None:
        recovery.check_agreement(lake, [query])
        return
    with pytest.raises(CheckpointMismatch, match=rf"{fault}[\s\S]*activity recover {query}"):
        recovery.check_agreement(lake, [query])


def test_bronze_tables_that_lack_what_was_committed_are_refused(lake: str) -> None:
    write_checkpoint(lake, Query.BRONZE, State("g-1", 8, 8))
    with pytest.raises(CheckpointMismatch, match=r"committed batch 8, and the newest in bronze.* is None"):
        recovery.check_agreement(lake, [Query.BRONZE])
    append(lake, Table.QUARANTINE, query=Query.BRONZE, **BATCH_7)
    with pytest.raises(CheckpointMismatch, match=r"committed batch 8, and the newest in bronze.* is 7"):
        recovery.check_agreement(lake, [Query.BRONZE])


def test_the_newest_batch_is_the_newest_in_any_of_the_tables(lake: str) -> None:
    append(lake, Table.PURCHASE_EVENTS, query=Query.BRONZE, **(BATCH_7 | {"batch_id": 6}))
    append(lake, Table.QUARANTINE, query=Query.BRONZE, **BATCH_7)
    append(lake, Table.QUARANTINE, query=Query.SILVER, **(BATCH_7 | {"batch_id": 9}))

    assert recovery.newest_batch(lake, Query.BRONZE) == (Table.QUARANTINE, "g-1", 7, CUT)


@pytest.mark.parametrize(
    "file", ["metadata", "offsets/7", "commits/7"], ids=["the checkpoint's id", "newest offsets", "newest commit"]
)
@pytest.mark.parametrize("keeps", [0, 3], ids=["empty", "cut off"])
def test_a_torn_file_is_named_and_nothing_starts(lake: str, file: str, keeps: int) -> None:
    root = write_checkpoint(lake, Query.SILVER, State("g-1", 7, 7))
    (root / file).write_text((root / file).read_text()[:keeps])
    with pytest.raises(CheckpointMismatch, match=rf"{file} cannot be read[\s\S]*activity recover silver"):
        recovery.check_agreement(lake, [Query.SILVER])


def test_a_checkpoint_without_its_id_is_torn(lake: str) -> None:
    (write_checkpoint(lake, Query.SILVER, State("g-1", 7, 7)) / "metadata").unlink()
    with pytest.raises(CheckpointMismatch, match="metadata cannot be read"):
        recovery.check_agreement(lake, [Query.SILVER])


def test_a_recovered_checkpoint_begins_with_the_newest_batch_in_the_tables(lake: str) -> None:
    append(lake, Table.PURCHASE_EVENTS, query=Query.BRONZE, **BATCH_7)
    old = write_checkpoint(lake, Query.BRONZE, State("g-0", 3, 3))

    done = recovery.recover(lake, Query.BRONZE, "the disk was full")

    assert checkpoint.state(lake, Query.BRONZE) == State("g-1", planned=7, committed=6)
    assert checkpoint.cut(lake, Query.BRONZE, 7) == CUT
    recovery.check_agreement(lake, [Query.BRONZE])
    assert done.set_aside is not None
    assert json.loads((Path(done.set_aside) / "metadata").read_text()) == {"id": "g-0"}
    assert done.set_aside.startswith(f"{old}.until-")
    (deed,) = (json.loads(path.read_text()) for path in Path(lake, "_audit").iterdir())
    expected = {"what": "recover", "query": "bronze", "batch_id": 7, "reason": "the disk was full"}
    assert expected.items() <= deed.items()


def test_a_first_batch_has_no_begin(lake: str) -> None:
    first = OffsetRange(None, END)
    append(lake, Table.PURCHASE_EVENTS, query=Query.BRONZE, generation="g-1", batch_id=0, cut=first._asdict())
    recovery.recover(lake, Query.BRONZE, "a test")
    assert checkpoint.state(lake, Query.BRONZE) == State("g-1", planned=0, committed=None)
    assert checkpoint.cut(lake, Query.BRONZE, 0) == first


def test_where_the_first_batch_begins_stays_noted(lake: str) -> None:
    first, begin = OffsetRange(None, END), '{"purchase-events":{"0":3}}'
    checkpoint.write(lake, Query.BRONZE, "g-1", 0, first, begin=begin)
    append(lake, Table.PURCHASE_EVENTS, query=Query.BRONZE, generation="g-1", batch_id=0, cut=first._asdict())
    recovery.recover(lake, Query.BRONZE, "a test")
    assert checkpoint.first(lake, Query.BRONZE) == begin


def test_where_the_first_batch_begins_outlasts_torn_offsets(lake: str) -> None:
    first, begin = OffsetRange(None, END), '{"purchase-events":{"0":3}}'
    checkpoint.write(lake, Query.BRONZE, "g-1", 0, first, begin=begin)
    append(lake, Table.PURCHASE_EVENTS, query=Query.BRONZE, generation="g-1", batch_id=0, cut=first._asdict())
    Path(checkpoint_path(lake, Query.BRONZE), "offsets", "0").write_text("v1")
    recovery.recover(lake, Query.BRONZE, "a test")
    assert checkpoint.first(lake, Query.BRONZE) == begin


def test_where_another_checkpoints_first_batch_begins_is_not_kept(lake: str) -> None:
    first = OffsetRange(None, END)
    checkpoint.write(lake, Query.BRONZE, "g-2", 0, first, begin='{"purchase-events":{"0":3}}')
    append(lake, Table.PURCHASE_EVENTS, query=Query.BRONZE, generation="g-1", batch_id=0, cut=first._asdict())
    recovery.recover(lake, Query.BRONZE, "a test")
    assert checkpoint.first(lake, Query.BRONZE) is None


def test_a_query_that_wrote_nothing_starts_from_the_beginning(lake: str) -> None:
    write_checkpoint(lake, Query.GOLD, State("g-1", 7, 7))
    assert recovery.recover(lake, Query.GOLD, "a test").batch_id is None
    assert checkpoint.state(lake, Query.GOLD) is None


def test_without_a_lake_there_is_nothing_to_recover(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there are no tables at"):
        recovery.recover(str(tmp_path / "elsewhere"), Query.BRONZE, "a test")
    assert not (tmp_path / "elsewhere").exists()


def test_a_commit_that_does_not_tell_its_offsets_recovers_nothing(lake: str) -> None:
    append(lake, Table.PURCHASES, query=Query.SILVER, generation="g-1", batch_id=7)
    root = write_checkpoint(lake, Query.SILVER, State("g-1", 6, 6))
    with pytest.raises(CheckpointMismatch, match="does not tell which offsets it read"):
        recovery.recover(lake, Query.SILVER, "a test")
    assert (root / "metadata").exists()


def begun(lake: str) -> State | str | None:
    """What a start finds."""
    try:
        return checkpoint.state(lake, Query.BRONZE)
    except CheckpointMismatch:
        return "torn"


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_checkpoint_that_is_half_written_is_not_begun_with(lake: str, is_committed: bool) -> None:
    """Whichever file is the last: without its id it is torn."""
    whole = Path(checkpoint_path(lake, Query.BRONZE))
    checkpoint.write(lake, Query.BRONZE, "g-1", 7, CUT, is_committed=is_committed)
    assert isinstance(begun(lake), State)
    for path in sorted(filter(Path.is_file, whole.rglob("*")), key=lambda path: path.stat().st_mtime_ns, reverse=True):
        path.unlink()
        assert begun(lake) in ("torn", None)
