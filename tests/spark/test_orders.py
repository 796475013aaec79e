"""Every order of {profile, purchase, tombstone, later profile} ends in the same view: in one batch and in four."""

from __future__ import annotations

from itertools import permutations

import pytest

from customer_activity.catalog import Table
from support.pipeline import Pipeline
from support.records import NOW_MS, Record, profile, purchase, tombstone

STEPS = ("profile", "purchase", "tombstone", "later profile")
ORDERS = list(permutations(STEPS))


def record(step: str, customer: str, sent: int) -> Record:
    if step == "profile":
        return profile(customer, updated=1_000, address="1 Old Street", sent=sent)
    if step == "later profile":
        return profile(customer, updated=2_000, address="2 New Street", sent=sent)
    if step == "tombstone":
        return tombstone(customer, sent=sent)
    return purchase(f"P-{customer}", customer, "12.30", sent=sent)


def expected_address(order: tuple[str, ...]) -> str | None:
    """What a plain reading of the topic gives: updates after the last tombstone, the latest of them."""
    alive = [step for step in order[order.index("tombstone") + 1 :] if step.endswith("profile")]
    if "later profile" in alive:
        return "2 New Street"
    return "1 Old Street" if alive else None


@pytest.mark.parametrize("batches", [1, 4], ids=["in one batch", "in four batches"])
def test_every_order_of_a_life_ends_in_the_right_row(pipeline: Pipeline, batches: int) -> None:
    for step in range(4):
        for number, order in enumerate(ORDERS):
            pipeline.send(record(order[step], f"C-{number}", NOW_MS + step))
        if batches == 4:
            pipeline.run()
    pipeline.run()

    rows = pipeline.gold()
    actual = {
        f"C-{n}": (row["address"], row["purchase_count"], str(row["total_amount"]))
        for n in range(24)
        if (row := rows.get(f"C-{n}"))
    }
    expected = {
        f"C-{n}": (address, 1, "12.30") for n, order in enumerate(ORDERS) if (address := expected_address(order))
    }
    assert actual == expected
    assert set(pipeline.view.latest()) == set(expected)
    assert len(pipeline.rows(Table.SUMMARIES)) == 24  # purchases wait for their profile; a tombstone does not undo them


def test_a_row_that_comes_back_has_a_greater_version(pipeline: Pipeline) -> None:
    for step in (profile(), purchase("P-1"), tombstone(), profile(updated=500)):
        pipeline.send(step)
        pipeline.run()

    versions = [value["viewVersion"] for _, value in pipeline.view.records if value is not None]
    assert versions == sorted(set(versions))
    assert [value is None for _, value in pipeline.view.records] == [False, False, True, False]
    assert pipeline.view.latest()["C-1"]["purchaseCount"] == 1
