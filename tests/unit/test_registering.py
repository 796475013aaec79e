"""Streams are refused when they are registered, not when a driver, a rebuild or a recovery comes to them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.engine import registering
from customer_activity.engine.changes import ChangeStream
from customer_activity.settings import Settings
from customer_activity.streams.registry import ALL, STREAMS
from customer_activity.topology import Reads, Spec, Writes

OF_SUMMARIES = Spec(
    "of_summaries",
    reads=(Reads(Table.SUMMARIES, progress=Table.DAILY),),
    writes=(Writes(Table.DAILY),),
    promises="none",
)
FOLLOWING = Spec(
    "following",
    reads=(Reads(Table.PURCHASES, progress=Table.DAILY), Reads(Table.PROFILE_CHANGES, progress=Table.DAILY)),
    writes=(Writes(Table.DAILY),),
    promises="none",
    is_behind=True,
)
SAME = Spec(
    "same",
    reads=(Reads(Table.PURCHASES, progress=Table.PROFILE_EVENTS),),
    writes=(Writes(Table.PROFILE_EVENTS),),
    promises="none",
)
COLUMNS = {Table.PURCHASES: ["purchase_id"], Table.PROFILE_CHANGES: ["customer_id"]}


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    """Leave the streams as they are."""
    yield
    registering.install(ALL)
    topology.switch_on([])


def stream(spec: Spec) -> ChangeStream:
    """Return a stream that does nothing with what it reads."""
    return ChangeStream(spec, {table: ["customer_id"] for table in spec.sources}, lambda _: lambda *_: iter(()))  # type: ignore[arg-type,return-value]


def named(name: str) -> Any:
    """Return bronze under another name."""

    class Named:
        spec = replace(ALL[0].spec, name=name)

    return Named()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param([named("Top products")], "Top products is no name of a stream", id="a name for people"),
        pytest.param([named("10_products")], "10_products is no name of a stream", id="a digit first"),
        pytest.param([*ALL, stream(OF_SUMMARIES)], "of_summaries reads silver.purchase_summaries, whose", id="current"),
        pytest.param([*ALL, stream(SAME)], "bronze.customer_profiles and silver.customer_profiles have", id="one name"),
        pytest.param([*ALL, stream(FOLLOWING)], "following is behind the hot path, and does not say", id="not derived"),
    ],
)
def test_what_could_not_be_run_or_recovered_is_refused_and_changes_nothing(found: list[Any], words: str) -> None:
    before = topology.names()
    with pytest.raises(ValueError, match=words):
        registering.install(found)
    assert topology.names() == before


def test_a_name_may_have_a_digit_where_it_is_declared_and_where_it_is_switched_on() -> None:
    daily = STREAMS["daily"].spec
    topology.install([*(each.spec for each in ALL), replace(daily, name="top10_products")])
    topology.switch_on(Settings(streams="daily, top10_products").optional_streams)
    assert {"daily", "top10_products"} <= set(topology.names())


def test_columns_are_in_the_order_of_the_sources_by_which_offsets_are_told_apart() -> None:
    with pytest.raises(ValueError, match=r"following reads silver\.purchases and silver\.profile_changes"):
        ChangeStream(FOLLOWING, dict(reversed(COLUMNS.items())), lambda _: lambda *_: iter(()))  # type: ignore[arg-type,return-value]
