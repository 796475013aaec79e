"""A deployment that a release left goes on with this one, after `activity migrate` where its tables are older."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.demo.broker import process
from customer_activity.errors import LakeOfAnotherRelease
from customer_activity.kafka import clients
from customer_activity.lake import layout
from customer_activity.operations.migration import migrate
from customer_activity.quality.run import run
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import Settings
from support import kept_lakes
from support.broker import assert_verified, drain, rows
from support.kept_lakes import put
from support.records import profile, purchase, tombstone

LATER = 1_710_000_000_000  # after what the lake has, and not ahead of any clock


@pytest.fixture
def old(version: int, free_address: str, tmp_path: Path) -> Iterator[Settings]:
    """Unpack it, and start its broker."""
    kept_lakes.unpack(version, tmp_path)
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


def migrated(old: Settings, spark: SparkSession) -> None:
    """Bring up what is refused; what is read alone is read as it is."""
    with pytest.raises(LakeOfAnotherRelease, match="activity migrate"):
        drain(spark, old)
    assert_verified(old)
    migrate(old.lake)
    verdicts = run(old, []).verdicts  # where no file has the new columns yet
    assert [verdict.rule.rule for verdict in verdicts if verdict.judged.outcome is Outcome.ERROR] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "version",
    [  # in CI the one that has the most to be brought up to
        pytest.param(version, marks=[] if version == kept_lakes.VERSIONS[0] else pytest.mark.nightly)
        for version in kept_lakes.VERSIONS
    ],
)
def test_it_goes_on(version: int, old: Settings, spark: SparkSession) -> None:
    assert_topics_are_those_that_were_written_down(old)
    if version < layout.CURRENT:
        migrated(old, spark)
    assert_verified(old)
    before = landings(old)

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
    newest = max(before, default=0)
    assert landings(old) == before | {newest + 1, newest + 2}


def landings(settings: Settings) -> set[int]:
    """Return the landings that purchases are of; those of a release that did not number them have none."""
    table = DeltaTable(table_path(settings.lake, Table.PURCHASE_EVENTS)).to_pyarrow_table(columns=["landing"])
    return {number for number in table.column("landing").to_pylist() if number is not None}
