"""Verification: a right world is equal, and what cannot be known is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from customer_activity.catalog import Table
from customer_activity.commands import verify as command
from customer_activity.errors import TerminalError
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input
from customer_activity.verification import verify as verification
from customer_activity.verification.comparison import Commits, compare_accounting
from customer_activity.verification.verify import Report, verify
from support.world import World, expect, failing
from support.world_rows import C1_ROW, OUTCOMES, PROFILES, PURCHASES, VIEW, profile, published, purchase


def test_a_right_world_is_equal(verify_world: Callable[..., Report]) -> None:
    report = verify_world(World())
    assert [check for check in report.checks if not check.ok] == []
    assert len(report.checks) == 16
    assert (report.records, report.from_lake) == ({PURCHASES: 6, PROFILES: 8}, {PURCHASES: 0, PROFILES: 0})
    assert (report.customers, report.purchases, report.turnover, report.growth) == (2, 3, 1535, 0)


@pytest.mark.parametrize(
    ("changes", "largest", "found_by"),
    [
        pytest.param({}, 50, set(), id="the row as gold has it, and it is too large"),
        pytest.param({}, 1_000_000, {"view: last values"}, id="it is not too large"),
        pytest.param({"view_version": 11}, 50, {"view: last values"}, id="an older version of it"),
        pytest.param({"address": "Hidden Lane 9"}, 50, {"view: last values"}, id="another row"),
    ],
)
def test_a_row_may_be_in_quarantine_instead_of_on_the_topic_when_that_cannot_take_it(
    changes: dict[str, Any], largest: int, found_by: set[str], verify_world: Callable[..., Report]
) -> None:
    world = World(largest=largest)
    world.kafka[VIEW][0].pop()
    key, value = published(C1_ROW | changes)
    world.tables[Table.QUARANTINE].append(
        dict.fromkeys(world.tables[Table.QUARANTINE][0])
        | {"reason": "too_large_to_publish", "topic": VIEW, "key": key, "value": value}
    )

    report = verify_world(world)

    assert failing(report) == found_by
    held = [check.observed for check in report.checks if check.name == "view: too large, in quarantine"]
    assert held == ([] if found_by else [1])


def test_records_that_compaction_removed_are_taken_from_the_lake(verify_world: Callable[..., Report]) -> None:
    world = World()
    del world.kafka[PROFILES][0][:2]  # C1's first profile and the one that became current
    world.kafka[PROFILES][1][:2] = []  # C4's life and death
    report = verify_world(world)
    assert failing(report) == set()
    assert report.from_lake == {PURCHASES: 0, PROFILES: 4}


def test_records_that_retention_removed_are_taken_from_the_lake(verify_world: Callable[..., Report]) -> None:
    world = World()
    world.begin[PURCHASES] = 1
    for records in world.kafka[PURCHASES].values():
        del records[0]
    report = verify_world(world)
    assert failing(report) == set()
    assert report.from_lake == {PURCHASES: 2, PROFILES: 0}


def test_rows_that_kafka_never_had_are_no_input(verify_world: Callable[..., Report]) -> None:
    world = World()
    del world.kafka[PURCHASES][1][0]  # retention did not come this far: the row was made up, or read uncommitted
    assert Table.PURCHASE_EVENTS.label in failing(verify_world(world))


def test_input_that_arrives_meanwhile_is_said(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    ends = iter([1, 2])
    world.tables[Table.PURCHASE_EVENTS].pop()
    world.write(settings.lake)
    world.serve(monkeypatch)
    served = kafka_input.ends
    monkeypatch.setattr(
        kafka_input, "ends", lambda s, topic: served(s, topic) | ({1: next(ends)} if topic == PURCHASES else {})
    )
    report = verify(settings, settle_seconds=0)
    assert report.growth == 1
    assert Table.PURCHASE_EVENTS.label not in failing(report)  # what lies past the end that was noted is nobody's fault
    assert "traffic is running: stop it and verify again" in command.verdict(report)


def test_a_pipeline_that_catches_up_is_waited_for(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    late = world.kafka[VIEW][0].pop()
    world.write(settings.lake)
    world.serve(monkeypatch)
    steps: list[str] = []

    def on_step(step: str) -> None:
        steps.append(step)
        if step == "waiting for the pipeline":
            world.kafka[VIEW][0].append(late)

    assert failing(verify(settings, settle_seconds=30, on_step=on_step)) == set()
    assert steps.count("waiting for the pipeline") == 1


@pytest.mark.parametrize(
    ("state", "age", "runs"),
    [
        pytest.param("running", timedelta(0), True, id="running"),
        pytest.param("running", timedelta(minutes=1), False, id="killed a minute ago"),
        pytest.param("stopped", timedelta(0), False, id="stopped"),
        pytest.param("running", None, False, id="unreadable"),
    ],
)
def test_a_running_application_is_known_by_its_status(
    state: str, age: timedelta | None, runs: bool, settings: Settings
) -> None:
    path = settings.run_dir / "status" / "silver.json"
    path.parent.mkdir(parents=True)
    updated_at = "?" if age is None else (datetime.now(UTC) - age).isoformat()
    path.write_text(json.dumps({"query": "silver", "state": state, "updated_at": updated_at}))
    assert verification._is_running(settings) is runs


def test_accounting_is_not_possible_when_the_log_was_cleaned() -> None:
    check = compare_accounting(
        PURCHASES, dict.fromkeys(OUTCOMES, 0), {Table.PURCHASES: Commits(7, []), Table.PROFILES: Commits(0, [])}
    )
    assert (check.ok, check.differences) == (False, 0)
    assert check.impossible == "the log was cleaned: silver.purchases begins at version 7"


def test_no_lake_is_said_before_anything_is_read(settings: Settings) -> None:
    with pytest.raises(TerminalError, match=r"no lake at .*\n.*activity stream"):
        verify(settings, settle_seconds=0)


def test_a_missing_table_is_named(verify_world: Callable[..., Report]) -> None:
    world = World()
    del world.tables[Table.SUMMARIES]
    with pytest.raises(TerminalError, match=r"no table silver\.purchase_summaries"):
        verify_world(world)


def test_a_sample_compares_some_customers_and_still_counts_everything(verify_world: Callable[..., Report]) -> None:
    whole = expect(
        [("P3", purchase(purchaseId="P3", customerId="C2"))], [("C1", profile()), ("C3", profile(customerId="C3"))]
    )
    seed = next(seed for seed in range(100) if verification.choose(whole, sample=1, seed=seed) == frozenset({"C3"}))
    world = World()
    world.row(Table.PURCHASES)["amount"] = Decimal("7.77")  # C1's, who is not in the sample
    report = verify_world(world, sample=1, seed=seed)
    assert failing(report) == set()
    assert (report.sample, report.purchases) == (1, 3)
    assert {check.name: check.expected for check in report.checks}[Table.ACTIVITY.label] == 1
