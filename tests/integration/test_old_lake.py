"""A deployment that the release before left goes on after `activity migrate`: every row is right, old and new."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.demo.broker import process
from customer_activity.errors import LakeOfAnotherRelease
from customer_activity.kafka import clients
from customer_activity.operations.migration import migrate
from customer_activity.quality.judging import Outcome
from customer_activity.quality.run import run
from customer_activity.settings import Settings
from support import old_lake
from support.broker import assert_verified, drain, rows
from support.records import Record, profile, purchase, tombstone

LATER = 1_710_000_000_000  # after what the lake has, and not ahead of any clock


@pytest.fixture
def old(free_address: str, tmp_path: Path) -> Iterator[Settings]:
    """Unpack it, and start its broker."""
    old_lake.unpack(tmp_path)
    settings = Settings(
        lake=str(tmp_path / "lake"),
        kafka_bootstrap_servers=free_address,
        kafka_config=None,
        broker_dir=tmp_path / "kafka",
        run_dir=tmp_path / "run",
        driver_memory="2g",
        max_bad_share=1.0,
        quality_docs=str(tmp_path / "docs"),
    )
    process.start(settings)
    yield settings
    process.stop(settings)


def put(producer: Producer, record: Record, partition: int = -1) -> None:
    """Send a record to a partition, and wait until the broker has it."""
    producer.produce(record.topic, key=record.key, value=record.value, partition=partition)
    assert producer.flush(30) == 0


def assert_topics_are_those_that_were_written_down(old: Settings) -> None:
    lines = (old.broker_dir.parent / "topics.jsonl").read_text(encoding="utf-8").splitlines()
    ends: dict[tuple[str, int], int] = {}
    for record in map(json.loads, lines):
        ends[record["topic"], record["partition"]] = record["offset"] + 1
    assert {
        (topic, partition): high
        for topic in (old.purchase_topic, old.profile_topic)
        for partition, (_, high) in clients.offset_range(old, topic).items()
    } == ends


@pytest.mark.timeout(600)
def test_it_goes_on_after_the_migration(old: Settings, spark: SparkSession) -> None:
    assert_topics_are_those_that_were_written_down(old)
    with pytest.raises(LakeOfAnotherRelease, match="activity migrate"):
        drain(spark, old)
    assert_verified(old)  # what is read alone is read as it is

    migrate(old.lake)
    assert_verified(old)
    verdicts = run(old, []).verdicts  # where no file has the new columns yet
    assert [verdict.rule.rule for verdict in verdicts if verdict.judged.outcome is Outcome.ERROR] == []
    to = clients.producer(old)
    put(to, profile("T-1", updated=LATER - 1, address="On 3"), 3)
    put(to, purchase("after-1", "T-1", "1.00"), 0)
    put(to, purchase("t-1", "T-1", "5.00"), 1)  # counted by the release before
    put(to, purchase("n-1", "N-1", "77.77"))  # conflicts with what the release before counted
    put(to, tombstone("N-2"))
    drain(spark, old)
    assert_verified(old)

    put(to, profile("T-1", updated=LATER, address="On 0, and later"), 0)  # sorts before by (partition, offset) alone
    put(to, profile("N-2", updated=1, address="Returned 2"))
    put(to, purchase("after-2", "N-2", "2.00"))
    put(to, purchase("after-bad", "N-2", "2.005"))
    drain(spark, old)
    assert_verified(old)

    address = {row["customer_id"]: row["address"] for row in rows(old, Table.ACTIVITY)}
    assert (address["T-1"], address["N-2"]) == ("On 0, and later", "Returned 2")
    landings = DeltaTable(table_path(old.lake, Table.PURCHASE_EVENTS)).to_pyarrow_table(columns=["landing"])
    assert set(landings.column("landing").to_pylist()) == {None, 1, 2}
