"""The order of landings where records are written again: replays of quarantine, and rebuilds."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from customer_activity import topology
from customer_activity.catalog import Table, lease_id
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.contracts import RULES
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import EXIT_OK, LeaseLost, TerminalError
from customer_activity.lake import delta, deltalog, named_operations
from customer_activity.lake.named_operations import Kind
from customer_activity.lake.numbering import Numbering
from customer_activity.lease import lease
from customer_activity.quality import pins
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import replay
from customer_activity.rebuild import basis, building, comparison
from customer_activity.rebuild.building import Choice
from customer_activity.settings import Settings
from customer_activity.verification import lake as verifying
from customer_activity.verification.order import Notes, compare, read
from support import tables
from support.command import call
from support.pipeline import copied_lake
from support.records import NOW_MS, PROFILES, profile
from support.streams import Query

SENT = datetime.fromtimestamp(NOW_MS / 1000, UTC)
Place = tuple[int | None, int, int]  # landing, partition, offset
REFUSED = st.lists(st.tuples(st.sampled_from([None, 1, 2, 7, 9]), st.integers(0, 3)), min_size=2, max_size=8)


def row(place: Place, **more: Any) -> dict[str, Any]:
    landing, partition, offset = place
    value = profile("C-1").value
    position = {"topic": PROFILES, "partition": partition, "offset": offset, "kafka_timestamp": SENT}
    return {"key": b"C-1", "value": value, "customer_id": "C-1", "landing": landing, **position, **more}


def write(lake: str, table: Table, rows: list[dict[str, Any]], **note: Any) -> None:
    tables.append(lake, table, *rows, **{"query": "bronze"} | note)


def content(lake: str, table: Table, *columns: str) -> list[tuple[Any, ...]]:
    found = tables.opened(lake, table).to_pyarrow_table().select(columns)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


@pytest.mark.parametrize(
    ("refused", "landed", "comes_back"),
    [
        pytest.param((3, 0, 5), None, True, id="nothing of its key"),
        pytest.param((3, 0, 5), (3, 0, 4), True, id="landed with it, before it"),
        pytest.param((3, 0, 5), (3, 0, 6), False, id="landed with it, after it"),
        pytest.param((3, 0, 5), (4, 0, 6), False, id="landed since"),
        pytest.param((3, 0, 5), (2, 1, 9), True, id="landed before on another partition"),
        pytest.param((3, 0, 5), (4, 1, 0), False, id="landed since on another partition"),
        pytest.param((3, 1, 5), (3, 0, 9), True, id="landed with it on a lower partition"),
        pytest.param((3, 0, 5), (None, 1, 9), True, id="landed before landings had numbers"),
        pytest.param((None, 0, 5), (1, 1, 0), False, id="landed since there are numbers"),
        pytest.param((None, 0, 5), (None, 0, 4), True, id="no numbers: before it"),
        pytest.param((None, 0, 5), (None, 1, 4), False, id="no numbers: nobody knows"),
        pytest.param((3, 0, 5), (7, 0, 5), True, id="itself, by a replay that was interrupted"),
    ],
)
def test_what_landed_since_overtakes_a_record(
    refused: Place, landed: Place | None, comes_back: bool, settings: Settings, lake: str
) -> None:
    write(lake, Table.QUARANTINE, [row(refused, reason="timestamp_in_future", quarantined_at=SENT)], landing=3)
    if landed is not None:
        write(lake, Table.PROFILE_EVENTS, [row(landed)], landing=landed[0] or 0)
    done = replay(settings, Selection(), "clocks are set")
    assert (done.accepted, done.overtaken) == (({PROFILES: 1}, 0) if comes_back else ({}, 1))
    assert len(content(lake, Table.QUARANTINE, "offset")) == (0 if comes_back else 1)


@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["done", "dry"])
def test_records_of_a_topic_that_has_another_name_by_now_are_told(
    deployment: Settings, lake: str, capsys: pytest.CaptureFixture[str], dry: list[str]
) -> None:
    before = {"reason": "timestamp_in_future", "quarantined_at": SENT}
    old = [row((1, 0, offset), topic="profiles-of-before", **before) for offset in (5, 6)]
    write(lake, Table.QUARANTINE, old, landing=1)
    assert call("quarantine", "replay", "--why", "clocks are set", *dry) == EXIT_OK
    told = " ".join(capsys.readouterr().out.split())
    assert "2 stay: no stream that is on lands profiles-of-before" in told
    assert "ACTIVITY_STREAMS" in told
    assert "nothing to replay" not in told
    write(lake, Table.QUARANTINE, [row((1, 0, 7), **before)], landing=1)
    assert call("quarantine", "replay", "--why", "clocks are set", "--json", *dry) == EXIT_OK
    assert json.loads(capsys.readouterr().out) == {
        "accepted": {PROFILES: 1},
        "refused": {},
        "overtaken": 0,
        "elsewhere": {"profiles-of-before": 2},
        "dry_run": bool(dry),
        "by_driver": False,
    }
    assert len(content(lake, Table.QUARANTINE, "offset")) == (3 if dry else 2)


def test_a_replay_is_the_next_landing(settings: Settings, lake: str) -> None:
    write(lake, Table.PROFILE_EVENTS, [row((4, 0, 4)), row((4, 0, 6), key=b"C-2", customer_id="C-2")], landing=4)
    write(lake, Table.QUARANTINE, [row((4, 0, 5), reason="timestamp_in_future", quarantined_at=SENT)], landing=4)
    write(lake, Table.PURCHASE_EVENTS, [], landing=9)
    replay(settings, Selection(), "clocks are set")
    assert sorted(content(lake, Table.PROFILE_EVENTS, "landing", "offset")) == [(4, 4), (4, 6), (10, 5)]
    for table in (Table.PROFILE_EVENTS, Table.QUARANTINE):
        newest = deltalog.entry(lake, table, tables.newest(lake, table))
        assert newest is not None
        note = named_operations.classify(newest.actions).note
        assert (note["query"], note["landing"], note["rules"]) == ("replay", 10, RULES)

    opened = verifying.open_tables(settings, topology.tables())
    notes = Notes.of(verifying.commits(lake, Table.PROFILE_EVENTS, opened[Table.PROFILE_EVENTS]).metadata)
    placed = read(verifying.places(opened), PROFILES, notes)
    assert compare(PROFILES, placed, notes.replays).ok, "a record that came back landed when it did"
    assert not compare(PROFILES, placed, frozenset()).ok


@examples(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REFUSED)
@example([(7, 3), (9, 0)])  # refused one after the other, the second one on a lower partition
def test_records_come_back_in_the_order_in_which_they_were_refused(
    empty_lake: Path, tmp_path_factory: pytest.TempPathFactory, refused: list[tuple[int | None, int]]
) -> None:
    folder = tmp_path_factory.mktemp("refused")
    settings = copied_lake(empty_lake, folder)
    lake = settings.lake
    in_order = sorted(refused, key=lambda place: (-1 if place[0] is None else place[0], place[1]))
    places: list[Place] = [(*place, offset) for offset, place in enumerate(in_order)]
    held = [row(place, reason="timestamp_in_future", quarantined_at=SENT) for place in places]
    write(lake, Table.QUARANTINE, held, landing=9)
    assert replay(settings, Selection(), "clocks are set").accepted == {PROFILES: len(refused)}
    found = sorted(content(lake, Table.PROFILE_EVENTS, "landing", "partition", "offset"))
    assert [offset for *_, offset in found] == list(range(len(refused)))
    landings = {place[0] for place in places}
    assert {landing for landing, *_ in found} == set(range(10, 10 + len(landings))), "one for each that refused some"
    assert [landing - 10 for landing, *_ in found] == [
        sorted(landings, key=lambda each: each or 0).index(landing) for landing, *_ in places
    ]
    assert Numbering(lake, topology.landing()).newest == found[-1][0], "what lands next comes after all of them"

    opened = verifying.open_tables(settings, topology.tables())
    notes = Notes.of(verifying.commits(lake, Table.PROFILE_EVENTS, opened[Table.PROFILE_EVENTS]).metadata)
    assert set(map(itemgetter(0), found)) <= notes.replays
    assert {notes.place(landing, 0).rules for landing, *_ in found} == {RULES}
    shutil.rmtree(folder)


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_replay_does_not_come_between_two_commits_of_a_batch(
    is_committed: bool, settings: Settings, lake: str
) -> None:
    """The batch has profiles already; its purchases, of the same number, would come after those of the replay."""
    cut = OffsetRange(None, [json.dumps({PROFILES: {"0": 6}})])
    checkpoint.write(lake, Query.BRONZE, "g-1", 7, cut, is_committed=is_committed)
    batch = {"generation": "g-1", "batch_id": 7, "landing": 4}
    write(lake, Table.QUARANTINE, [row((4, 0, 5), reason="timestamp_in_future", quarantined_at=SENT)], **batch)
    if is_committed:
        assert replay(settings, Selection(), "clocks are set").accepted == {PROFILES: 1}
        return
    with pytest.raises(TerminalError, match=r"(?s)batch 7 of bronze .*activity stream bronze --available-now"):
        replay(settings, Selection(), "clocks are set")
    assert replay(settings, Selection(), "dry", dry_run=True).accepted == {PROFILES: 1}
    write(lake, Table.QUARANTINE, [], **batch | {"batch_id": 6})
    assert replay(settings, Selection(), "of batch 7 nothing is there").accepted == {PROFILES: 1}


def test_a_replay_whose_lease_was_taken_over_commits_nothing(
    settings: Settings, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(lake, Table.QUARANTINE, [row((4, 0, 5), reason="timestamp_in_future", quarantined_at=SENT)], landing=4)

    def taken_over(held: lease.Lease, query: Query) -> int:
        raise lease.lost(query, held.epochs[query])

    monkeypatch.setattr(lease.Lease, "fencing_epoch", taken_over)
    with pytest.raises(LeaseLost):
        replay(settings, Selection(), "clocks are set")
    assert content(lake, Table.PROFILE_EVENTS, "offset") == []
    assert content(lake, Table.QUARANTINE, "offset") == [(5,)]


def test_the_commits_of_a_replay_carry_the_epochs_of_their_tables_writers(settings: Settings, lake: str) -> None:
    write(lake, Table.QUARANTINE, [row((4, 0, 5), reason="timestamp_in_future", quarantined_at=SENT)], landing=4)
    replay(settings, Selection(), "clocks are set")
    for table, queries in (
        (Table.PROFILE_EVENTS, [Query.BRONZE]),
        (Table.QUARANTINE, [Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH]),
    ):
        log = tables.opened(lake, table)
        assert [log.transaction_version(lease_id(query)) for query in queries] == [1] * len(queries)


def test_a_rebuild_has_the_records_in_the_order_of_their_landing(lake: str) -> None:
    places: list[Place] = [(2, 0, 0), (1, 1, 0), (None, 1, 7), (2, 0, 1), (None, 0, 3)]
    with duckdb.connect() as database:
        database.execute("CREATE SCHEMA landed")
        events = pa.Table.from_pylist([row(place) for place in places], arrow_schema(Table.PROFILE_EVENTS))
        database.register("events", events)
        database.execute("CREATE TABLE landed.customer_profiles AS FROM events")
        assert building.land(database, lake, Table.PROFILE_EVENTS, Choice()) == 5
    assert content(lake, Table.PROFILE_EVENTS, "landing", "partition", "offset") == [
        (None, 0, 3),
        (None, 1, 7),
        (1, 1, 0),
        (2, 0, 0),
        (2, 0, 1),
    ]
    entry = deltalog.entry(lake, Table.PROFILE_EVENTS, 1)
    assert entry is not None
    assert named_operations.classify(entry.actions).kind is Kind.APPEND, "readers take it for the pipeline's own"


@pytest.mark.parametrize(("amount", "differences"), [("0.01", 0), ("0.00", 1)], ids=["does not fit", "just fits"])
def test_a_row_whose_total_does_not_fit_is_not_compared(amount: str, differences: int) -> None:
    amounts = (Decimal("9999999999999999.99"), Decimal(amount))
    bought = [{"purchase_id": f"P-{n}", "customer_id": "C-1", "amount": amount} for n, amount in enumerate(amounts)]
    kept = [{"customer_id": "C-1", "name": "as it was", "view_version": 1, "existed": False, "is_gone": False}]
    (side,) = [side for side in comparison.sides() if side.is_published]
    with duckdb.connect() as database:
        for schema, rows in (("live", kept), ("rebuilt", [])):
            database.execute(f"CREATE SCHEMA {schema}")
            for table, content in ((Table.PURCHASES, bought), (Table.ACTIVITY_CHANGES, rows)):
                database.register("rows", pa.Table.from_pylist(content, arrow_schema(table)))
                database.execute(f"CREATE TABLE {schema}.{basis.name_of(table)} AS FROM rows")
        assert comparison.compare(database, side, is_everybody=True).differences == differences


def test_a_rebuild_and_quality_begin_with_what_a_part_of_a_batch_has_read(lake: str) -> None:
    """The batch reads up to version 3; its first part, whose commit is the newest, up to version 2."""
    for number in range(3):
        write(lake, Table.PROFILE_EVENTS, [row((1, 0, number))], landing=1)
    read_of = delta.table_id(lake, Table.PROFILE_EVENTS)
    note = {
        "query": "silver",
        "cut": {"begin": None, "end": [json.dumps({"reservoirId": read_of, "reservoirVersion": 4, "index": -1})]},
        "read": {Table.PROFILE_EVENTS.label: {"id": read_of, "version": 2, "commit": "c"}},
    }
    write(lake, Table.PROFILE_CHANGES, [], **note)
    write(lake, Table.ACTIVITY_CHANGES, [], query="gold", **{Table.PROFILE_CHANGES.label: 1})
    assert basis.find(lake).versions[Table.PROFILE_EVENTS.label] == 2
    opened = {table: tables.opened(lake, table) for table in topology.tables()}
    (seen,) = [
        seen for seen in pins.seen_tables() if (seen.read, seen.made) == (Table.PROFILE_EVENTS, Table.PROFILE_CHANGES)
    ]
    assert pins._seen(lake, seen, opened, None) == 2, "quality judges by the same"
