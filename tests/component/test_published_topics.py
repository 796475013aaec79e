"""Verification of topics that publish tables: what may have expired from one, and what is too large for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.commands.verify import published
from customer_activity.contracts.published import keys, values
from customer_activity.contracts.tables import arrow_schema
from customer_activity.kafka import clients
from customer_activity.lake import delta
from customer_activity.settings import Settings
from customer_activity.verification import expiry, kafka_input
from customer_activity.verification import lake as lake_of_verification
from customer_activity.verification.comparison import Check
from customer_activity.verification.published import Seen, compare, must_have
from customer_activity.verification.records import RawRecord
from customer_activity.verification.verify import Report
from support.days import KEY, row, write
from support.tables import append, date, opened
from support.world import World, failing
from support.world_rows import PURCHASES

HOUR = 3_600_000
NOW = 1_800_000_000_000


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    topology.switch_on(["publish_daily_final"])
    yield
    topology.switch_on([])


class Sent(NamedTuple):
    """A record of the topic: of whose day, how many hours ago it went out, and where it is."""

    customer: str
    hours_ago: float
    partition: int = 0


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Return a lake whose days became final at four moments; of the newest commit one row is as it was."""
    lake = str(tmp_path)
    delta.create(lake, Table.DAILY)
    for version, (hours_ago, states) in enumerate(
        [(9, {"A": (1, True), "B": (2, True)}), (3, {"C": (3, True), "D": (4, False)}), (1, {"D": (4, True)})], 1
    ):
        write(lake, version, {**states, "A": (1, True)})
        date(lake, Table.DAILY, NOW - hours_ago * HOUR)
    return lake


def record(customer: str, count: int) -> tuple[bytes, bytes]:
    """Return key and value of a final day."""
    made = pa.Table.from_pylist([row(customer, count, is_final=True)], arrow_schema(Table.DAILY))
    return next(keys(made, KEY)), next(values(made))


COUNTS = {"A": 1, "B": 2, "C": 3, "D": 4, "Z": 9, **{f"E{number}": 5 for number in range(5)}}
OLD, C, D = [Sent("A", 8.9), Sent("B", 8.9)], Sent("C", 2.9), Sent("D", 0.9)


def verified(
    lake: str,
    sent: list[Sent],
    begins: dict[int, int],
    monkeypatch: pytest.MonkeyPatch,
    late: Callable[[], None] | None = None,
    *,
    expires: bool = True,
) -> Check:
    """Verify the topic of final days: what it has of each partition comes behind the offsets that have expired."""
    records: dict[int, list[RawRecord]] = {partition: [] for partition in begins}
    for customer, hours_ago, partition in sent:
        offset, moment = begins[partition] + len(records[partition]), NOW - int(hours_ago * HOUR)
        records[partition].append(RawRecord(partition, offset, moment, *record(customer, COUNTS[customer]), ()))
    ends = {partition: begin + len(records[partition]) for partition, begin in begins.items()}
    every = [record for of_partition in records.values() for record in of_partition]
    for name, answer in {"begins": begins, "ends": ends, "expires": expires}.items():
        monkeypatch.setattr(kafka_input, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(kafka_input, "read", lambda *_: iter(every))
    settings = Settings(lake=lake)
    (topic,) = published(settings)
    seen = Seen()
    seen.read(settings, topic.topic)
    tables = {Table.DAILY: opened(lake, Table.DAILY)}
    if late is not None:
        late()
    return compare(topic, tables, seen, 1_000_000, must_have(lake, topic, tables, seen))


@pytest.mark.parametrize(
    ("sent", "begins", "missing"),
    [
        pytest.param([*OLD, C, D], {0: 0, 1: 0}, [], id="nothing has expired"),
        pytest.param([*OLD, C], {0: 0, 1: 0}, ["D"], id="nothing has expired, and one was never sent"),
        pytest.param([C, D], {0: 2, 1: 0}, [], id="the oldest have expired"),
        pytest.param([C], {0: 2, 1: 0}, ["D"], id="the oldest have expired, and a newer one was never sent"),
        pytest.param([D], {0: 3, 1: 0}, [], id="what is older than the oldest record may have expired"),
        pytest.param([D._replace(partition=1)], {0: 3, 1: 0}, [], id="nothing is known of an empty partition"),
        pytest.param([], {0: 4, 1: 0}, [], id="all of it may have expired"),
        pytest.param([C], {0: 2, 1: 7}, [], id="a newer one may have expired from the partition that is empty"),
    ],
)
def test_what_cannot_have_expired_is_missed(
    sent: list[Sent], begins: dict[int, int], missing: list[str], lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = verified(lake, sent, begins, monkeypatch)
    assert list(check.examples) == [f'["{customer}","2026-03-01"] is missing' for customer in missing]


@pytest.mark.parametrize(
    ("policy", "missing"),
    [
        pytest.param("delete", 0, id="records expire"),
        pytest.param("compact,delete", 0, id="records expire, though it is compacted"),
        pytest.param("compact", 1, id="the newest record of each key stays"),
    ],
)
def test_what_becomes_of_the_oldest_records_is_the_topics_policy(
    policy: str, missing: int, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "topic_setting", lambda *_: policy)
    expires = kafka_input.expires(Settings(), "daily")
    sent = [Sent("B", 8.9), C, D]
    assert verified(lake, sent, {0: 1}, monkeypatch, expires=expires).differences == missing


FIRST = Sent("Z", 8.0)  # older than what was committed three hours ago, and of no row of these days


@pytest.fixture
def many(lake: str) -> str:
    """Return a lake with five more versions, each with a day that became final in the last hour."""
    for number in range(5):
        write(lake, 4 + number, {f"E{number}": (5, True)})
        date(lake, Table.DAILY, NOW - (5 - number) * HOUR // 6)
    return lake


def gone(lake: str, versions: int) -> None:
    """Remove the files of the first versions' changes, as VACUUM does."""
    changes = sorted(
        Path(table_path(lake, Table.DAILY), "_change_data").iterdir(), key=lambda path: path.stat().st_mtime
    )
    for path in changes[:versions]:
        path.unlink()


@pytest.mark.parametrize("at_a_time", [1, 3, 50])
@pytest.mark.parametrize(
    ("versions", "missing"),
    [
        pytest.param(0, {"C", "D", "E0", "E1", "E2", "E3", "E4"}, id="all are there"),
        pytest.param(1, {"C", "D", "E0", "E1", "E2", "E3", "E4"}, id="what may have expired is gone"),
        pytest.param(3, {"E0", "E1", "E2", "E3", "E4"}, id="some are gone"),
        pytest.param(6, {"E3", "E4"}, id="most are gone"),
        pytest.param(8, set[str](), id="all are gone"),
    ],
)
def test_of_versions_whose_files_are_gone_nothing_is_missed(
    versions: int, missing: set[str], at_a_time: int, many: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expiry, "VERSIONS_AT_A_TIME", at_a_time)
    gone(many, versions)
    check = verified(many, [FIRST], {0: 9}, monkeypatch)
    assert check.differences == len(missing) + 1  # and the record that is of no row
    assert {example[2:].partition('"')[0] for example in check.examples if "missing" in example} <= missing


def test_storage_that_does_not_answer_has_lost_nothing(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise OSError("Generic S3 error: HTTP 503")

    monkeypatch.setattr(DeltaTable, "load_cdf", fails)
    with pytest.raises(OSError, match="503"):
        verified(lake, [C], {0: 2}, monkeypatch)


def test_versions_that_come_while_it_is_verified_shift_nothing(many: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day that may have expired is not missed because others became final meanwhile."""

    def late() -> None:
        for number in range(4):
            write(many, 20 + number, {f"F{number}": (5, True)})
            date(many, Table.DAILY, NOW)

    sent = [D, *(Sent(f"E{number}", 0.1) for number in range(5))]
    assert verified(many, sent, {0: 3}, monkeypatch, late).differences == 0


def test_a_figure_that_went_and_came_back_must_be_there(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, state in enumerate([(3, False), (3, True)]):
        write(lake, 4 + number, {"C": state})
        date(lake, Table.DAILY, NOW - HOUR // (2 + number))
    assert list(verified(lake, [D], {0: 3}, monkeypatch).examples) == ['["C","2026-03-01"] is missing']


def test_a_publisher_of_several_topics_sends_what_each_of_them_takes(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology.switch_on(["publish_routed", "publish_daily_final"])
    beside = {each.topic: each.beside for each in published(settings)}
    high, other, daily = (settings.topics[role] for role in ("high_value_purchases", "other_purchases", "daily_final"))
    assert beside == {high: (other,), other: (high,), daily: ()}
    limits = {high: "1000", other: "5000"}
    monkeypatch.setattr(clients, "topic_setting", lambda _, topic, __: limits[topic])
    assert kafka_input.largest_record(settings, other, *beside[other]) == 1_000


@pytest.mark.parametrize(
    ("held", "largest", "sent", "differences"),
    [
        pytest.param(record("C", 3), 50, [], 0, id="it is in quarantine"),
        pytest.param(record("C", 3), 50, [record("C", 2)], 0, id="the topic has it as it was before it grew"),
        pytest.param(None, 50, [], 1, id="it is not in quarantine"),
        pytest.param(record("C", 2), 50, [], 1, id="an earlier one is in quarantine"),
        pytest.param(record("D", 3), 50, [], 1, id="another customer's is in quarantine"),
        pytest.param(record("C", 3), 1_000_000, [], 1, id="the topic takes it by now"),
        pytest.param(record("C", 3), 1_000_000, [record("C", 3)], 0, id="the topic takes it by now, and has it"),
    ],
)
def test_a_row_that_is_too_large_is_in_quarantine(
    held: tuple[bytes, bytes] | None, largest: int, sent: list[tuple[bytes, bytes]], differences: int, tmp_path: Path
) -> None:
    lake = str(tmp_path)
    delta.create(lake, Table.DAILY)
    write(lake, 1, {"C": (3, True)})
    seen = Seen()
    seen.take(RawRecord(0, offset, NOW, *each, ()) for offset, each in enumerate(sent))
    seen.hold([held] if held else [])
    (topic,) = published(Settings(lake=lake))
    check = compare(topic, {Table.DAILY: opened(lake, Table.DAILY)}, seen, largest)
    assert check.differences == differences


@pytest.mark.parametrize(
    ("amount", "differences"),
    [
        pytest.param(None, 0, id="a field that had no value"),
        pytest.param(Decimal("3.50"), 1, id="a field that has one"),
    ],
)
def test_a_field_that_a_record_lacks_is_null(amount: Decimal | None, differences: int, tmp_path: Path) -> None:
    """A release that knew less of a purchase has sent records that stay as they are."""
    lake = str(tmp_path)
    delta.create(lake, Table.DAILY)
    append(lake, Table.DAILY, row("C", 3, is_final=True) | {"total_amount": amount}, query="daily")
    key, value = record("C", 3)
    sent = {name: told for name, told in json.loads(value, parse_float=str).items() if name != "totalAmount"}
    seen = Seen()
    seen.take([RawRecord(0, 0, NOW, key, json.dumps(sent).encode(), ())])
    (topic,) = published(Settings(lake=lake))
    assert compare(topic, {Table.DAILY: opened(lake, Table.DAILY)}, seen, 1_000_000).differences == differences


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b'{"customerId":"\\ud800"}', id="half of a character"),
        pytest.param(b'{"customerId":1e99999999999999999999}', id="a number that no decimal holds"),
        pytest.param(b"\xff", id="no UTF-8"),
    ],
)
def test_a_record_of_another_writer_is_in_no_table(value: bytes, tmp_path: Path) -> None:
    lake = str(tmp_path)
    delta.create(lake, Table.DAILY)
    seen = Seen(("customerId",))
    seen.take([RawRecord(0, 0, NOW, b"\xed\xa0\x80", value, ())])
    (topic,) = published(Settings(lake=lake))
    check = compare(topic, {Table.DAILY: opened(lake, Table.DAILY)}, seen, 1_000_000)
    assert check.differences == 1
    assert check.examples[0].endswith("is not in the table")


@pytest.mark.parametrize(
    ("changes", "failing_checks"),
    [
        pytest.param({}, set(), id="of a topic of ours"),
        pytest.param({"topic": "a-former-name"}, set(), id="of a topic that has another name by now"),
        pytest.param({"reason": "not_json"}, {Table.QUARANTINE.label}, id="for another reason"),
        pytest.param({"partition": 0, "offset": 3}, {Table.QUARANTINE.label}, id="with coordinates"),
        pytest.param({"topic": PURCHASES}, {Table.QUARANTINE.label}, id="of an input"),
    ],
)
def test_quarantine_has_what_is_too_large_for_other_topics(
    changes: dict[str, Any], failing_checks: set[str], settings: Settings, verify_world: Callable[..., Report]
) -> None:
    world = World()
    key, value = record("C", 3)
    topic = settings.topics["daily_final"]
    nothing = dict.fromkeys(world.tables[Table.QUARANTINE][0])
    world.tables[Table.QUARANTINE].append(
        nothing | {"reason": "too_large_to_publish", "topic": topic, "key": key, "value": value} | changes
    )
    assert failing(verify_world(world)) == failing_checks


def test_it_is_read_from_quarantine_by_topic(settings: Settings) -> None:
    world = World()
    nothing = dict.fromkeys(world.tables[Table.QUARANTINE][0])
    for topic, reason in (("daily", "too_large_to_publish"), ("daily", "not_json"), ("weekly", "too_large_to_publish")):
        world.tables[Table.QUARANTINE].append(
            nothing | {"reason": reason, "topic": topic, "key": topic.encode(), "value": reason.encode()}
        )
    world.write(settings.lake)
    found = lake_of_verification.too_large(opened(settings.lake, Table.QUARANTINE), "daily")
    assert list(found) == [(b"daily", b"too_large_to_publish")]
