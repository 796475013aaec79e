"""A publisher that cannot go on heals from the tables as they are, and sends nothing that was out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from benchmarks.environment import set_topic
from customer_activity.catalog import Table
from customer_activity.errors import ChangeFeedLost
from customer_activity.kafka import clients
from customer_activity.maintenance import maintenance
from customer_activity.settings import Settings
from customer_activity.streams.publish.resync import resync
from support.broker import assert_verified, drain, rows, send, view
from support.records import profile, purchase, tombstone
from support.streams import Query
from support.waiting import until


def test_a_publisher_that_lost_its_change_feed_is_healed(
    spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(settings, *(profile(f"C-{number}") for number in range(10)))
    drain(spark, settings)
    without_publish = [query for query in Query if query != Query.PUBLISH]
    for number in range(2):
        send(settings, purchase(f"P-{number}", "C-1"), profile("C-2", updated=2_000 + number, address=f"{number}"))
        drain(spark, settings, *without_publish)
    send(settings, tombstone("C-3"))
    drain(spark, settings, *without_publish)
    monkeypatch.setattr(maintenance, "readers_behind", lambda *_: [])  # as a tool that asks nobody
    assert maintenance.compact(settings.lake, Table.ACTIVITY_CHANGES) is not None
    assert maintenance.vacuum(settings.lake, Table.ACTIVITY_CHANGES, timedelta(0)).files > 0
    with pytest.raises(ChangeFeedLost, match="activity resync publish"):
        drain(spark, settings)

    done = resync(settings, "somebody's vacuum")

    assert (done.rows, done.deletes, done.unchanged) == (2, 1, 7)
    assert len(view(settings)) == 13
    send(settings, purchase("P-9", "C-4"))
    drain(spark, settings)
    assert [key for key, _ in view(settings)].count("C-4") == 2
    assert len(view(settings)) == 14
    assert_verified(settings)


@pytest.mark.nightly
def test_a_row_goes_out_when_the_topic_takes_larger_ones(spark: SparkSession, settings: Settings) -> None:
    send(settings, profile("C-1"), profile("C-2", address="x" * 1_100_000), message_max_bytes=2_000_000)
    drain(spark, settings)
    assert [key for key, _ in view(settings)] == ["C-1"]
    set_topic(settings, settings.view_topic, {"max.message.bytes": "2000000"})
    until(lambda: clients.topic_setting(settings, settings.view_topic, "max.message.bytes") == "2000000", 30)

    assert resync(settings, "the limit was raised")[:4] == (1, 0, 1, 0)

    assert sorted(key for key, _ in view(settings)) == ["C-1", "C-2"]
    assert resync(settings, "once more")[:4] == (0, 0, 2, 0)
    drain(spark, settings)
    assert len(view(settings)) == 2
    assert_verified(settings)


def test_a_row_that_a_resync_cannot_send_is_in_quarantine(spark: SparkSession, settings: Settings) -> None:
    send(settings, profile("C-1"), profile("C-2", address="x" * 1_100_000), message_max_bytes=2_000_000)
    drain(spark, settings, *(query for query in Query if query != Query.PUBLISH))

    assert resync(settings, "nothing was published yet")[:4] == (1, 0, 0, 1)
    assert resync(settings, "once more")[:4] == (0, 0, 1, 1)

    assert [row["key"] for row in rows(settings, Table.QUARANTINE)] == [b"C-2"]
    drain(spark, settings)
    assert [key for key, _ in view(settings)] == ["C-1"]
    assert_verified(settings)
