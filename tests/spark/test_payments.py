"""Payments: which one pays a purchase, whatever came first, however batches are cut, and wherever a driver ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import REPLAY, Table
from customer_activity.errors import SettingsError, TransientError
from customer_activity.lake import delta
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.numbering import Numbering
from customer_activity.operations import current_rows, recomputing
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import replay
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.repair import apply_in
from customer_activity.rebuild.run import rebuild_in
from customer_activity.settings import Settings
from support import tables
from support.dying import Died, dies
from support.pipeline import Pipeline
from support.proof import proof, proofs
from support.quick_pipeline import QuickPipeline
from support.records import PAYMENTS, Record, payment, purchase

MINUTE = 60_000
START = int(datetime(2026, 3, 26, tzinfo=UTC).timestamp() * 1000)
LANDS, JOINS = ("bronze", "silver", "payment_events"), ("event_time", "payments")
TABLES = (Table.PAID, Table.UNPAID, Table.UNMATCHED_PAYMENTS)
nightly = pytest.mark.nightly


class Killed(Exception):
    """Raised at a fail point, as if the process had ended there."""


def ended(point: FailPoint) -> None:
    """End a batch behind its first commit."""
    if point is FailPoint.COMMITTED:
        raise Killed


@pytest.fixture
def paying(spark: SparkSession, settings: Settings) -> Iterator[Pipeline]:
    """Return the queries with those of payments switched on: half an hour to pay, and an hour of grace."""
    topology.switch_on(["payments"])
    wanted = settings.model_copy(update={"grace_hours": 1.0})
    delta.ensure_tables(wanted.lake)
    yield QuickPipeline(spark, wanted)
    topology.switch_on([])


def bought(minute: float, name: str = "P-1", amount: str = "10.00") -> Record:
    at = START + round(minute * MINUTE)
    return purchase(name, "C-1", amount, at, sent=at)


def paid(minute: float, name: str = "P-1", amount: str = "10.00", **more: str) -> Record:
    at = START + round(minute * MINUTE)
    return payment(name, amount, at, sent=at, **more)


def clock(minute: float) -> Record:
    """Return a purchase that moves the watermark."""
    return bought(minute, f"P-{minute}")


def land(pipeline: Pipeline, *records: Record) -> None:
    """Let records land, all of one topic in one partition."""
    pipeline.sent += [pipeline.log.append(record, 0) for record in records]
    for hop in LANDS:
        pipeline.hop(hop)


def follow(pipeline: Pipeline) -> None:
    for hop in JOINS:
        pipeline.hop(hop)


class Found(NamedTuple):
    """What the tables say of P-1: the payment that counts and how it came, whether it is unpaid, other payments."""

    paid: tuple[str, str] | None = None
    is_unpaid: bool = False
    others: tuple[tuple[str, str | None], ...] = ()


def found(pipeline: Pipeline) -> Found:
    paid_rows = [row for row in pipeline.rows(Table.PAID) if row["purchase_id"] == "P-1"]
    unpaid = [row for row in pipeline.rows(Table.UNPAID) if row["purchase_id"] == "P-1"]
    others = [row for row in pipeline.rows(Table.UNMATCHED_PAYMENTS) if row["purchase_id"] == "P-1"]
    assert len(paid_rows) + len(unpaid) < 2
    how = [
        (row["payment_id"], "early" if row["is_early"] else "late" if row["is_late"] else "in time")
        for row in paid_rows
    ]
    return Found(
        how[0] if how else None, bool(unpaid), tuple(sorted((row["reason"], row["differs_in"]) for row in others))
    )


def assert_right(pipeline: Pipeline) -> None:
    """Hold all tables against the queries that the stream declares."""
    for check in proofs(pipeline, *TABLES):
        assert check.ok, check


IN_TIME = ("pay-P-1", "in time")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        pytest.param([bought(0), paid(10)], Found(IN_TIME), id="paid"),
        pytest.param([bought(0), paid(30)], Found(IN_TIME), id="paid at the last moment"),
        pytest.param([bought(0), paid(30.001)], Found(("pay-P-1", "late")), id="paid late"),
        pytest.param([bought(0), paid(-5)], Found(("pay-P-1", "early")), id="confirmed before the purchase"),
        pytest.param([bought(0)], Found(), id="waits for its payment"),
        pytest.param([bought(0), clock(89.9)], Found(), id="still waits within the grace"),
        pytest.param([bought(0), clock(90)], Found(is_unpaid=True), id="unpaid after half an hour and the grace"),
        pytest.param([bought(0), clock(90), paid(95)], Found(("pay-P-1", "late")), id="unpaid, and paid after all"),
        pytest.param(
            [bought(0), clock(90), paid(20)], Found(IN_TIME), id="unpaid, and paid by one that was on its way"
        ),
        pytest.param([paid(10)], Found(others=(("no_purchase", None),)), id="without a purchase"),
        pytest.param([paid(10), bought(0)], Found(IN_TIME), id="arrives before its purchase"),
        pytest.param([bought(0), paid(10), paid(10)], Found(IN_TIME, others=(("repeated", None),)), id="sent again"),
        pytest.param(
            [bought(0), paid(10), paid(11, payment_id="pay-2")],
            Found(IN_TIME, others=(("paid_twice", None),)),
            id="paid twice",
        ),
        pytest.param(
            [bought(0), clock(90), paid(10, amount="9.99")],
            Found(is_unpaid=True, others=(("differs", "amount"),)),
            id="another amount",
        ),
        pytest.param(
            [bought(0), paid(10, currency="USD")], Found(others=(("differs", "currency"),)), id="another currency"
        ),
        pytest.param(
            [bought(0), paid(10, customerId="C-2")], Found(others=(("differs", "customer_id"),)), id="another customer"
        ),
        pytest.param([bought(0), paid(10, customerId="C-1")], Found(IN_TIME), id="the same customer"),
        pytest.param(
            [bought(0), paid(9, amount="1", currency="USD", customerId="C-2"), paid(10)],
            Found(IN_TIME, others=(("differs", "amount,currency,customer_id"),)),
            id="the first that agrees counts",
        ),
        pytest.param(
            [paid(10, payment_id="pay-2"), paid(5), bought(0)],
            Found(("pay-2", "in time"), others=(("paid_twice", None),)),
            id="the first that landed, not the first that was confirmed",
        ),
    ],
)
@pytest.mark.parametrize(
    "at_once", [pytest.param(True, id="one batch"), pytest.param(False, id="a batch a record", marks=nightly)]
)
def test_which_payment_counts(paying: Pipeline, records: list[Record], expected: Found, at_once: bool) -> None:
    for each in [records] if at_once else [[record] for record in records]:
        land(paying, *each)
        follow(paying)
    assert found(paying) == expected
    assert_right(paying)


MIXED = (
    bought(0),
    bought(1, "P-2"),
    bought(2, "P-3"),
    bought(3, "P-4"),
    paid(5),
    paid(6, "P-2", amount="9"),
    paid(7, "P-9"),
    paid(8),
    paid(50, "P-4"),
    clock(95),
)


def settled(pipeline: Pipeline) -> dict[Table, list[dict[str, Any]]]:
    return {table: pipeline.rows(table) for table in TABLES}


def taken(pipeline: Pipeline) -> None:
    """Have a bit of everything, in two batches."""
    for records in (MIXED[:7], MIXED[7:]):
        land(pipeline, *records)
        follow(pipeline)
    assert_right(pipeline)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(["driver", "executors"], id="the driver, then executors"),
        pytest.param(["executors", "executors"], id="executors", marks=nightly),
    ],
)
def test_executors_come_to_the_same(paying: Pipeline, places: list[str]) -> None:
    for records, place in zip((MIXED[:7], MIXED[7:]), places, strict=True):
        paying.settings = paying.settings.model_copy(update={"placement": place})
        paying.restart()
        land(paying, *records)
        follow(paying)
        placed = paying.batches["payments"][-1].placement
        assert placed is not None
        assert str(placed.place) == place
    assert {row["purchase_id"] for row in paying.rows(Table.PAID)} == {"P-1", "P-4"}
    assert {row["purchase_id"] for row in paying.rows(Table.UNPAID)} == {"P-2", "P-3"}
    assert_right(paying)


@nightly
@pytest.mark.parametrize("commit", [1, 2, 3])
@pytest.mark.parametrize("place", ["executors", "driver"])
def test_another_place_goes_on_where_a_driver_ended(paying: Pipeline, commit: int, place: str) -> None:
    """Behind each of its three commits, by Delta's own transactions."""
    places = [place, "driver" if place == "executors" else "executors"]
    land(paying, *MIXED[:7])
    follow(paying)
    land(paying, *MIXED[7:])
    paying.hop("event_time")
    paying.settings = paying.settings.model_copy(update={"placement": places[0]})
    paying.restart()
    with pytest.raises(Died):
        paying.hop("payments", dies(FailPoint.COMMITTED, times=commit))
    paying.settings = paying.settings.model_copy(update={"placement": places[1]})
    paying.repeat("payments")
    assert_right(paying)


def test_recomputed_the_tables_are_the_same_and_go_on(paying: Pipeline) -> None:
    taken(paying)
    before = settled(paying)
    tables.append(paying.settings.lake, Table.UNPAID, before[Table.UNPAID][0] | {"purchase_id": "P-X"}, query=REPLAY)
    current_rows.make(paying.settings.lake, "payments", 1)
    assert settled(paying) == before
    versions = {table: tables.newest(paying.settings.lake, table) for table in TABLES}
    paying.restart()
    land(paying, paid(99, "P-3"))
    follow(paying)
    assert {row["purchase_id"] for row in paying.rows(Table.UNPAID)} == {"P-2"}
    assert {table: tables.newest(paying.settings.lake, table) - version for table, version in versions.items()} == (
        dict.fromkeys(TABLES, 1)
    )
    assert_right(paying)


def test_other_terms_are_refused_and_recomputed_on_purpose(paying: Pipeline) -> None:
    taken(paying)
    paying.settings = paying.settings.model_copy(update={"payment_minutes": 5.0, "grace_hours": 2.0})
    paying.restart()
    with pytest.raises(SettingsError, match="was computed with ACTIVITY_PAYMENT_MINUTES=30") as refused:
        paying.hop("payments")
    assert "activity rebuild --stream payments" in (refused.value.remedy or "")
    assert recomputing.recompute(paying.settings, "payments", "less time to pay") == ["payments"]
    assert {row["purchase_id"]: row["is_late"] for row in paying.rows(Table.PAID)} == {"P-1": False, "P-4": True}
    assert paying.rows(Table.UNPAID) == []
    assert_right(paying)
    paying.restart()
    land(paying, clock(130))
    follow(paying)
    assert {row["purchase_id"] for row in paying.rows(Table.UNPAID)} == {"P-2", "P-3"}
    assert_right(paying)


def test_all_of_it_follows_a_correction(paying: Pipeline) -> None:
    taken(paying)
    (row,) = (row for row in paying.rows(Table.PURCHASES) if row["purchase_id"] == "P-3")
    tables.append(paying.settings.lake, Table.PURCHASES, row | {"purchase_id": "P-9"}, query=REPLAY)
    follow(paying)
    assert {row["purchase_id"] for row in paying.rows(Table.PAID)} == {"P-1", "P-4", "P-9"}
    assert not proof(paying, Table.PAID).ok
    for query in ("silver", "gold"):
        paying.hop(query)
    assert apply_in(paying.spark, paying.settings, read=lambda *_: {}).correction is not None
    compared = {table.table: table for table in rebuild_in(paying.spark, paying.settings, Choice()).tables}
    assert {table.label: compared[table.label].live for table in TABLES} == {
        table.label: len(paying.rows(table)) for table in TABLES
    }
    assert sum(each.differences for each in compared.values()) == 0
    assert_right(paying)


def test_a_rebuild_tells_what_differs_and_waits_for_a_batch_that_was_interrupted(paying: Pipeline) -> None:
    taken(paying)
    for query in ("silver", "gold"):
        paying.hop(query)
    wrong = paying.rows(Table.UNMATCHED_PAYMENTS)[0] | {"offset": 99}
    tables.append(paying.settings.lake, Table.UNMATCHED_PAYMENTS, wrong, query="somebody")
    compared = {table.table: table for table in rebuild_in(paying.spark, paying.settings, Choice()).tables}
    assert compared[Table.UNMATCHED_PAYMENTS.label].only_live == 1
    assert compared[Table.PAID.label].differences == compared[Table.UNPAID.label].differences == 0
    land(paying, paid(99, "P-3"))
    with pytest.raises(Killed):
        paying.hop("payments", ended)
    with pytest.raises(TransientError, match="payments is at work on a batch, or was interrupted in one"):
        rebuild_in(paying.spark, paying.settings, Choice())


def test_a_payment_that_was_refused_comes_back(paying: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    taken(paying)
    early = START + 400_000 + 2_000 * MINUTE
    paying.sent.append(paying.log.append(payment("P-3", at=early, sent=START + 2_000 * MINUTE), 0))
    paying.hop("payment_events")
    assert [row["reason"] for row in paying.rows(Table.QUARANTINE)] == ["timestamp_in_future"]
    monkeypatch.setattr("customer_activity.contracts.parsing.CLOCK_TOLERANCE", timedelta(days=1))
    monkeypatch.setattr("customer_activity.verification.contract.FUTURE_MILLIS", 24 * 60 * MINUTE)
    assert replay(paying.settings, Selection(), "the clock was right").accepted == {PAYMENTS: 1}
    numbers = [row["landing"] for row in paying.rows(Table.PAYMENT_EVENTS, "landing")]
    assert max(numbers) == 4
    land(paying, paid(99, "P-2"), bought(99, "P-50"))
    follow(paying)
    assert {row["landing"] for row in paying.rows(Table.PAYMENT_EVENTS, "landing")} == {1, 2, 4, 5}
    assert Numbering(paying.settings.lake, topology.landing()).newest == 3, "a replay of payments is none of bronze's"
    assert {row["purchase_id"] for row in paying.rows(Table.PAID)} == {"P-1", "P-2", "P-3", "P-4"}
    assert_right(paying)


@nightly
def test_any_id_is_found_again(paying: Pipeline) -> None:
    names = ["'\"\\%_<b>{0}", "x" * 5_000, "\U00020000", "\U0010fffe" * 40, "é-\u202egnol", " \u00a0", "🙂" * 33]
    land(paying, *(bought(1, name) for name in names))
    follow(paying)
    land(paying, *(paid(2, name) for name in names))
    follow(paying)
    land(paying, clock(95), *(paid(3, name, payment_id="pay-2") for name in names))
    follow(paying)
    assert {row["purchase_id"] for row in paying.rows(Table.PAID)} == set(names)
    assert {row["reason"] for row in paying.rows(Table.UNMATCHED_PAYMENTS)} == {"paid_twice"}
    assert len(paying.rows(Table.UNMATCHED_PAYMENTS)) == len(names)
    assert paying.rows(Table.UNPAID) == []
    assert_right(paying)


def test_payments_go_on_after_late_purchases_were_taken_in(paying: Pipeline) -> None:
    topology.switch_on(["payments", "late_events"])
    delta.ensure_tables(paying.settings.lake)
    paying.restart()
    taken(paying)
    paying.hop("late_events")
    land(paying, bought(4, "P-5"), paid(5, "P-5"), bought(99, "P-6"))
    reprocessed = recomputing.reprocess(
        paying.settings, datetime(2026, 3, 26, tzinfo=UTC).date(), "the till was offline"
    )
    assert reprocessed.purchases == 1
    paying.restart()
    land(paying, paid(100, "P-6"))
    follow(paying)
    assert {"P-5", "P-6"} <= {row["purchase_id"] for row in paying.rows(Table.PAID)}
    assert_right(paying)


@nightly
def test_switched_on_late_it_begins_with_what_is_there(paying: Pipeline) -> None:
    for record in MIXED:
        land(paying, record)
        paying.hop("event_time")
    for table in (Table.TIMED_PURCHASES, Table.PAYMENT_EVENTS):  # whose logs were shortened
        opened = tables.opened(paying.settings.lake, table)
        opened.create_checkpoint()
        for version in range(opened.version()):
            tables.entry(paying.settings.lake, table, version).unlink()
    paying.hop("payments")
    assert {row["purchase_id"] for row in paying.rows(Table.PAID)} == {"P-1", "P-4"}
    assert_right(paying)
    land(paying, paid(99, "P-3"), bought(100, "P-9"))
    follow(paying)
    assert {row["purchase_id"] for row in paying.rows(Table.PAID)} == {"P-1", "P-3", "P-4", "P-9"}
    assert_right(paying)
