"""Quality and its gate with a real broker: what the topics have, what is held back, and that it goes out once."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity import application
from customer_activity.catalog import Table, table_path
from customer_activity.engine import gate
from customer_activity.engine.gate import Failure
from customer_activity.errors import JudgingBusy, PublishingHeld
from customer_activity.kafka import clients, settled
from customer_activity.lake import delta
from customer_activity.quality.run import alone, run
from customer_activity.settings import Settings
from customer_activity.streams.publish.resync import resync
from support.broker import assert_verified, drain, end_transaction, producer_of, rows, send, view
from support.damages import without
from support.quality import failing, rewrite
from support.records import profile, purchase, tombstone
from support.streams import Query
from support.waiting import until


@pytest.fixture
def judged(settings: Settings, tmp_path: Path) -> Settings:
    """Return the settings with pages of the test's own."""
    return settings.model_copy(update={"quality_docs": str(tmp_path / "pages")})


def produce(settings: Settings, key: str, value: bytes | None) -> None:
    """Write to the view topic as nobody should."""
    producer = producer_of(settings.kafka_bootstrap_servers)
    producer.produce(settings.view_topic, key=key.encode(), value=value)
    assert producer.flush(30) == 0


def test_a_drained_pipeline_passes_and_what_others_do_to_the_topic_is_found(
    spark: SparkSession, judged: Settings
) -> None:
    send(judged, profile("C-1"), profile("C-2"), profile("C-3"), purchase("P-1", "C-1"), purchase("P-2", "C-9"))
    drain(spark, judged)
    send(judged, tombstone("C-3"), purchase("P-3", "C-2"), purchase("P-1", "C-1"))
    drain(spark, judged)
    assert failing(run(judged)) == set()

    known = dict(view(judged))
    produce(judged, "C-1", None)
    made_up = json.dumps((known["C-2"] or {}) | {"customerId": "C-3", "viewVersion": 1})
    produce(judged, "C-3", made_up.replace('"totalAmount": 10.0,', '"totalAmount": 10.00,').encode())
    produce(judged, "C-2", b"{}")
    assert failing(run(judged, ["across.view"])) == {
        "view_has_every_row",
        "view_has_no_other_rows",
        "view_keeps_its_contract",
    }
    with pytest.raises(PublishingHeld):
        gate.require_open(judged.lake)
    resync(judged, "the topic was written to")  # is what these rules ask for
    assert failing(run(judged, ["across.view"])) == set()
    gate.require_open(judged.lake)


@pytest.mark.nightly
def test_markers_of_transactions_are_no_loss_and_a_lost_record_is(spark: SparkSession, judged: Settings) -> None:
    producer = clients.producer(judged, transactional_id=f"test-{judged.purchase_topic}")
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        record = purchase(f"P-{number}", "C-1")
        producer.produce(judged.purchase_topic, key=record.key, value=record.value)
        end_transaction(producer, commits=number != 2)
    settled.settle(judged, judged.purchase_topic)
    drain(spark, judged)
    assert failing(run(judged, ["across.completeness"])) == set()

    held = rows(judged, Table.PURCHASE_EVENTS)
    assert len(held) == 3
    rewrite(judged.lake, Table.PURCHASE_EVENTS, without("purchase_id", "P-1"))
    report = run(judged, ["across.completeness"])
    assert "bronze_has_what_the_topics_have" in failing(report)
    lost = next(row for row in held if row["purchase_id"] == "P-1")
    (verdict,) = [v for v in report.failing if v.rule.rule == "bronze_has_what_the_topics_have"]
    assert verdict.judged.examples == (
        f"topic {judged.purchase_topic}, partition {lost['partition']}, offset {lost['offset']}",
    )


def test_a_held_gate_keeps_the_topic_as_it_is_and_all_goes_out_once_after(
    spark: SparkSession, judged: Settings
) -> None:
    send(judged, profile("C-1"), profile("C-2"), purchase("P-1", "C-1"))
    drain(spark, judged)
    right = DeltaTable(table_path(judged.lake, Table.ACTIVITY)).version()
    rewrite(judged.lake, Table.ACTIVITY, without("customer_id", "C-2"))
    assert failing(run(judged, ["gold"])) == {"rows_follow_their_changes"}
    DeltaTable(table_path(judged.lake, Table.ACTIVITY)).restore(right)
    before = view(judged)
    for number in (2, 3):
        send(judged, purchase(f"P-{number}", "C-1"), profile("C-2", updated=number * 1_000))
        with pytest.raises(PublishingHeld, match="rows_follow_their_changes"):
            drain(spark, judged)
    assert view(judged) == before
    counts = {row["customer_id"]: row["purchase_count"] for row in rows(judged, Table.ACTIVITY)}
    assert counts == {"C-1": 3, "C-2": 0}, "silver, gold and the current rows go on"

    assert failing(run(judged, ["gold"])) == set()
    drain(spark, judged)
    assert {key: row and row["purchaseCount"] for key, row in view(judged)} == {"C-1": 3, "C-2": 0}
    assert_verified(judged)


def test_an_always_on_publisher_is_held_and_released_while_the_others_go_on(
    spark: SparkSession, judged: Settings
) -> None:
    stopping = threading.Event()
    hasty = judged.model_copy(update={"merge_seconds": 0.5})
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(application.host, spark, hasty, list(Query), stopping, available_now=False)
        try:
            send(hasty, profile("C-1"), purchase("P-1", "C-1"))
            until(lambda: shown_last(hasty) == 1, 60, running)
            gate.update(hasty.lake, [], {"a_rule": Failure("gold/customer_activity", "1 rows", "now", "run-1")})
            send(hasty, purchase("P-2", "C-1"))
            until(lambda: state_of(hasty) == "held", 60, running)
            send(hasty, purchase("P-3", "C-1"))
            until(lambda: counted(hasty) == 3, 60, running)
            assert shown_last(hasty) == 1
            gate.release(hasty.lake, "known", datetime.now(UTC))
            until(lambda: shown_last(hasty) == 3, 60, running)
            until(lambda: state_of(hasty) == "running", 60, running)
        finally:
            stopping.set()
        running.result(60)
    assert_verified(hasty)


def shown_last(settings: Settings) -> int | None:
    """Return the purchases that the view's newest record counts; None while there is none."""
    return next((row["purchaseCount"] for _, row in reversed(view(settings)) if row), None)


def state_of(settings: Settings) -> str:
    """Return the publisher's state, as `activity status` reads it."""
    text = (settings.run_dir / "status" / f"{Query.PUBLISH}.json").read_text(encoding="utf-8")
    return str(json.loads(text)["state"])


def counted(settings: Settings) -> int:
    """Return the purchases of the one customer in the current rows."""
    return next((row["purchase_count"] for row in rows(settings, Table.ACTIVITY)), 0)


def test_two_runs_at_once_are_refused(judged: Settings) -> None:
    delta.ensure_tables(judged.lake)
    with alone(judged), ThreadPoolExecutor(1) as pool, pytest.raises(JudgingBusy):
        pool.submit(run, judged, ["gold"]).result()
