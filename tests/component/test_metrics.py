"""Metrics: every one of the list moves when what it tells happens, and nothing is exported that is not in the list."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from customer_activity import topology
from customer_activity.engine import gate
from customer_activity.engine.gate import Failure
from customer_activity.metrics import page, serving
from customer_activity.metrics.listed import METRICS
from customer_activity.metrics.looks import Looking
from customer_activity.metrics.metric import Kind, Metric
from customer_activity.metrics.pacing import Paced
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import PROJECT
from support import scraped
from support.observed import World, judged, now_ms, observed
from support.records import Record, profile, purchase
from support.scraped import Scraped
from support.streams import Query

PAGE = (PROJECT / "docs" / "METRICS.md").read_text(encoding="utf-8")
DAY = 86_400_000
LATE = ("event_time", "late_events")
PERSONAL = ("customer", "name", "email", "address", "purchase", "key")


def begins(world: World) -> None:
    """All streams have looked once, and found nothing."""
    world.hop(*topology.names())


def buys(world: World) -> None:
    at = now_ms()
    world.send(profile("C-1", at, sent=at), purchase("P-1", "C-1", at=at, sent=at))
    world.hop(*topology.names())


def errs(world: World) -> None:
    """A repeat, a repeat with other content, a profile of before, and a purchase that is none."""
    at = now_ms()
    world.send(
        purchase("P-2", "C-1", at=at, sent=at),
        purchase("P-2", "C-1", at=at, sent=at),
        purchase("P-2", "C-1", "99.00", at=at, sent=at),
        profile("C-1", at - DAY, sent=at),
        Record("purchase-events", b"P-3", b"no JSON", at),
    )
    world.hop(Query.BRONZE, Query.SILVER)


def is_late(world: World) -> None:
    at = now_ms()
    world.send(purchase("P-4", "C-1", at=at - 9 * DAY, sent=at))
    world.hop(Query.BRONZE, Query.SILVER, *LATE)


def waits(world: World) -> None:
    """A purchase waits for bronze, and one before it for all behind bronze."""
    at = now_ms()
    world.send(purchase("P-5", "C-1", at=at, sent=at))
    world.hop(Query.BRONZE)
    world.send(purchase("P-6", "C-1", at=at, sent=at - 5_000))


def fails(world: World) -> None:
    status = world.status[Query.GOLD]
    status.state, status.message = "failed", "the disk is full"
    status.write(world.settings.run_dir)


def is_held(world: World) -> None:
    gate.update(world.settings.lake, [], {"one_row": Failure("gold/customer_activity", "2 rows", "now", "run-1")})


def is_judged(world: World) -> None:
    judged(world.settings.lake, Outcome.FAILED)


def is_taken_over(world: World) -> None:
    for stream in world.epochs:
        world.epochs[stream] += 1


def works(world: World) -> None:
    """The driver uses some time and some memory."""
    busy_until = os.times().user + 0.05
    while os.times().user < busy_until:
        sum(range(1_000))
    world.status["memory"] = bytearray(64 << 20)  # type: ignore[assignment]


STEPS = (begins, buys, errs, is_late, waits, is_judged, is_held, fails, is_taken_over, works)


class Move(NamedTuple):
    """What moves a metric, which sample of it, and by how much; None: it moves, or is there for the first time."""

    step: Callable[[World], None]
    labels: Mapping[str, str] = MappingProxyType({})
    by: float | None = None
    sample: str = ""  # what its name ends with, of a histogram


def of(stream: str, **more: str) -> dict[str, str]:
    return {"stream": stream, **more}


MOVES = {
    "activity_rows_read_total": Move(buys, of("silver", source="bronze.purchase_events"), 1),
    "activity_rows_written_total": Move(buys, of("publish", target="kafka"), 1),
    "activity_records_total": Move(errs, of("silver", topic="customer-profile-state", outcome="stale"), 1),
    "activity_quarantined_total": Move(errs, of("silver", reason="conflicting_duplicate"), 1),
    "activity_late_events_total": Move(is_late, of("late_events"), 1),
    "activity_transactions_total": Move(buys, of("publish"), 1),
    "activity_batch_seconds": Move(buys, of("gold", place="driver"), 1, "_count"),
    "activity_batch_phase_seconds": Move(buys, of("gold", place="driver", phase="commit"), 1, "_count"),
    "activity_freshness_seconds": Move(buys, of("publish", le="30.0"), 1, "_bucket"),
    "activity_stream_info": Move(begins, of("late_events", path="behind")),
    "activity_stream_state": Move(fails, of("gold", state="failed"), 1),
    "activity_stream_ready": Move(fails, of("gold"), -1),
    "activity_lag_records": Move(waits, of("bronze", topic="purchase-events"), 1),
    "activity_lag_versions": Move(waits, of("silver", table="bronze.purchase_events"), 1),
    "activity_lag_seconds": Move(waits, of("silver")),
    "activity_behind_input_seconds": Move(waits, of("bronze")),
    "activity_last_batch_timestamp_seconds": Move(buys, of("activity")),
    "activity_lease_epoch": Move(is_taken_over, of("bronze"), 1),
    "activity_stream_restarts_total": Move(is_taken_over, of("bronze"), 1),
    "activity_table_rows": Move(buys, {"table": "gold.customer_activity"}, 1),
    "activity_table_files": Move(buys, {"table": "silver.purchases"}, 1),
    "activity_table_bytes": Move(buys, {"table": "silver.purchases"}),
    "activity_state_rows": Move(buys, of("gold"), 2),
    "activity_state_bytes": Move(begins, of("gold")),
    "activity_gate_held": Move(is_held, {}, 1),
    "activity_gate_rules": Move(is_held, {"state": "holding"}, 1),
    "activity_quality_rule_failed": Move(
        is_judged, {"rule": "match_rate_is_as_usual", "suite": "across/join_match", "severity": "warn"}
    ),
    "activity_quality_rule_observed": Move(is_judged, {"rule": "match_rate_is_as_usual", "suite": "across/join_match"}),
    "activity_quality_judged_timestamp_seconds": Move(is_judged, {"suite": "across/join_match"}),
    "activity_match_rate": Move(is_judged, {"of": "purchases"}),
    "activity_driver_info": Move(begins, {"release": "0.1.0"}),
    "activity_driver_start_timestamp_seconds": Move(begins),
    "activity_driver_cpu_seconds_total": Move(works, {"process": "python"}),
    "activity_driver_memory_bytes": Move(works, {"process": "python"}),
    "activity_look_timestamp_seconds": Move(works),
    "activity_look_seconds": Move(works),
}


class Seen(NamedTuple):
    """What was scraped before and after each step, and which families there are."""

    steps: dict[Callable[[World], None], tuple[Scraped, Scraped]]
    families: dict[str, str]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    """Take all steps, once, with the product's own batches, looks and server."""
    found: dict[Callable[[World], None], tuple[Scraped, Scraped]] = {}
    hours = itertools.count(3_600.0, 3_600.0)  # between two steps: each finds that a look is due
    now = [0.0]
    with observed(tmp_path_factory.mktemp("metrics")) as world:
        looking = Looking(world.settings, world.epochs)
        paced = Paced(looking.take, clock=lambda: now[0])
        with serving.exported(world.settings, world.epochs, paced) as world.observe:
            before: Scraped = {}
            for step in STEPS:
                looking.states.counted.clear()  # rows of local state are counted again
                step(world)
                now[0] = next(hours)
                after = scraped.scrape(world.settings)
                found[step] = before, after
                before = after
            yield Seen(found, scraped.families(world.settings))


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_metric_moves_when_what_it_tells_happens(metric: Metric, seen: Seen) -> None:
    move = MOVES[metric.name]
    before, after = (
        scraped.value(found, f"{metric.name}{move.sample}", move.labels) for found in seen.steps[move.step]
    )
    assert after is not None
    if move.by is None:
        assert before != after
    else:
        assert after - (before or 0.0) == pytest.approx(move.by)


def test_nothing_else_is_exported(seen: Seen) -> None:
    assert seen.families == {metric.family: metric.kind.value for metric in METRICS}


def test_no_label_is_of_a_customer(seen: Seen) -> None:
    values = {
        value
        for _, after in seen.steps.values()
        for of_name in after.values()
        for labels in of_name
        for _, value in labels
    }
    assert not {value for value in values if value.startswith(("C-", "P-", "Ada"))}
    assert not {label for metric in METRICS for label in metric.labels if label in PERSONAL}


def test_the_page_has_the_metrics_as_they_are() -> None:
    assert page.rewritten(PAGE) == PAGE, page.__doc__


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_a_name_says_its_unit_as_prometheus_wants_it(metric: Metric) -> None:
    assert metric.name.startswith("activity_")
    for unit in ("seconds", "bytes"):
        assert (metric.unit == unit) == (unit in metric.family.rsplit("_", 1)[-1])
    assert metric.kind is not Kind.COUNTER or metric.name.endswith("_total")
