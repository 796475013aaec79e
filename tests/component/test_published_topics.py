"""Verification of topics that publish tables: what may have expired from one, and what is too large for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.commands.verify import published
from customer_activity.contracts.published import keys, values
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import delta
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input
from customer_activity.verification import lake as lake_of_verification
from customer_activity.verification.comparison import Check
from customer_activity.verification.published import Seen, compare
from customer_activity.verification.records import RawRecord
from customer_activity.verification.verify import Report
from support.days import KEY, row, write
from support.tables import date, opened
from support.world import World, failing

HOUR = 3_600_000
NOW = 1_800_000_000_000
KEPT = 5 * HOUR  # how long the topic keeps a record


@pytest.fixture(autouse=True)
def on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    topology.switch_on(["publish_daily_final"])
    monkeypatch.setattr("time.time", lambda: NOW / 1000)
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


COUNTS = {"A": 1, "B": 2, "C": 3, "D": 4}
OLD, C, D = [Sent("A", 8.9), Sent("B", 8.9)], Sent("C", 2.9), Sent("D", 0.9)


def verified(
    lake: str,
    sent: list[Sent],
    begins: dict[int, int],
    monkeypatch: pytest.MonkeyPatch,
    kept_for: int | None = KEPT,
) -> Check:
    """Verify the topic of final days: what it has of each partition comes behind the offsets that have expired."""
    records: dict[int, list[RawRecord]] = {partition: [] for partition in begins}
    for customer, hours_ago, partition in sent:
        offset, moment = begins[partition] + len(records[partition]), NOW - int(hours_ago * HOUR)
        records[partition].append(RawRecord(partition, offset, moment, *record(customer, COUNTS[customer]), ()))
    ends = {partition: begin + len(records[partition]) for partition, begin in begins.items()}
    every = [record for of_partition in records.values() for record in of_partition]
    for name, answer in {"begins": begins, "ends": ends, "is_compacted": False, "kept_for": kept_for}.items():
        monkeypatch.setattr(kafka_input, name, lambda *_, answer=answer: answer)
    monkeypatch.setattr(kafka_input, "read", lambda *_: iter(every))
    settings = Settings(lake=lake)
    (topic,) = published(settings)
    seen = Seen()
    seen.read(settings, topic.topic)
    return compare(topic, {Table.DAILY: opened(lake, Table.DAILY)}, seen, 1_000_000)


@pytest.mark.parametrize(
    ("sent", "begins", "kept_for", "missing"),
    [
        pytest.param([*OLD, C, D], {0: 0, 1: 0}, KEPT, [], id="nothing has expired"),
        pytest.param([*OLD, C], {0: 0, 1: 0}, KEPT, ["D"], id="nothing has expired, and one was never sent"),
        pytest.param([C, D], {0: 2, 1: 0}, KEPT, [], id="the oldest have expired"),
        pytest.param([C], {0: 2, 1: 0}, KEPT, ["D"], id="the oldest have expired, and a newer one was never sent"),
        pytest.param([D], {0: 3, 1: 0}, KEPT, [], id="what is older than the oldest record may have expired"),
        pytest.param([D._replace(partition=1)], {0: 2, 1: 0}, KEPT, ["C"], id="of an empty partition by its retention"),
        pytest.param([], {0: 4, 1: 0}, HOUR // 2, [], id="all of it may have expired"),
        pytest.param([], {0: 4, 1: 0}, None, [], id="nothing is known of a size that ends in an empty partition"),
        pytest.param([C], {0: 2, 1: 0}, None, ["D"], id="of a size that ends in records their own times are known"),
    ],
)
def test_what_cannot_have_expired_is_missed(
    sent: list[Sent],
    begins: dict[int, int],
    kept_for: int | None,
    missing: list[str],
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = verified(lake, sent, begins, monkeypatch, kept_for)
    assert list(check.examples) == [f'["{customer}","2026-03-01"] is missing' for customer in missing]


def test_of_versions_whose_files_are_gone_nothing_is_missed(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = sorted(
        Path(table_path(lake, Table.DAILY), "_change_data").iterdir(), key=lambda path: path.stat().st_mtime
    )
    assert verified(lake, [], {0: 4}, monkeypatch).differences == 2
    for path in changes[:-1]:
        path.unlink()
    assert list(verified(lake, [], {0: 4}, monkeypatch).examples) == ['["D","2026-03-01"] is missing']


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
    ("role", "failing_checks"),
    [
        pytest.param("daily_final", set(), id="of a topic of ours"),
        pytest.param(None, {Table.QUARANTINE.label}, id="of a topic that nobody publishes"),
    ],
)
def test_quarantine_has_what_is_too_large_for_other_topics(
    role: str | None, failing_checks: set[str], settings: Settings, verify_world: Callable[..., Report]
) -> None:
    world = World()
    key, value = record("C", 3)
    topic = settings.topics[role] if role else "somebody-elses"
    nothing = dict.fromkeys(world.tables[Table.QUARANTINE][0])
    world.tables[Table.QUARANTINE].append(
        nothing | {"reason": "too_large_to_publish", "topic": topic, "key": key, "value": value}
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
