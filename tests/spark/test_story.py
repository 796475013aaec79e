"""The reason for the product: a change on either side, and nothing else, changes the view."""

from __future__ import annotations

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.errors import BadShareExceeded
from customer_activity.streams.bronze.bad_share import BadShareGuard
from support.pipeline import Pipeline
from support.records import NOW_MS, PURCHASES, Record, profile, purchase, tombstone
from support.streams import Query


@pytest.mark.parametrize("way", ["pipeline", "planned"], ids=["as small batches are read", "with Spark's plans"])
def test_a_changed_address_alone_publishes_exactly_one_record(request: pytest.FixtureRequest, way: str) -> None:
    pipeline: Pipeline = request.getfixturevalue(way)
    pipeline.send(profile("C-9004"), purchase("P-1", "C-9004", "19.99"), purchase("P-2", "C-9004", "5.01"))
    pipeline.run()
    pipeline.send(profile("C-9004", updated=2_000, address="2 New Street", sent=NOW_MS + 5))
    pipeline.run()

    (_, first), (_, second) = pipeline.view.records
    assert first is not None
    assert second is not None
    assert (second["address"], second["purchaseCount"], second["totalAmount"]) == ("2 New Street", 2, 25.0)
    assert second["asOfEpochMillis"] == NOW_MS + 5
    assert {name for name in second if second[name] != first[name]} == {
        "address",
        "profileUpdatedAtEpochMillis",
        "viewVersion",
        "asOfEpochMillis",
    }


def test_nothing_new_publishes_nothing(pipeline: Pipeline) -> None:
    pipeline.send(profile(), purchase("P-1"))
    pipeline.run()
    before = {table: len(pipeline.rows(table)) for table in topology.tables() if table.value.startswith("gold")}
    pipeline.send(profile(sent=NOW_MS + 9), purchase("P-1", sent=NOW_MS + 9))  # the same again, later
    pipeline.run()
    pipeline.run()

    assert len(pipeline.view.records) == 1
    assert {table: len(pipeline.rows(table)) for table in before} == before
    counts = pipeline.batches[Query.SILVER][1].counts
    assert {topic: dict(outcomes) for topic, outcomes in counts.items()} == {
        "purchase-events": {"duplicate": 1},
        "customer-profile-state": {"duplicate": 1},
    }


def test_purchases_wait_for_their_profile(pipeline: Pipeline) -> None:
    pipeline.send(purchase("P-1"), purchase("P-2"))
    pipeline.run()
    assert pipeline.gold() == {}
    assert pipeline.view.records == []
    pipeline.send(profile())
    pipeline.run()
    assert pipeline.gold()["C-1"]["purchase_count"] == 2


def test_a_customer_without_purchases_has_a_row_of_zeros(pipeline: Pipeline) -> None:
    pipeline.send(profile())
    pipeline.run()
    row = pipeline.view.latest()["C-1"]
    assert (row["purchaseCount"], row["totalAmount"], row["currency"]) == (0, 0, "EUR")
    assert row["firstPurchaseAtEpochMillis"] is row["lastPurchaseAtEpochMillis"] is None


def test_a_row_that_came_and_went_unseen_needs_no_record(pipeline: Pipeline) -> None:
    pipeline.send(profile())
    for query in (Query.BRONZE, Query.SILVER, Query.GOLD):
        pipeline.hop(query)
    pipeline.send(tombstone())
    pipeline.run()
    assert pipeline.view.records == []


def test_a_profile_that_went_and_came_back_as_it_was_between_two_batches_changes_nothing(pipeline: Pipeline) -> None:
    pipeline.send(profile(), purchase("P-1"))
    pipeline.run()
    before = pipeline.rows(Table.ACTIVITY_CHANGES)
    for record in (tombstone(), profile()):
        pipeline.send(record)
        for query in (Query.BRONZE, Query.SILVER):  # gold sees both at once
            pipeline.hop(query)
    pipeline.run()

    assert pipeline.rows(Table.ACTIVITY_CHANGES) == before
    assert len(pipeline.view.records) == 1


def test_a_repeat_with_other_content_is_quarantined_raw(pipeline: Pipeline) -> None:
    pipeline.send(profile(), purchase("P-1", amount="10.00"))
    pipeline.run()
    forged = purchase("P-1", amount="99.00", sent=NOW_MS + 7)
    pipeline.send(forged)
    pipeline.run()

    (row,) = pipeline.rows(Table.QUARANTINE)
    assert (row["reason"], row["value"], row["offset"]) == ("conflicting_duplicate", forged.value, 1)
    assert pipeline.view.latest()["C-1"]["totalAmount"] == 10
    assert len(pipeline.view.records) == 1


def test_bad_records_are_kept_raw_and_good_ones_counted(pipeline: Pipeline) -> None:
    bad = Record(PURCHASES, b"P-2", b'{"purchaseId": "P-2"', NOW_MS, (("traceparent", b"00-ab"),))
    pipeline.send(profile(), purchase("P-1"), bad)
    pipeline.run()

    (row,) = pipeline.rows(Table.QUARANTINE)
    assert (row["reason"], row["key"], row["value"], row["topic"]) == ("not_json", b"P-2", bad.value, PURCHASES)
    assert row["headers"] == [{"key": "traceparent", "value": b"00-ab"}]
    assert pipeline.view.latest()["C-1"]["purchaseCount"] == 1
    assert dict(pipeline.batches[Query.BRONZE][0].counts[PURCHASES]) == {"read": 2, "accepted": 1, "quarantined": 1}


def test_too_many_bad_records_stop_bronze_before_anything_lands(pipeline: Pipeline) -> None:
    pipeline.guard = BadShareGuard(0.05)
    pipeline.send(*[purchase(f"P-{n}") for n in range(94)], *[Record(PURCHASES, b"B", b"?") for _ in range(6)])
    with pytest.raises(BadShareExceeded, match=r"6 of 100 .*not_json 6"):
        pipeline.hop(Query.BRONZE)
    assert pipeline.rows(Table.PURCHASE_EVENTS) == pipeline.rows(Table.QUARANTINE) == []


@pytest.mark.parametrize("loses_indexes", [False, True], ids=["index kept", "index lost"])
@pytest.mark.parametrize("hop", list(Query), ids=str)
def test_a_batch_that_is_repeated_after_a_crash_changes_nothing(
    pipeline: Pipeline, hop: Query, loses_indexes: bool
) -> None:
    pipeline.send(
        profile(), purchase("P-1", "C-1"), purchase("P-1", "C-1"), profile("C-2"), Record(PURCHASES, b"B", b"?")
    )
    pipeline.run()
    pipeline.send(
        purchase("P-2"), purchase("P-1", amount="11.00"), profile(updated=500), profile(updated=2_000), tombstone("C-2")
    )
    pipeline.run()
    before = {table: pipeline.rows(table) for table in topology.tables()}
    records = list(pipeline.view.records)

    again = pipeline.repeat(hop, loses_indexes=loses_indexes)

    assert {table: pipeline.rows(table) for table in topology.tables()} == before
    assert pipeline.view.records == records
    if hop == Query.BRONZE:
        assert again.counts == pipeline.batches[hop][-1].counts
