"""A standalone cluster of two workers does large batches of enrichment, routing and alerts, and they are right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.commands.verify import others
from customer_activity.lake import history
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support import cluster
from support.broker import SETTLE_SECONDS, rows, send
from support.cluster_work import MANY, backlog, drain, profiles
from support.records import tombstone

STREAMS = ("enrichment", "routing", "alerts")


@pytest.fixture
def following(settings: Settings) -> Iterator[Settings]:
    """Return settings with the streams on."""
    topology.switch_on(STREAMS)
    yield settings.model_copy(update={"streams": ",".join(STREAMS)})
    topology.switch_on([])


@pytest.mark.nightly
def test_large_batches_are_the_executors_and_right(following: Settings, tmp_path: Path) -> None:
    """A backlog of which a third is one customer's; a driver takes no more than reports from its executors."""
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.driver.maxResultSize 1m\n", encoding="utf-8")
    send(following, *profiles(), *backlog(0, MANY), tombstone("C-7"))
    with cluster.running(conf, conf, workers=2) as two_workers:
        drain(following, two_workers, tmp_path / "driver.log")
    made = [(stream, table) for stream in STREAMS for table in topology.spec(stream).telling]
    notes = [history.latest_metadata(following.lake, table, stream) for stream, table in made]
    assert [note["placement"]["place"] for note in notes] == ["executors"] * len(STREAMS)
    report = verify(following, settle_seconds=SETTLE_SECONDS, others=others())
    assert [check for check in report.checks if not check.ok] == []
    assert rows(following, Table.FRAUD_ALERTS)
