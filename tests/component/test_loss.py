"""Offsets that Kafka has lost: found, named, and gone on from only by the one who knows how many they are."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.engine import loss, regrown
from customer_activity.engine.loss import Lost
from customer_activity.engine.regrown import Known
from customer_activity.errors import OffsetsLost, SettingsError
from customer_activity.kafka import clients
from customer_activity.lake import delta
from customer_activity.operations import recovery
from customer_activity.settings import Settings
from support import tables
from support.dying import Died, dies
from support.quick_pipeline import QuickPipeline
from support.streams import Query

BOUGHT, PEOPLE, PAID = "purchase-events", "customer-profile-state", "payment-events"


def source(bought: dict[int, int], people: dict[int, int]) -> str:
    """Offsets as Spark writes them."""
    return json.dumps({BOUGHT: bought, PEOPLE: people}, separators=(",", ":"))


CUT = OffsetRange([source({0: 5, 1: 6}, {0: 1})], [source({0: 9, 1: 6}, {0: 4})])
WHOLE = {BOUGHT: {0: (0, 20), 1: (0, 20)}, PEOPLE: {0: (0, 20)}}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings of a lake whose bronze has landed batch 7."""
    own = Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run")
    delta.ensure_tables(own.lake)
    checkpoint.write(own.lake, Query.BRONZE, "g-1", 7, CUT, is_committed=True)
    note = {"query": "bronze", "generation": "g-1", "batch_id": 7, "topic_ids": {BOUGHT: "id-1", PEOPLE: "id-2"}}
    tables.commit(own.lake, Table.PROFILE_EVENTS, note)
    return own


def write_checkpoint(settings: Settings, *, is_committed: bool) -> None:
    """Have a checkpoint of batch 7 that is through or not, in the place of the one that is there."""
    checkpoint.set_aside(settings.lake, Query.BRONZE, datetime.now(UTC))
    checkpoint.write(settings.lake, Query.BRONZE, "g-1", 7, CUT, is_committed=is_committed)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand in for Kafka: what each partition still has, and the topics' ids."""
    has: dict[str, Any] = {"ranges": dict(WHOLE), "ids": {BOUGHT: "id-1", PEOPLE: "id-2"}, "records": {}}
    monkeypatch.setattr(clients, "offset_range", lambda _, topic: has["ranges"][topic])
    monkeypatch.setattr(clients, "topic_ids", lambda _, topics: {topic: has["ids"][topic] for topic in topics})
    monkeypatch.setattr(
        regrown,
        "in_kafka",
        lambda _, topic, places: {at: has["records"][topic, *at] for at in places if (topic, *at) in has["records"]},
    )
    return has


@pytest.mark.parametrize(
    ("is_committed", "ranges", "lost"),
    [
        pytest.param(True, {}, [], id="Kafka has everything"),
        pytest.param(True, {BOUGHT: {0: (9, 20), 1: (6, 6)}}, [], id="Kafka has just what comes next"),
        pytest.param(True, {BOUGHT: {0: (12, 20), 1: (0, 20)}}, [Lost(BOUGHT, 0, 9, 11)], id="three are gone"),
        pytest.param(
            True,
            {BOUGHT: {0: (20, 20), 1: (7, 9)}, PEOPLE: {0: (5, 5)}},
            [Lost(BOUGHT, 0, 9, 19), Lost(BOUGHT, 1, 6, 6), Lost(PEOPLE, 0, 4, 4)],
            id="in several partitions, up to the end",
        ),
        pytest.param(
            False, {BOUGHT: {0: (7, 20), 1: (0, 20)}}, [Lost(BOUGHT, 0, 5, 6)], id="of a batch that is read again"
        ),
        pytest.param(True, {BOUGHT: {0: (0, 20), 1: (0, 20), 2: (0, 9)}}, [], id="a partition was added"),
        pytest.param(
            True,
            {BOUGHT: {0: (0, 20), 1: (0, 20), 2: (4, 9)}},
            [Lost(BOUGHT, 2, 0, 3)],
            id="a partition was added whose start is gone",
        ),
        pytest.param(
            False,
            {BOUGHT: {0: (0, 20), 1: (0, 20), 2: (9, 9)}},
            [Lost(BOUGHT, 2, 0, 8)],
            id="a partition was added, and all of it is gone",
        ),
    ],
)
def test_lost_offsets_are_found(
    settings: Settings, broker: dict[str, Any], is_committed: bool, ranges: dict[str, Any], lost: list[Lost]
) -> None:
    broker["ranges"].update(ranges)
    write_checkpoint(settings, is_committed=is_committed)

    assert loss.find(settings, topology.landing()) == lost
    if not lost:
        loss.check(settings, topology.landing())
        return
    count = sum(part.offsets for part in lost)
    with pytest.raises(OffsetsLost, match=rf"{count} offsets[\s\S]*{lost[0]}[\s\S]*accept-loss {count} "):
        loss.check(settings, topology.landing())


@pytest.mark.parametrize(
    ("ranges", "ids", "why"),
    [
        pytest.param({BOUGHT: {0: (0, 8), 1: (0, 20)}}, {}, "ends at offset 8, and offset 9 is next", id="shorter"),
        pytest.param({BOUGHT: {0: (0, 20)}}, {}, "partition 1 ends at offset 0", id="fewer partitions"),
        pytest.param({}, {PEOPLE: "id-3"}, "its id is another one", id="made anew, and longer already"),
    ],
)
def test_another_topic_of_the_same_name_is_refused_and_cannot_be_accepted(
    settings: Settings, broker: dict[str, Any], ranges: dict[str, Any], ids: dict[str, str], why: str
) -> None:
    broker["ranges"].update(ranges)
    broker["ids"].update(ids)
    with pytest.raises(OffsetsLost, match=rf"is not the topic that was landed so far: .*{why}"):
        loss.check(settings, topology.landing())
    with pytest.raises(OffsetsLost, match="is not the topic"):
        loss.accept(settings, 1, "somebody hopes so")


def land(settings: Settings, table: Table, topic: str, *places: tuple[int, int], **more: Any) -> None:
    """Have records landed at some partitions and offsets, each sent in the millisecond of its offset."""
    rows = [
        {"topic": topic, "partition": partition, "offset": offset, "kafka_timestamp": sent(offset), "key": b"P-1"}
        for partition, offset in places
    ]
    tables.append(settings.lake, table, *(row | more for row in rows), query="bronze", landing=1)


def sent(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)


SAME, SENT_LATER, OF_ANOTHER = Known(8, b"P-1"), Known(9, b"P-1"), Known(8, b"P-2")
REFUSED = {"reason": "not_json", "quarantined_at": sent(9)}


@pytest.mark.parametrize(
    ("landed_in", "more", "records", "is_refused"),
    [
        pytest.param(Table.PURCHASE_EVENTS, {}, {8: SAME}, False, id="the same"),
        pytest.param(Table.PURCHASE_EVENTS, {}, {8: SENT_LATER}, True, id="of another time"),
        pytest.param(Table.PURCHASE_EVENTS, {}, {8: OF_ANOTHER}, True, id="of another key"),
        pytest.param(Table.QUARANTINE, REFUSED, {8: OF_ANOTHER}, True, id="it was refused"),
        pytest.param(
            Table.QUARANTINE, REFUSED | {"key": None, "kafka_timestamp": None}, {8: OF_ANOTHER}, False, id="not known"
        ),
        pytest.param(Table.PURCHASE_EVENTS, {}, {}, False, id="compaction took them"),
        pytest.param(Table.PURCHASE_EVENTS, {}, {7: SENT_LATER}, True, id="the last one is a transaction's mark"),
        pytest.param(Table.PURCHASE_EVENTS, {}, {2: SENT_LATER, 8: SAME}, False, id="older ones are not asked for"),
    ],
)
def test_a_log_that_was_cut_back_and_has_grown_again_is_refused(
    settings: Settings,
    broker: dict[str, Any],
    landed_in: Table,
    more: dict[str, Any],
    records: dict[int, Known],
    is_refused: bool,
) -> None:
    """Topic, id and length are right: only the records are others."""
    land(settings, landed_in, BOUGHT, *((0, offset) for offset in range(9)), **more)
    land(settings, Table.PROFILE_EVENTS, PEOPLE, (0, 3))  # the other topic has offsets of its own
    broker["records"] = {(BOUGHT, 0, offset): record for offset, record in records.items()}
    if not is_refused:
        loss.check(settings, topology.landing())
        return
    why = rf"is not the topic that was landed so far: partition 0 has another record at offset {max(records)}"
    with pytest.raises(OffsetsLost, match=rf"{BOUGHT} {why}[\s\S]*docs/OPERATIONS.md"):
        loss.check(settings, topology.landing())
    with pytest.raises(OffsetsLost, match="is not the topic"):
        loss.accept(settings, 1, "somebody hopes so")


def test_what_retention_has_removed_is_not_asked_for(
    settings: Settings, broker: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    land(settings, Table.PURCHASE_EVENTS, BOUGHT, (0, 7), (0, 8))
    broker["ranges"].update({BOUGHT: {0: (9, 20), 1: (6, 6)}})
    monkeypatch.setattr(regrown, "in_kafka", lambda *_: pytest.fail("Kafka would refuse such an offset"))
    loss.check(settings, topology.landing())


def test_of_a_batch_that_is_read_again_what_has_landed_already_is_compared(
    settings: Settings, broker: dict[str, Any]
) -> None:
    write_checkpoint(settings, is_committed=False)
    land(settings, Table.PURCHASE_EVENTS, BOUGHT, (0, 4), (0, 8))  # the batch begins at 5
    broker["records"] = {(BOUGHT, 0, 4): Known(4, b"P-1"), (BOUGHT, 0, 8): OF_ANOTHER}
    with pytest.raises(OffsetsLost, match="partition 0 has another record at offset 8"):
        loss.check(settings, topology.landing())


@pytest.mark.parametrize("topic", [BOUGHT, PEOPLE])
def test_what_bronze_itself_has_landed_is_no_other_record(
    lived: QuickPipeline, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeats, tombstones and bad records among them: a wrong alarm would keep every driver from starting."""
    kafka = {
        (partition, offset): Known(record.timestamp_ms, record.key)
        for name, partition, offset, record in lived.sent
        if name == topic
    }
    asked: set[tuple[int, int]] = set()

    def in_kafka(_: Settings, _topic: str, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Known]:
        asked.update(places)
        return {place: kafka[place] for place in places}

    monkeypatch.setattr(regrown, "in_kafka", in_kafka)
    ends = {partition: offset + 1 for partition, offset in sorted(kafka)}
    found = regrown.unlike(lived.settings, topology.landing().tables, topic, ends, {})
    assert found is None
    assert {(partition, end - 1) for partition, end in ends.items()} <= asked


def test_a_lake_without_a_checkpoint_has_lost_nothing(settings: Settings, broker: dict[str, Any]) -> None:
    broker["ranges"][BOUGHT] = {0: (100, 200), 1: (100, 200)}
    checkpoint.set_aside(settings.lake, Query.BRONZE, datetime.now(UTC))
    assert loss.find(settings, topology.landing()) == []


@pytest.mark.parametrize("is_committed", [True, False], ids=["the batch is through", "the batch is read again"])
def test_what_is_accepted_is_gone_on_from_and_noted(
    settings: Settings, broker: dict[str, Any], is_committed: bool
) -> None:
    write_checkpoint(settings, is_committed=is_committed)
    broker["ranges"].update({BOUGHT: {0: (12, 20), 1: (0, 20)}})
    (lost,) = loss.find(settings, topology.landing())

    assert loss.accept(settings, lost.offsets, "retention was too short") == [lost]

    assert loss.find(settings, topology.landing()) == []
    state = checkpoint.state(settings.lake, Query.BRONZE)
    assert state == ("g-1", 7, 7 if is_committed else 6)
    begin = source({0: 12, 1: 6}, {0: 1})
    assert checkpoint.cut(settings.lake, Query.BRONZE, 7) == OffsetRange([begin], [source({0: 12, 1: 6}, {0: 4})])
    (deed,) = (json.loads(path.read_text()) for path in Path(settings.lake, "_audit").iterdir())
    expected = {"what": "accept-loss", "reason": "retention was too short", "lost": [lost._asdict()]}
    assert expected.items() <= deed.items()
    assert Path(deed["set_aside"]).is_dir()


@pytest.mark.parametrize("is_committed", [True, False], ids=["the batch is through", "the batch is read again"])
def test_what_an_added_partition_lost_is_accepted(
    settings: Settings, broker: dict[str, Any], is_committed: bool
) -> None:
    write_checkpoint(settings, is_committed=is_committed)
    broker["ranges"].update({BOUGHT: {0: (0, 20), 1: (0, 20), 2: (4, 9)}})

    loss.accept(settings, 4, "it was added too late")

    assert loss.find(settings, topology.landing()) == []
    cut = checkpoint.cut(settings.lake, Query.BRONZE, 7)
    assert cut == OffsetRange([source({0: 5, 1: 6, 2: 4}, {0: 1})], [source({0: 9, 1: 6, 2: 4}, {0: 4})])


def test_what_a_first_batch_has_lost_is_found_and_accepted(settings: Settings, broker: dict[str, Any]) -> None:
    """It was planned and did not land: Spark has noted where it begins, and Kafka has less by now."""
    checkpoint.set_aside(settings.lake, Query.BRONZE, datetime.now(UTC))
    begin, end = source({0: 0, 1: 0}, {0: 2}), source({0: 9, 1: 6}, {0: 4})
    checkpoint.write(settings.lake, Query.BRONZE, "g-1", 0, OffsetRange(None, [end]), begin=begin)
    assert loss.find(settings, topology.landing()) == []
    broker["ranges"].update({BOUGHT: {0: (3, 20), 1: (0, 20)}, PEOPLE: {0: (5, 9)}})
    lost = [Lost(BOUGHT, 0, 0, 2), Lost(PEOPLE, 0, 2, 4)]
    assert loss.find(settings, topology.landing()) == lost

    assert loss.accept(settings, 6, "retention was too short") == lost

    assert loss.find(settings, topology.landing()) == []
    assert checkpoint.first(settings.lake, Query.BRONZE) == source({0: 3, 1: 0}, {0: 5})
    cut = checkpoint.cut(settings.lake, Query.BRONZE, 0)
    assert cut == OffsetRange(None, [source({0: 9, 1: 6}, {0: 5})])


def test_what_a_first_batch_has_lost_is_not_forgotten_by_a_recovery(settings: Settings, broker: dict[str, Any]) -> None:
    """No table tells of it: without what was planned bronze would begin with what Kafka has by now."""
    settings = settings.model_copy(update={"lake": f"{settings.lake}-into-which-nothing-landed"})
    delta.ensure_tables(settings.lake)
    begin, end = source({0: 0, 1: 0}, {0: 2}), source({0: 9, 1: 6}, {0: 4})
    checkpoint.write(settings.lake, Query.BRONZE, "g-1", 0, OffsetRange(None, [end]), begin=begin)
    broker["ranges"].update({BOUGHT: {0: (3, 20), 1: (0, 20)}})

    done = recovery.recover(settings.lake, Query.BRONZE, "to see whether that helps")

    assert (done.batch_id, done.is_planned) == (0, True)
    assert loss.find(settings, topology.landing()) == [Lost(BOUGHT, 0, 0, 2)]


def test_what_was_accepted_is_noted_before_nothing_tells_of_it_any_more(
    settings: Settings, broker: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    broker["ranges"].update({BOUGHT: {0: (12, 20), 1: (0, 20)}})
    monkeypatch.setattr(checkpoint, "set_aside", lambda *_: dies()("noted"))
    with pytest.raises(Died):
        loss.accept(settings, 3, "retention was too short")
    (deed,) = (json.loads(path.read_text()) for path in Path(settings.lake, "_audit").iterdir())
    assert (deed["what"], deed["offsets"]) == ("accept-loss", 3)


@pytest.mark.parametrize("offsets", [1, 4], ids=["fewer than are lost", "more than are lost"])
def test_only_what_is_known_to_be_lost_can_be_accepted(
    settings: Settings, broker: dict[str, Any], offsets: int
) -> None:
    broker["ranges"].update({BOUGHT: {0: (12, 20), 1: (0, 20)}})
    with pytest.raises(SettingsError, match=f"3 offsets are lost, not {offsets}: {BOUGHT}-0 9 to 11"):
        loss.accept(settings, offsets, "guessed")
    assert [lost.offsets for lost in loss.find(settings, topology.landing())] == [3]


def test_nothing_lost_is_nothing_to_accept(settings: Settings, broker: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="0 offsets are lost, not 1"):
        loss.accept(settings, 1, "to be on the safe side")


def test_loss_of_an_optional_topic_is_accepted_for_its_own_stream(settings: Settings, broker: dict[str, Any]) -> None:
    topology.switch_on(["payments"])
    try:
        delta.ensure_tables(settings.lake)
        paid = OffsetRange([json.dumps({PAID: {"0": 0}})], [json.dumps({PAID: {"0": 4}})])
        checkpoint.write(settings.lake, "payment_events", "g-9", 3, paid, is_committed=True)
        tables.commit(
            settings.lake,
            Table.PAYMENT_EVENTS,
            {"query": "payment_events", "generation": "g-9", "batch_id": 3, "topic_ids": {PAID: "id-3"}},
        )
        broker["ranges"][PAID] = {0: (6, 20)}
        broker["ids"][PAID] = "id-3"
        loss.check(settings, topology.landing())  # bronze lacks nothing
        with pytest.raises(OffsetsLost, match="2 offsets that were never landed: payment-events-0 4 to 5"):
            loss.check(settings, topology.spec("payment_events"))
        bronze = checkpoint.state(settings.lake, Query.BRONZE)
        assert loss.accept(settings, 2, "retention was too short") == [Lost(PAID, 0, 4, 5)]
        assert loss.find(settings, topology.spec("payment_events")) == []
        assert checkpoint.state(settings.lake, Query.BRONZE) == bronze
        broker["ids"][PAID] = "id-4"
        with pytest.raises(OffsetsLost, match="payment-events is not the topic that was landed so far"):
            loss.check(settings, topology.spec("payment_events"))
    finally:
        topology.switch_on([])
