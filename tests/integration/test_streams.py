"""The four streams against a real broker: drained, resumed, repeated, and judged by the verifier."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import NewPartitions
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity import application
from customer_activity.catalog import PROFILES_ROLE, Table, checkpoint_path, table_path
from customer_activity.contracts.columns import Kept
from customer_activity.contracts.tables import TABLES
from customer_activity.demo.traffic import poison
from customer_activity.errors import BadShareExceeded, CheckpointMismatch, TerminalError
from customer_activity.kafka import clients, settled
from customer_activity.kafka.marker import Marker
from customer_activity.maintenance import maintenance, scheduler
from customer_activity.operations import recovery
from customer_activity.settings import Settings
from customer_activity.streams.publish.transaction import Publisher
from customer_activity.verification.verify import verify
from support.broker import assert_verified, deployed, drain, end_transaction, producer_of, rows, send, view
from support.records import Record, profile, purchase, tombstone
from support.streams import Query
from support.waiting import until


def test_the_story_of_a_customer_through_the_broker(spark: SparkSession, settings: Settings) -> None:
    send(settings, purchase("P-1", "C-9004", "19.99"))
    drain(spark, settings)
    assert view(settings) == []  # no profile yet

    send(settings, profile("C-9004"), purchase("P-2", "C-9004", "5.01"))
    drain(spark, settings)
    send(settings, profile("C-9004", updated=2_000, address="2 New Street"))
    drain(spark, settings)
    (_, first), (_, second) = view(settings)
    assert first is not None
    assert second is not None
    assert (first["address"], second["address"]) == ("1 Old Street", "2 New Street")
    assert (second["purchaseCount"], second["totalAmount"]) == (2, 25.0)

    send(settings, profile("C-9004", updated=2_000, address="2 New Street"))  # repeated: changes nothing
    drain(spark, settings)
    drain(spark, settings)  # idle
    assert len(view(settings)) == 2

    send(settings, tombstone("C-9004"))
    drain(spark, settings)
    assert view(settings)[-1] == ("C-9004", None)
    assert rows(settings, Table.ACTIVITY) == []

    send(settings, profile("C-9004", updated=1_500))
    drain(spark, settings)
    _, back = view(settings)[-1]
    assert back is not None
    assert back["purchaseCount"] == 2
    assert back["viewVersion"] > second["viewVersion"]
    assert_verified(settings)


def test_always_on_the_hops_take_turns_and_the_tables_are_compacted_beside_them(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(scheduler, "PAUSE_SECONDS", 0.1)
    monkeypatch.setattr(maintenance, "SMALL_FILES", 3)
    monkeypatch.setattr(maintenance, "COMMITS_A_CHECKPOINT", 3)
    for table, declared in TABLES.items():
        monkeypatch.setitem(TABLES, table, declared._replace(kept=Kept(3, 1)))
    hasty = settings.model_copy(update={"linger_seconds": 0.0, "gold_seconds": 0.5, "merge_seconds": 0.5})
    path = (Table.PURCHASE_EVENTS, Table.PURCHASES, Table.ACTIVITY_CHANGES)
    stopping = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(application.host, spark, hasty, list(Query), stopping, available_now=False)
        try:
            for number in range(8):
                send(hasty, profile(f"C-{number}"), purchase(f"P-{number}", "C-0"), purchase("P-0", "C-0"))
                until(partial(view_says, hasty, number + 1), 60, running)
        finally:
            stopping.set()
        running.result(60)

    assert all(is_looked_after(hasty.lake, table) for table in path)
    assert len(rows(hasty, Table.ACTIVITY)) == number + 1, "told to stop, it leaves current rows that are whole"
    assert_verified(hasty)
    send(hasty, purchase("P-later", "C-0"))
    drain(spark, hasty)  # begins with logs that begin later
    assert_verified(hasty)


def is_looked_after(lake: str, table: Table) -> bool:
    """Whether a table was compacted, and its log shortened."""
    files = (Path(lake) / "_history" / table.label).glob("*.jsonl")
    kept = [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    operations = {entry["operation"] for entry in (*kept, *DeltaTable(table_path(lake, table)).history())}
    return bool(kept) and "OPTIMIZE" in operations


def view_says(settings: Settings, number: int) -> bool:
    """Whether the view has so many customers, and counts as many purchases of C-0."""
    found = dict(view(settings))
    return len(found) == number and (found.get("C-0") or {}).get("purchaseCount") == number


def test_every_kind_of_poison_is_quarantined_once_and_nothing_else(spark: SparkSession, settings: Settings) -> None:
    tolerant = settings.model_copy(update={"max_bad_share": 1.0})
    kinds = poison.KINDS
    assert len(kinds) >= 25
    send(tolerant, *[profile(f"C-{n}") for n in range(5)], *[purchase(f"P-{n}", f"C-{n % 5}") for n in range(50)])
    producer = producer_of(tolerant.kafka_bootstrap_servers)
    for number, kind in enumerate(kinds):
        record = poison.record(kind, f"bad-{number}", tolerant.currency)
        topic = tolerant.profile_topic if record.role == PROFILES_ROLE else tolerant.purchase_topic
        producer.produce(topic, key=record.key, value=record.value, headers=list(record.headers))
    assert producer.flush(30) == 0
    drain(spark, tolerant)

    quarantine = rows(tolerant, Table.QUARANTINE)
    assert Counter(row["reason"] for row in quarantine) == Counter(kind.reason.value for kind in kinds)
    assert len({(row["topic"], row["partition"], row["offset"]) for row in quarantine}) == len(kinds)
    assert len(rows(tolerant, Table.PURCHASES)) == 50
    assert_verified(tolerant)


def test_too_many_bad_records_stop_the_stream_and_name_the_reason(spark: SparkSession, settings: Settings) -> None:
    send(
        settings, *[purchase(f"P-{n}") for n in range(90)], *[Record("purchase-events", b"B", b"?") for _ in range(20)]
    )
    with pytest.raises(BadShareExceeded, match="not_json 20"):
        drain(spark, settings)
    assert rows(settings, Table.QUARANTINE) == []


TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def lived(spark: SparkSession, kafka: Settings, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return settings of a lake with two batches of each query, which several tests go on with, one after the other.

    Whoever sends more leaves the lake right: then it is a longer life for the next.
    """
    own = deployed(kafka, tmp_path_factory.mktemp("lived"))
    send(own, profile("C-1"), purchase("P-1"))
    drain(spark, own)
    plain = purchase("P-traced")
    traced = Record(plain.topic, plain.key, plain.value, headers=(("traceparent", TRACE),))
    send(own, profile("C-2"), purchase("P-2"), purchase("P-3", "C-2"), traced)
    send_in_transactions(own)
    drain(spark, own)
    return own


def send_in_transactions(settings: Settings) -> None:
    """Send a purchase whose transaction is aborted, and one whose transaction is not."""
    producer = clients.producer(settings, transactional_id=f"upstream of {settings.purchase_topic}")
    producer.init_transactions(30)
    for aborts, purchase_id in ((True, "P-aborted"), (False, "P-committed")):
        producer.begin_transaction()
        record = purchase(purchase_id)
        producer.produce(settings.purchase_topic, key=record.key, value=record.value)
        end_transaction(producer, commits=not aborts)
    settled.settle(settings, settings.purchase_topic)


def test_headers_and_raw_bytes_arrive_in_bronze(lived: Settings) -> None:
    (row,) = [row for row in rows(lived, Table.PURCHASE_EVENTS) if row["purchase_id"] == "P-traced"]
    assert row["value"] == purchase("P-traced").value
    assert row["headers"] == [{"key": "traceparent", "value": TRACE}]


def test_an_aborted_transaction_of_a_producer_is_never_counted(lived: Settings) -> None:
    found = {row["purchase_id"] for row in rows(lived, Table.PURCHASES)}
    assert {"P-aborted", "P-committed"} & found == {"P-committed"}
    assert_verified(lived)


def test_a_lost_publish_checkpoint_publishes_nothing_again(spark: SparkSession, lived: Settings) -> None:
    before = Counter(key for key, _ in view(lived))
    shutil.rmtree(checkpoint_path(lived.lake, Query.PUBLISH))
    send(lived, profile("C-published"))
    drain(spark, lived)
    assert Counter(key for key, _ in view(lived)) - before == Counter(["C-published"])


LATER = itertools.count(9_000)  # when the next update of a profile was made: each is newer than those before it

# tests/component/test_recovery.py has the refusals of each query, and test_layers.py recovers all of them together.
nightly = pytest.mark.nightly


@pytest.mark.parametrize(
    "query",
    [
        Query.BRONZE,
        *(pytest.param(query, marks=nightly) for query in Query if query not in (Query.BRONZE, Query.PUBLISH)),
    ],
    ids=str,
)
def test_a_lost_checkpoint_is_refused_until_it_is_recovered(spark: SparkSession, lived: Settings, query: Query) -> None:
    shutil.rmtree(checkpoint_path(lived.lake, query))
    send(lived, purchase(f"P-{query}"), profile("C-1", updated=next(LATER)))
    with pytest.raises(CheckpointMismatch, match=f"activity recover {query}"):
        drain(spark, lived)

    recovery.recover(lived.lake, query, "a test lost it")
    drain(spark, lived)

    assert_verified(lived)


@pytest.mark.parametrize(
    "query",
    [Query.SUMMARIES, Query.BRONZE, Query.SILVER],
    ids=str,
)
@pytest.mark.nightly
def test_a_checkpoint_of_an_earlier_day_is_refused_until_it_is_recovered(
    spark: SparkSession, lived: Settings, tmp_path: Path, query: Query
) -> None:
    checkpoint = checkpoint_path(lived.lake, query)
    shutil.copytree(checkpoint, tmp_path / "backup")
    send(lived, purchase(f"P-after {query}'s backup"))
    drain(spark, lived)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "backup", checkpoint)
    with pytest.raises(CheckpointMismatch, match="knows of none after"):
        drain(spark, lived)

    recovery.recover(lived.lake, query, "a backup was put back")
    send(lived, purchase(f"P-after {query} was recovered"))
    drain(spark, lived)

    assert_verified(lived)


@pytest.mark.nightly
def test_partitions_that_are_added_are_read_from_their_beginning(spark: SparkSession, settings: Settings) -> None:
    send(settings, profile("C-1"), *(purchase(f"P-{number}") for number in range(20)))
    drain(spark, settings)
    before = clients.partitions(settings, settings.purchase_topic)
    admin = clients.admin(settings)  # held until the answer is there
    for added in admin.create_partitions([NewPartitions(settings.purchase_topic, 7)]).values():
        added.result(30)
    until(lambda: clients.partitions(settings, settings.purchase_topic) != before, 30)
    send(settings, *(purchase(f"P-{number}") for number in range(20, 60)))

    drain(spark, settings)

    landed = {row["partition"] for row in rows(settings, Table.PURCHASE_EVENTS)}
    assert landed > set(before)
    assert_verified(settings)


@pytest.mark.nightly
def test_a_flood_of_tombstones_empties_the_view(spark: SparkSession, settings: Settings) -> None:
    customers = [f"C-{number}" for number in range(2_000)]
    send(settings, *map(profile, customers), *(purchase(f"P-{number}", f"C-{number}") for number in range(100)))
    drain(spark, settings)
    assert len(rows(settings, Table.ACTIVITY)) == len(customers)
    flood = [tombstone(f"C-{number % 20_000}") for number in range(60_000)]  # a large batch, and most of nobody
    send(settings, *flood, profile("C-7", updated=9_000), queue_buffering_max_messages=200_000)

    drain(spark, settings)

    assert [row["customer_id"] for row in rows(settings, Table.ACTIVITY)] == ["C-7"]
    assert len(view(settings)) == 2 * len(customers)
    assert_verified(settings)


@pytest.mark.nightly
def test_a_row_that_is_too_large_for_the_topic_holds_up_no_other(spark: SparkSession, settings: Settings) -> None:
    send(settings, profile("C-1"), profile("C-2", address="x" * 1_100_000), message_max_bytes=2_000_000)
    drain(spark, settings)
    assert [key for key, _ in view(settings)] == ["C-1"]
    report = verify(settings, settle_seconds=0)
    assert [check.name for check in report.checks if not check.ok] == []
    assert [check.observed for check in report.checks if "too large" in check.name] == [1]

    send(settings, profile("C-2", updated=9_000))
    drain(spark, settings)
    assert sorted(key for key, _ in view(settings)) == ["C-1", "C-2"]
    assert_verified(settings)


def test_a_second_publisher_fences_the_first(settings: Settings) -> None:
    with Publisher(settings) as zombie:
        zombie.publish([(b"C-1", b"{}")], Marker("table", 1))
        with Publisher(settings) as successor:
            assert successor.marker == Marker("table", 1)
            with pytest.raises(TerminalError, match="another publisher took over"):
                zombie.publish([(b"C-1", b"{}")], Marker("table", 2))
            successor.publish([(b"C-1", None)], Marker("table", 3))
    assert view(settings) == [("C-1", {}), ("C-1", None)]
