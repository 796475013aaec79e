"""Two pipelines on one broker: their inputs are the same, and all that is theirs is called after each."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from customer_activity.catalog import Table
from customer_activity.errors import TerminalError
from customer_activity.kafka import topics
from customer_activity.kafka.marker import Marker
from customer_activity.settings import Settings
from customer_activity.streams.publish.transaction import Publisher
from support.broker import assert_verified, drain, rows, send, view
from support.records import profile, purchase, tombstone


@pytest.fixture
def both(kafka: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Settings, Settings]:
    """Return the settings of two pipelines, which say nothing but their names and the inputs."""
    monkeypatch.chdir(tmp_path)
    test = uuid4().hex[:8]
    where: dict[str, Any] = {
        **kafka.model_dump(include={"kafka_bootstrap_servers", "kafka_config", "broker_dir"}),
        "purchase_topic": f"purchases-{test}",
        "profile_topic": f"profiles-{test}",
    }
    shop, orders = (Settings(pipeline=f"{name}-{test}", **where) for name in ("shop", "orders-eu"))
    assert topics.check(shop, create=True) == list(topics.used(shop).values())
    assert topics.check(orders, create=True) == [orders.view_topic, orders.progress_topic]
    return shop, orders


def shown(settings: Settings) -> dict[str, Any]:
    """Return what the view says of each customer; versions are of a pipeline's own count."""
    last = dict(view(settings))
    for value in last.values():
        if value is not None:
            del value["viewVersion"]
    return last


def test_two_pipelines_show_the_same_of_the_same_inputs(spark: SparkSession, both: tuple[Settings, Settings]) -> None:
    shop, orders = both
    send(shop, profile("C-1"), profile("C-2"), purchase("P-1", "C-1"))
    drain(spark, shop)
    assert_verified(shop)
    before = view(shop)
    send(shop, purchase("P-2", "C-1"), profile("C-1", updated=2_000, address="2 New Street"), tombstone("C-2"))
    drain(spark, orders)  # from the beginning, while the other stands still
    assert view(shop) == before
    drain(spark, shop)
    for settings in both:
        assert_verified(settings)
        assert {row["customer_id"]: row["purchase_count"] for row in rows(settings, Table.ACTIVITY)} == {"C-1": 2}
    assert shown(shop) == shown(orders) | {"C-2": None}  # whom the other has never shown
    assert shown(shop)["C-1"]["address"] == "2 New Street"
    folders = {Path(settings.lake).relative_to(Path.cwd()).parts[:2] for settings in both}
    assert folders == {("var", settings.pipeline) for settings in both}


def test_their_publishers_do_not_end_each_other(both: tuple[Settings, Settings]) -> None:
    shop, orders = both
    with Publisher(shop, ["gold of shop"]) as first, Publisher(orders, ["gold of orders"]) as second:
        for version in (1, 2):
            first.publish([(b"C-1", b"{}")], Marker("gold of shop", version))
            second.publish([(b"C-2", b"{}")], Marker("gold of orders", version))
    assert (view(shop), view(orders)) == ([("C-1", {})] * 2, [("C-2", {})] * 2)


@pytest.mark.parametrize(
    "taken",
    [
        ("view_topic", "progress_topic"),
        pytest.param(("view_topic",), marks=pytest.mark.nightly),
        pytest.param(("progress_topic",), marks=pytest.mark.nightly),
    ],
)
def test_one_that_is_set_to_topics_of_the_other_is_refused_and_does_it_no_harm(
    both: tuple[Settings, Settings], taken: tuple[str, ...]
) -> None:
    shop, orders = both
    astray = orders.model_copy(update={name: getattr(shop, name) for name in taken})
    with Publisher(shop, ["gold of shop"]) as running:
        running.publish([(b"C-1", b"{}")], Marker("gold of shop", 1))
        with pytest.raises(TerminalError, match="another"):
            Publisher(astray, ["gold of orders"])
        running.publish([(b"C-1", b"{}")], Marker("gold of shop", 2))


def test_a_pipeline_that_is_given_another_name_goes_on_where_it_was(both: tuple[Settings, Settings]) -> None:
    shop, orders = both
    renamed = orders.model_copy(update={"view_topic": shop.view_topic, "progress_topic": shop.progress_topic})
    with Publisher(shop, ["gold"]) as publisher:
        publisher.publish([(b"C-1", b"{}")], Marker("gold", 1))
    with Publisher(renamed, ["gold"]) as publisher:
        assert publisher.marker == Marker("gold", 1)
        publisher.publish([(b"C-1", b"{}")], Marker("gold", 2))
    with Publisher(shop, ["gold"]) as publisher:  # and back: its marker of before would have sent version 2 once more
        assert publisher.marker == Marker("gold", 2)


def test_a_lake_that_takes_the_place_of_one_of_another_name_is_not_refused_for_ever(
    both: tuple[Settings, Settings],
) -> None:
    shop, orders = both
    heir = orders.model_copy(update={"view_topic": shop.view_topic, "progress_topic": shop.progress_topic})
    with Publisher(shop, ["gold of shop"]) as publisher:
        publisher.publish([(b"C-1", b"{}")], Marker("gold of shop", 7))
    with Publisher(heir) as publisher:  # as `activity resync` takes over
        publisher.publish([], Marker("gold of orders", 1))
    with Publisher(heir, ["gold of orders"]) as publisher:
        assert publisher.marker == Marker("gold of orders", 1)
