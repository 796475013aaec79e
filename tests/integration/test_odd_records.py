"""Records as somebody else's client may send them, and as a disk may damage them: both ways to them tell the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from benchmarks.environment import set_topic
from customer_activity.catalog import Table
from customer_activity.errors import RecordsUnreadable
from customer_activity.kafka import clients
from customer_activity.lake import delta, microbatch
from customer_activity.settings import Settings
from customer_activity.streams.bronze import fetching
from customer_activity.streams.bronze.fetching import Fetcher
from customer_activity.verification import kafka_input
from customer_activity.verification.records import RawRecord
from support import records, wire
from support.broker import assert_verified, drain, rows
from support.wire import WireRecord

PARTITION = 1
NAMES = {
    "Latin-1": (b"caf\xe9", "caf\\xe9"),
    "half a character": (b"\xed\xa0\x80", "\\xed\\xa0\\x80"),
    "no text at all": (b"\xff\xfe\x00", "\\xff\\xfe"),
    "the replacement character itself": ("\ufffd".encode(), "\ufffd"),
    "ends at U+0000": (b"a\x00b", "a"),
    "empty": (b"", ""),
}
ODD_HEADERS = [(name, b"\x00\xff") for name, _ in NAMES.values()] + [(b"none", None)]
TOLD_HEADERS = [(told, b"\x00\xff") for _, told in NAMES.values()] + [("none", None)]
ODD_TIMESTAMPS = [-1, 0, 253_402_300_800_000, 2**63 // 1000, 2**63 - 1, -(2**63), -2]


def allow_any_timestamp(settings: Settings) -> None:
    """Have the topics take whatever timestamp a producer gives, as brokers did before Kafka 4."""
    allowed = dict.fromkeys((f"message.timestamp.{side}.max.ms" for side in ("before", "after")), str(2**63 - 1))
    for topic in (settings.purchase_topic, settings.profile_topic):
        set_topic(settings, topic, allowed)


def purchase(number: int, **more: Any) -> WireRecord:
    """A purchase that counts."""
    record = records.purchase(f"P-{number}", "C-1")
    return WireRecord(record.key, record.value, **more)


def fetched(fetcher: Fetcher, begin: int, upto: int) -> list[dict[str, Any]]:
    """What the fetcher hands out of the partition."""
    ranges = {fetcher.settings.purchase_topic: {PARTITION: (begin, upto)}}
    return [row for part in fetcher.fetch(ranges) for row in part.to_pylist()]


def verified(settings: Settings, begin: int, upto: int) -> list[RawRecord]:
    """What verification reads of the partition."""
    return list(kafka_input.read(settings, settings.purchase_topic, {PARTITION: begin}, {PARTITION: upto}))


def test_headers_names_of_any_bytes_are_kept(settings: Settings, fetcher: Fetcher) -> None:
    topic = settings.purchase_topic
    odd = {"headers": ODD_HEADERS}
    wire.produce(settings, topic, PARTITION, purchase(0), purchase(1, **odd), purchase(2), purchase(3, **odd))

    found = [[tuple(header.values()) for header in row["headers"] or ()] for row in fetched(fetcher, 0, 4)]

    assert found == [[], TOLD_HEADERS, [], TOLD_HEADERS]
    assert [list(record.headers) for record in verified(settings, 0, 4)] == found


def test_many_of_them_are_kept_too(settings: Settings, fetcher: Fetcher) -> None:
    """An interpreter that has called something often calls it another way."""
    odd = [purchase(number, headers=[(b"n\xff%d" % number, b"1")] if number % 3 else ()) for number in range(100)]
    wire.produce(settings, settings.purchase_topic, PARTITION, *odd)

    found = [[tuple(header.values()) for header in row["headers"] or ()] for row in fetched(fetcher, 0, 100)]

    assert found == [[(f"n\\xff{number}", b"1")] if number % 3 else [] for number in range(100)]
    assert [list(record.headers) for record in verified(settings, 0, 100)] == found


def test_timestamps_of_any_number_are_handed_out(settings: Settings, fetcher: Fetcher) -> None:
    allow_any_timestamp(settings)
    odd = [purchase(number, timestamp=timestamp) for number, timestamp in enumerate(ODD_TIMESTAMPS)]
    upto = wire.produce(settings, settings.purchase_topic, PARTITION, *odd) + 1

    ranges = {settings.purchase_topic: {PARTITION: (0, upto)}}
    table = pa.Table.from_batches(fetcher.fetch(ranges))

    assert table.column("timestamp").cast(pa.int64()).to_pylist() == ODD_TIMESTAMPS
    assert [record.timestamp for record in verified(settings, 0, upto)] == [-1, 0, None, None, None, None, None]


def test_damaged_records_are_an_error(settings: Settings, fetcher: Fetcher) -> None:
    topic = settings.purchase_topic
    wire.produce(settings, topic, PARTITION, WireRecord(b"P", b"good"), WireRecord(b"P", b"whole"))
    wire.damage(settings, topic, PARTITION, b"whole", b"wh0le")

    with pytest.raises(RecordsUnreadable, match=f"{topic}-{PARTITION} .*cannot read"):
        fetched(fetcher, 0, 2)
    with pytest.raises(RecordsUnreadable, match="cannot read"):
        verified(settings, 0, 2)


@pytest.mark.parametrize("codec", [5, 7])
def test_an_unknown_compression_is_an_error_at_once(settings: Settings, fetcher: Fetcher, codec: int) -> None:
    fetcher.silence_seconds = 10.0
    topic = settings.purchase_topic
    wire.produce(settings, topic, PARTITION, WireRecord(b"P", b"0"), WireRecord(b"P", b"1"))
    wire.claim_compression(settings, topic, PARTITION, codec)

    with pytest.raises(RecordsUnreadable, match="cannot read"):
        fetched(fetcher, 0, 2)


def test_a_batch_comes_in_parts_of_some_bytes(
    settings: Settings, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PART_BYTES", 1_000_000)
    monkeypatch.setattr(fetching, "AHEAD_BYTES", 1_000_000)
    topic, producer = settings.purchase_topic, clients.producer(settings)
    for number in range(60):  # packed, all of them are a few kilobytes
        for partition in (0, PARTITION):
            producer.produce(topic, key=b"P", value=b"%03d" % number * 100_000, partition=partition)
    producer.flush(30)

    first = list(fetcher.fetch({topic: {0: (0, 2), PARTITION: (0, 60)}}))
    rest = list(fetcher.fetch({topic: {0: (2, 60), PARTITION: (60, 60)}}))

    assert max(part.nbytes for part in (*first, *rest)) < 2_500_000
    for parts, partition, offsets in ((first, 0, range(2)), (first, PARTITION, range(60)), (rest, 0, range(2, 60))):
        found = [row["offset"] for part in parts for row in part.to_pylist() if row["partition"] == partition]
        assert found == list(offsets)
    assert len(list(fetcher.fetch({topic: {0: (0, 2), PARTITION: (59, 60)}}))) == 1


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_odd_records_land_alike_whichever_way_they_come(
    spark: SparkSession, settings: Settings, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "tasks":
        monkeypatch.setattr(microbatch, "SMALL_BATCH_ROWS", 0)
    settings = settings.model_copy(update={"max_bad_share": 1.0})
    delta.ensure_tables(settings.lake)
    allow_any_timestamp(settings)
    topic, (profile, *others) = settings.purchase_topic, [records.profile(f"C-{number}") for number in (1, 2, 3)]
    wire.produce(settings, settings.profile_topic, 0, WireRecord(profile.key, profile.value))
    for other, timestamp in zip(others, ODD_TIMESTAMPS, strict=False):  # without a purchase gold has theirs
        wire.produce(settings, settings.profile_topic, 0, WireRecord(other.key, other.value, timestamp=timestamp))
    odd = [purchase(number, timestamp=timestamp) for number, timestamp in enumerate(ODD_TIMESTAMPS)]
    wire.produce(settings, topic, PARTITION, *odd, purchase(90, headers=ODD_HEADERS))

    drain(spark, settings)

    good = {row["purchase_id"]: row for row in rows(settings, Table.PURCHASE_EVENTS)}
    assert set(good) == {"P-0", "P-1", "P-90"}
    assert [tuple(header.values()) for header in good["P-90"]["headers"]] == TOLD_HEADERS
    bad = {row["offset"]: row for row in rows(settings, Table.QUARANTINE)}
    assert {offset: (row["reason"], row["kafka_timestamp"]) for offset, row in bad.items()} == dict.fromkeys(
        range(2, len(ODD_TIMESTAMPS)), ("out_of_range", None)
    )
    assert all(f"({ODD_TIMESTAMPS[offset]} ms)" in row["detail"] for offset, row in bad.items())
    gold = {row["customer_id"]: row for row in rows(settings, Table.ACTIVITY)}
    assert [gold[f"C-{number}"]["purchase_count"] for number in (1, 2, 3)] == [3, 0, 0]
    assert [gold[f"C-{number}"]["as_of"].timestamp() for number in (2, 3)] == [-0.001, 0]
    assert_verified(settings)
