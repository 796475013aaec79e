"""An alert that is taken back, or changed, and comes again: told once by its id, for ever, and `verify` agrees."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from tempfile import TemporaryDirectory
from typing import Any, Self

import pyarrow as pa
import pytest
from deltalake import CommitProperties
from hypothesis import example, given, settings
from hypothesis import strategies as st

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.commands.verify import others, published
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.stream import Append, Record, Send
from customer_activity.kafka import settled
from customer_activity.kafka.marker import Marker, Outlet, parse
from customer_activity.lake import delta
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.replacing import replace
from customer_activity.settings import Settings
from customer_activity.streams.alerts import rules, topic
from customer_activity.streams.publish import parts, resyncing
from customer_activity.verification import declared
from customer_activity.verification.comparison import Check
from customer_activity.verification.lake import too_large
from customer_activity.verification.oracle import expect
from customer_activity.verification.published import Seen, compare
from customer_activity.verification.records import RawRecord
from support.tables import append_table, newest, opened

ALERTS, OUTDATED = Table.FRAUD_ALERTS, Table.OUTDATED_ALERTS
MOMENT = datetime(2026, 3, 1, 12, 0, 0, 5_000, tzinfo=UTC)
NO_LIMIT = 1 << 30
Held = Mapping[str, int]  # by purchase that makes an alert: how many there were by then, as some limits have it


@dataclass
class Broker:
    """The topic of alerts, and the marker: both change together, or not at all."""

    marker: Marker | None = None
    records: list[Record] = field(default_factory=list)
    max_bytes: int = 1_000_000
    outlet: Outlet = field(default=Outlet("pipeline", "-publishes-publish_alerts", ("alerts",)))

    def publish(self, going: Iterable[Record], marker: Marker | None) -> int:
        sent = [record[:2] for record in going]
        self.records += sent
        self.marker = None if marker is None else parse(marker.text())  # as another process reads it back
        return len(sent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close nothing."""


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    topology.switch_on(["publish_alerts"])
    yield
    topology.switch_on([])


def alert(purchase: str, count: int) -> dict[str, Any]:
    return {
        "alert_id": rules.alert_id(rules.Rule.VELOCITY, "C-ü", purchase),
        "rule": "velocity",
        "customer_id": "C-ü",
        "purchase_id": purchase,
        "occurred_at": MOMENT,
        "window_start": MOMENT,
        "window_end": MOMENT,
        "purchase_count": count,
        "total_amount": Decimal(f"{count}.10"),
        "currency": "EUR",
        "partition": 0,
        "offset": 7,
        "kafka_timestamp": MOMENT,
        "landing": 3,
    }


def hold(lake: str, now: Held) -> int:
    """Have the table hold these alerts, by one commit as a correction and other limits make it; return the version."""
    schema = arrow_schema(ALERTS)
    before = opened(lake, ALERTS).to_pyarrow_table().to_pylist()
    wanted = {row["alert_id"]: row for row in (alert(*each) for each in now.items())}
    known = {row["alert_id"]: row for row in before}
    going = [{"alert_id": name} for name, row in known.items() if wanted.get(name) != row]
    coming = [row for name, row in wanted.items() if known.get(name) != row]
    gone = pa.Table.from_pylist(going, pa.schema([schema.field("alert_id")])).to_batches()
    return replace(
        lake, ALERTS, ("alert_id",), gone, pa.Table.from_pylist(coming, schema).to_batches(), CommitProperties()
    )


def tell(broker: Broker, lake: str, *, after: int = -1, most: int = 1_000) -> bool:
    """Publish up to the newest version, or end after so many writes; return whether it came to the end."""
    upto = newest(lake, ALERTS)
    batch = MicroBatch("publish_alerts", "generation", upto)
    table_id = delta.table_id(lake, ALERTS)
    for write in topic.STREAM.step(batch, broker, Settings(lake=lake), table_id, after, upto):  # type: ignore[arg-type]
        if most == 0:
            return False
        most -= 1
        if isinstance(write, Send):
            broker.publish(write.records, write.marker)  # type: ignore[arg-type]
        else:
            assert isinstance(write, Append)
            assert write.rows is not None
            append_table(lake, write.table, write.rows)
    return True


def verified(broker: Broker, lake: str, *, is_whole: bool = True, largest: int = NO_LIMIT) -> list[Check]:
    """Return what `activity verify` says of the topic, and of what the publisher keeps beside it."""
    (each,) = (one for one in published(Settings(lake=lake)) if one.table is ALERTS)
    seen = Seen(("alertId",), is_whole=is_whole)
    seen.take(RawRecord(0, number, 0, key, value, ()) for number, (key, value, *_) in enumerate(broker.records))
    tables = {table: opened(lake, table) for table in (ALERTS, OUTDATED)}
    seen.hold(too_large(opened(lake, Table.QUARANTINE), broker.outlet.topics[0]))
    (kept,) = (one for one in others() if one.table is OUTDATED)
    nothing = expect({}, {}, purchase_topic="p", profile_topic="c", currency="EUR")
    with declared.opened(nothing, tables) as database:
        return [compare(each, tables, seen, largest), declared.compare(database, kept, tables[OUTDATED])]


def assert_right(broker: Broker, lake: str) -> None:
    assert [check for check in verified(broker, lake) if not check.ok] == []


def told(broker: Broker) -> list[tuple[str, int]]:
    """Return what went out: by which purchase, and how many there were."""
    values = [json.loads(value or b"") for _, value, *_ in broker.records]
    return [(each["purchaseId"], each["purchaseCount"]) for each in values]


@pytest.fixture
def lake(tmp_path: Any) -> str:
    delta.ensure_tables(str(tmp_path))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("states", "records"),
    [
        pytest.param([{"P": 3}, {}, {"P": 3}], [("P", 3)], id="taken back, and comes again"),
        pytest.param([{"P": 3}, {}], [("P", 3)], id="taken back"),
        pytest.param([{"P": 3}, {"P": 4}], [("P", 3)], id="changed"),
        pytest.param([{"P": 3}, {"P": 4}, {"P": 3}], [("P", 3)], id="changed, and changed back"),
        pytest.param([{"P": 3}, {"P": 4}, {}, {"P": 5}], [("P", 3)], id="changed, taken back, and comes otherwise"),
        pytest.param([{"P": 3}, {}, {"P": 3}, {}, {"P": 3}], [("P", 3)], id="again and again"),
        pytest.param([{"P": 3}, {"Q": 3}, {"P": 3, "R": 1}], [("P", 3), ("Q", 3), ("R", 1)], id="beside new ones"),
    ],
)
@pytest.mark.parametrize("is_late", [True, False], ids=["all at once", "one by one"])
def test_an_alert_is_told_once_for_ever(lake: str, states: list[Held], records: list[Any], *, is_late: bool) -> None:
    broker = Broker()
    for number, state in enumerate(states):
        version = hold(lake, state)
        if number == 0 or not is_late:
            tell(broker, lake, after=version - 1)
            assert_right(broker, lake)
    tell(broker, lake)
    tell(broker, lake)  # by a driver that has lost its checkpoint
    assert told(broker) == records
    assert_right(broker, lake)


def test_what_was_taken_back_before_the_first_record_is_told_when_it_comes_again(lake: str) -> None:
    broker = Broker()
    hold(lake, {"P": 3})
    hold(lake, {})
    tell(broker, lake)
    assert told(broker) == []
    hold(lake, {"P": 3})
    tell(broker, lake)
    assert told(broker) == [("P", 3)]
    assert_right(broker, lake)


PURCHASES = st.sampled_from("PQRS")
STATES = st.dictionaries(PURCHASES, st.integers(1, 2))
THEN = st.one_of(st.none(), st.just("resync"), st.integers(0, 4))  # a number: publish, and end after so many writes


@settings(max_examples=15)
@given(st.lists(st.tuples(STATES, THEN), min_size=2, max_size=7))
@example([({"P": 1}, 4), ({}, None), ({"P": 1}, "resync")])
@example([({"P": 1}, 4), ({}, 1), ({"P": 2}, 1), ({}, 4)])
def test_whatever_happens_to_table_and_publisher_no_alert_is_told_twice(lives: list[tuple[Held, Any]]) -> None:
    with TemporaryDirectory() as lake, pytest.MonkeyPatch.context() as patch:
        broker, mine = Broker(), Settings(lake=lake)
        patch.setattr(parts, "PART_RECORDS", 2)
        patch.setattr(resyncing, "Publisher", lambda *_, **__: broker)
        patch.setattr(settled, "records", lambda *_: iter(list(broker.records)))
        delta.ensure_tables(lake)
        for state, then in lives:
            hold(lake, state)
            if then == "resync":
                topic.STREAM.resync(mine, "a test")
                assert_right(broker, lake)
            elif then is not None and tell(broker, lake, most=then):
                assert_right(broker, lake)
        tell(broker, lake)
        assert_right(broker, lake)
        names = [name for name, _ in told(broker)]
        assert sorted(names) == sorted(set(names))
        assert topic.STREAM.resync(mine, "nothing differs")[:2] == (0, 0)


@pytest.fixture
def resyncable(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Return a broker that a resync reads and writes."""
    broker = Broker()
    monkeypatch.setattr(resyncing, "Publisher", lambda *_, **__: broker)
    monkeypatch.setattr(settled, "records", lambda *_: iter(list(broker.records)))
    return broker


def test_a_resync_notes_what_a_release_before_has_left_on_the_topic(lake: str, resyncable: Broker) -> None:
    hold(lake, {"P": 3, "Q": 3})
    tell(resyncable, lake)
    hold(lake, {"Q": 4})
    assert [check.differences for check in verified(resyncable, lake)] == [2, 0]
    shutil.rmtree(table_path(lake, OUTDATED))  # as before a driver of this release has run
    done = topic.STREAM.resync(Settings(lake=lake), "a test")
    assert (done.rows, done.deletes, done.unchanged, done.outdated) == (0, 0, 1, 2)
    assert_right(resyncable, lake)
    hold(lake, {"P": 3, "Q": 3})
    tell(resyncable, lake)
    assert sorted(told(resyncable)) == [("P", 3), ("Q", 3)]
    assert_right(resyncable, lake)


def test_what_the_topic_has_lost_goes_out_again_as_it_was_told(lake: str, resyncable: Broker) -> None:
    hold(lake, {"P": 3, "Q": 3})
    tell(resyncable, lake)
    hold(lake, {"P": 4})
    tell(resyncable, lake)
    resyncable.records.clear()
    assert [check.differences for check in verified(resyncable, lake)] == [1, 0]  # Q is in no table any more
    assert topic.STREAM.resync(Settings(lake=lake), "a test")[:2] == (1, 0)
    assert told(resyncable) == [("P", 3)]
    assert_right(resyncable, lake)


def test_what_a_resync_cannot_send_is_in_quarantine(lake: str, resyncable: Broker) -> None:
    """An alert that the topic does not take is found there by verify, and is missed where it is not."""
    hold(lake, {"P": 3})
    resyncable.max_bytes = 10
    assert verified(resyncable, lake, largest=110)[0].differences == 1
    assert topic.STREAM.resync(Settings(lake=lake), "a test")[:4] == (0, 0, 0, 1)
    assert (told(resyncable), verified(resyncable, lake, largest=110)[0].differences) == ([], 0)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"{", id="no JSON"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b"[" * 100_000, id="nested too deeply"),
        pytest.param(b'{"alertId":"x"}', id="without its fields"),
        pytest.param(b'{"alertId":"\\ud800"}', id="half of a character"),
        pytest.param(None, id="a null"),
    ],
)
def test_a_record_that_is_no_alert_is_not_taken_for_one(lake: str, resyncable: Broker, value: bytes | None) -> None:
    hold(lake, {"P": 3})
    tell(resyncable, lake)
    resyncable.records.append((b"C-1", value))
    done = topic.STREAM.resync(Settings(lake=lake), "a test")
    assert (done.rows, done.outdated) == (0, 0)
    assert verified(resyncable, lake)[0].differences == (value is not None)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        pytest.param({"purchaseCount": 9}, "differs: purchaseCount", id="of an outdated alert"),
        pytest.param({"alertId": "other"}, "other.* is not in the table", id="of one that is in no table"),
    ],
)
def test_verify_finds_what_was_never_told(lake: str, change: dict[str, Any], what: str) -> None:
    broker = Broker()
    hold(lake, {"P": 3})
    tell(broker, lake)
    hold(lake, {})
    tell(broker, lake)
    key, value, *_ = broker.records.pop()
    broker.records.append((key, json.dumps(json.loads(value or b"") | change).encode()))
    check, _ = verified(broker, lake)
    assert check.differences == 1
    assert re.search(what, check.examples[0])


def test_an_outdated_alert_is_kept_once_and_under_its_own_id(lake: str) -> None:
    row = {name: value for name, value in alert("P", 3).items() if name in arrow_schema(OUTDATED).names}
    for number, kept in enumerate((row, row, row | {"purchase_id": "Q"}), 1):
        append_table(lake, OUTDATED, pa.Table.from_pylist([kept | {"noted_at": MOMENT}], arrow_schema(OUTDATED)))
        assert verified(Broker(), lake)[1].ok is (number == 1)
