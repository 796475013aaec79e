"""Verification: a right world is equal, and what cannot be known is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import chain, repeat
from typing import Any

import pytest

from customer_activity.catalog import Table
from customer_activity.commands import verify as command
from customer_activity.errors import TerminalError, TransientError
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input, lake, settling
from customer_activity.verification import verify as verification
from customer_activity.verification.comparison import Commits, compare_accounting
from customer_activity.verification.records import RawRecord
from customer_activity.verification.sampling import choose
from customer_activity.verification.verify import Report, verify
from support.world import World, expect, failing, overflowing
from support.world_rows import C1_ROW, NOW, OUTCOMES, PROFILES, PURCHASES, VIEW, profile, published, purchase

TOTALS = f"{Table.QUARANTINE.label}: totals"


def test_a_right_world_is_equal(verify_world: Callable[..., Report]) -> None:
    report = verify_world(World())
    assert [check for check in report.checks if not check.ok] == []
    assert len(report.checks) == 18
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


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"reason": "not_json"}, id="for another reason"),
        pytest.param({"partition": 0, "offset": 2}, id="with coordinates"),
    ],
)
def test_nothing_else_is_in_quarantine_for_the_view(
    changes: dict[str, Any], verify_world: Callable[..., Report]
) -> None:
    world = World(largest=50)
    key, value = published(C1_ROW)
    world.tables[Table.QUARANTINE].append(
        dict.fromkeys(world.tables[Table.QUARANTINE][0])
        | {"reason": "too_large_to_publish", "topic": VIEW, "key": key, "value": value}
        | changes
    )
    assert failing(verify_world(world)) == {Table.QUARANTINE.label}


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


@pytest.mark.parametrize(
    ("begin", "end", "is_removed"),
    [
        pytest.param(0, 4, False, id="compaction keeps the newest record of a key"),
        pytest.param(0, 5, True, id="a newer one may be among those that arrive"),
        pytest.param(4, 4, True, id="retention removes it all the same"),
    ],
)
def test_the_newest_record_of_a_key_is_not_taken_for_compacted(
    begin: int, end: int, is_removed: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C3's only profile is in the lake, and Kafka has neither it nor a newer one."""
    world = World()
    world.kafka[PROFILES][0] = [record for record in world.kafka[PROFILES][0] if record.offset not in (3, 4)]
    for table in (Table.PROFILE_EVENTS,):
        world.tables[table] = [row for row in world.tables[table] if (row["partition"], row["offset"]) != (0, 4)]
    world.write(settings.lake)
    world.serve(monkeypatch)
    asked: list[str] = []

    def ends(_: Settings, topic: str) -> dict[int, int]:
        asked.append(topic)
        of_profiles = {0: 4 if asked.count(PROFILES) == 1 else end, 1: 3}
        return of_profiles if topic == PROFILES else {p: len(of) for p, of in world.kafka[topic].items()}

    served = kafka_input.begins
    monkeypatch.setattr(kafka_input, "ends", ends)
    monkeypatch.setattr(
        kafka_input, "begins", lambda s, topic: served(s, topic) | ({0: begin} if topic == PROFILES else {})
    )
    found = failing(verify(settings, settle_seconds=0))
    assert (Table.PROFILE_EVENTS.label in found, Table.ACTIVITY.label in found) == (not is_removed, not is_removed)


def test_it_is_said_from_where_on_verification_speaks(verify_world: Callable[..., Report]) -> None:
    world = World()
    world.begin[PURCHASES] = 1
    for records in world.kafka[PURCHASES].values():
        del records[0]
    for table in (Table.PURCHASE_EVENTS, Table.PURCHASES):  # it never landed either
        world.tables[table] = [row for row in world.tables[table] if (row["partition"], row["offset"]) != (1, 0)]
    report = verify_world(world)
    assert report.covers == {PURCHASES: {1: 1}}, "of partition 0 the lake has what Kafka has not"
    assert command.figure_lines(report)[-1].startswith(f"speaks from {PURCHASES}-1@1 on:")
    assert command.as_data(report)["covers_from"] == {PURCHASES: {1: 1}}


def test_rows_that_kafka_never_had_are_no_input(verify_world: Callable[..., Report]) -> None:
    world = World()
    del world.kafka[PURCHASES][1][0]  # retention did not come this far: the row was made up, or read uncommitted
    assert Table.PURCHASE_EVENTS.label in failing(verify_world(world))


def test_input_that_arrives_meanwhile_is_said(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    ends = chain([1], repeat(2))
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


@pytest.mark.parametrize("sample", [None, 10], ids=["all", "sample"])
def test_a_partition_that_is_added_meanwhile_holds_what_arrives(
    sample: int | None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World()
    added = purchase(purchaseId="P5", customerId="C5")
    world.tables[Table.PURCHASE_EVENTS].append(
        world.tables[Table.PURCHASE_EVENTS][-1] | {"partition": 2, "offset": 0, "key": b"P5", "value": added}
    )
    world.write(settings.lake)
    world.serve(monkeypatch)
    step = kafka_input.begins

    def begins(of: Settings, topic: str) -> dict[int, int]:
        if topic == VIEW:  # the inputs are read by then
            world.kafka[PURCHASES][2] = [RawRecord(2, 0, NOW, b"P5", added, ())]
        return step(of, topic)

    monkeypatch.setattr(kafka_input, "begins", begins)
    report = verify(settings, settle_seconds=0, sample=sample)
    assert Table.PURCHASE_EVENTS.label not in failing(report)
    assert report.growth == 1


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
    assert settling.is_running(settings) is runs


def test_accounting_is_not_possible_when_the_log_was_cleaned() -> None:
    check = compare_accounting(
        PURCHASES,
        Table.PURCHASE_EVENTS,
        dict.fromkeys(OUTCOMES, 0),
        {Table.PURCHASES: Commits(7, []), Table.PROFILES: Commits(0, [])},
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
    seed = next(seed for seed in range(100) if choose(whole, sample=1, seed=seed) == frozenset({"C3"}))
    world = World()
    world.row(Table.PURCHASES)["amount"] = Decimal("7.77")  # C1's, who is not in the sample
    report = verify_world(world, sample=1, seed=seed)
    assert failing(report) == set()
    assert (report.sample, report.purchases) == (1, 3)
    assert {check.name: check.expected for check in report.checks}[Table.ACTIVITY.label] == 1


@pytest.fixture
def while_traffic_runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Verify a sample; purchases of partition 1 arrive after its end was noted, and are in the lake already."""

    def run(world: World, noted: int, *, sample: int = 10) -> Report:
        world.write(settings.lake)
        world.serve(monkeypatch)
        served, asked = kafka_input.ends, []

        def ends(_: Settings, topic: str) -> dict[int, int]:
            asked.append(topic)
            return served(settings, topic) | ({1: noted} if asked.count(PURCHASES) == 1 and topic == PURCHASES else {})

        monkeypatch.setattr(kafka_input, "ends", ends)
        return verify(settings, settle_seconds=0, sample=sample)

    return run


@pytest.mark.parametrize(
    ("noted", "moving"),
    [
        pytest.param(1, 0, id="of a customer nobody knew"),
        pytest.param(0, 1, id="of a customer of the sample"),
    ],
)
def test_a_sample_is_right_whatever_arrives_meanwhile(
    noted: int, moving: int, while_traffic_runs: Callable[..., Report]
) -> None:
    report = while_traffic_runs(World(), noted)
    assert {check.name for check in report.checks if not check.ok} == {f"accounting of {PURCHASES}"}
    assert report.differences == 0
    assert (report.growth, report.sample, report.moving) == (2 - noted, 10, moving)
    assert command.verdict(report) == "equal (1 check was not possible)"


def test_what_is_wrong_with_others_is_found_while_traffic_runs(while_traffic_runs: Callable[..., Report]) -> None:
    world = World()
    world.row(Table.ACTIVITY, 1)["address"] = "Wrong Street 3"  # C3's, of whom nothing arrives
    report = while_traffic_runs(world, 0)
    assert Table.ACTIVITY.label in {check.name for check in report.checks if check.differences}
    assert command.verdict(report).endswith(("difference", "differences"))


def test_a_sample_of_whom_records_arrive_all_the_time_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, while_traffic_runs: Callable[..., Report]
) -> None:
    monkeypatch.setattr(verification, "choose", lambda *_, **__: frozenset({"C1"}))
    with pytest.raises(TransientError, match="arrived meanwhile"):
        while_traffic_runs(World(), 0, sample=1)


def test_the_parts_of_a_batch_are_counted_each() -> None:
    def judged(upto: int, accepted: int) -> dict[str, Any]:
        counts = {PURCHASES: {"accepted": accepted}}
        return {"query": "silver", "generation": "g", "batch_id": 0, "upto": upto, "counts": counts}

    landed = {"query": "bronze", "generation": "g", "batch_id": 0, "counts": {PURCHASES: {"read": 5, "accepted": 5}}}
    commits = {
        Table.PURCHASE_EVENTS: Commits(0, [landed]),
        Table.PURCHASES: Commits(0, [judged(4, 3), judged(9, 2)]),
        Table.PROFILE_CHANGES: Commits(0, [judged(9, 2)]),
    }
    expected = dict.fromkeys(OUTCOMES, 0) | {"read": 5, "accepted": 5}
    assert compare_accounting(PURCHASES, Table.PURCHASE_EVENTS, expected, commits).ok


@pytest.mark.parametrize(
    ("table", "second", "accepted"),
    [
        pytest.param(Table.PROFILE_EVENTS, (5, 4, 1), 4, id="good ones are left"),
        pytest.param(Table.PURCHASE_EVENTS, (1, 0, 1), 0, id="no good one is left"),
    ],
)
def test_a_batch_that_landed_in_two_attempts_read_what_the_tables_have_of_it(
    table: Table, second: tuple[int, int, int], accepted: int
) -> None:
    """Kafka compacted the topic between them: the first read seven records, five good ones, and the second fewer."""

    def landed(read: int, accepted: int, quarantined: int) -> dict[str, Any]:
        counts = {PROFILES: {"read": read, "accepted": accepted, "quarantined": quarantined}}
        return {"query": "bronze", "generation": "g", "batch_id": 0, "counts": counts}

    judged = {
        "query": "silver",
        "generation": "g",
        "batch_id": 0,
        "upto": 1,
        "counts": {PROFILES: {"accepted": accepted}},
    }
    commits = {
        Table.QUARANTINE: Commits(0, [landed(7, 5, 2)]),
        table: Commits(0, [landed(*second)]),
        Table.PROFILE_CHANGES: Commits(0, [judged]),
    }
    expected = dict.fromkeys(OUTCOMES, 0) | {"read": accepted + 2, "accepted": accepted, "quarantined": 2}
    assert compare_accounting(PROFILES, Table.PROFILE_EVENTS, expected, commits).ok


def test_what_a_former_generation_of_silver_refused_is_not_counted_again() -> None:
    def judged(generation: str) -> dict[str, Any]:
        counts = {PURCHASES: {"accepted": 3, "quarantined": 1}}
        return {"query": "silver", "generation": generation, "batch_id": 0, "counts": counts}

    landed = {"query": "bronze", "generation": "g", "batch_id": 0, "counts": {PURCHASES: {"read": 4, "accepted": 4}}}
    commits = {
        Table.PURCHASE_EVENTS: Commits(0, [landed]),
        Table.QUARANTINE: Commits(0, [judged("former"), judged("live")]),
        Table.PURCHASES: Commits(0, [judged("live")]),
    }
    expected = dict.fromkeys(OUTCOMES, 0) | {"read": 4, "accepted": 3, "quarantined": 1}
    assert compare_accounting(PURCHASES, Table.PURCHASE_EVENTS, expected, commits).ok


def test_a_record_that_lands_while_it_is_verified_gets_its_place(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read from Kafka before it landed, C1's newer profile of a lower partition must not lose its place."""
    world, nothing = World().landed_in(1), lake.PLACES.empty_table()
    world.write(settings.lake)
    world.serve(monkeypatch)
    places = lake.places
    asked: list[int] = []

    def at_first_nothing(tables: lake.Tables) -> Any:
        asked.append(1)
        return places(tables) if len(asked) > 1 else nothing

    monkeypatch.setattr(lake, "places", at_first_nothing)
    assert failing(verify(settings, settle_seconds=0)) == set()


@pytest.mark.parametrize(
    ("landing", "rules", "found_by"),
    [
        pytest.param(None, 1, set(), id="landed before landings had numbers"),
        pytest.param(1, 1, set(), id="landed by the rules of before"),
        pytest.param(1, 2, {Table.PURCHASE_EVENTS, Table.QUARANTINE, Table.PURCHASES}, id="landed by those of now"),
    ],
)
def test_a_record_is_judged_by_the_rules_that_its_landing_notes(
    landing: int | None, rules: int, found_by: set[Table], verify_world: Callable[..., Report]
) -> None:
    """A product id with a control character was right once."""
    world = World() if landing is None else World().landed_in(landing, rules)
    value = purchase(purchaseId="P3", customerId="C2", amount=b"5.25", productId="X\x01")
    world.kafka[PURCHASES][1][1] = world.kafka[PURCHASES][1][1]._replace(value=value)
    world.row(Table.PURCHASE_EVENTS, 4).update(value=value, product_id="X\x01")
    world.row(Table.PURCHASES, 2)["product_id"] = "X\x01"
    found = failing(verify_world(world))
    assert found >= {table.label for table in found_by}
    assert bool(found) == bool(found_by)


@pytest.mark.parametrize(
    ("rules", "stored", "is_right"),
    [
        pytest.param(2, None, True, id="by rules that know none, not read"),
        pytest.param(2, 7, False, id="by rules that know none, read"),
        pytest.param(3, 7, True, id="read"),
        pytest.param(3, None, False, id="not read"),
        pytest.param(3, 8, False, id="read wrongly"),
    ],
)
def test_bronze_has_the_risk_score_that_the_rules_of_its_landing_know(
    rules: int, stored: int | None, is_right: bool, verify_world: Callable[..., Report]
) -> None:
    world = World().landed_in(1, rules)
    value = purchase(purchaseId="P3", customerId="C2", amount=b"5.25", riskScore=7)
    world.kafka[PURCHASES][1][1] = world.kafka[PURCHASES][1][1]._replace(value=value)
    world.row(Table.PURCHASE_EVENTS, 4).update(value=value, risk_score=stored)
    world.row(Table.PURCHASES, 2)["risk_score"] = 7 if rules > 2 else None
    assert failing(verify_world(world)) == (set() if is_right else {Table.PURCHASE_EVENTS.label})


def test_a_lake_of_before_has_no_numbers(verify_world: Callable[..., Report]) -> None:
    world = World()
    for rows in world.tables.values():
        for row in rows:
            row.pop("landing", None)
            row.pop("risk_score", None)
    assert failing(verify_world(world)) == set()


@pytest.mark.parametrize(
    ("reasons", "found_by"),
    [
        pytest.param([], {TOTALS}, id="quarantine does not say so"),
        pytest.param(["C1"], set(), id="quarantine says so"),
        pytest.param(["C1", "C1"], {TOTALS}, id="twice"),
        pytest.param(["C1", "C3"], {TOTALS}, id="of somebody else, too"),
    ],
)
def test_a_total_that_does_not_fit_freezes_the_row(
    reasons: list[str], found_by: set[str], verify_world: Callable[..., Report]
) -> None:
    report = verify_world(overflowing(reasons))
    assert failing(report) == found_by
    assert report.turnover == 10**18 - 1 + 1535


@pytest.mark.parametrize(
    ("table", "changes", "found_by"),
    [
        pytest.param(Table.SUMMARIES, {"total_amount": Decimal("10.10")}, {Table.SUMMARIES.label}, id="sum"),
        pytest.param(
            Table.ACTIVITY,
            {"purchase_count": 1},
            {Table.ACTIVITY.label},
            id="not the row that its changes have",
        ),
        pytest.param(
            Table.ACTIVITY_CHANGES,
            {"purchase_count": 3},
            {Table.ACTIVITY_CHANGES.label, Table.ACTIVITY.label, "view: last values"},
            id="a row that never was right",
        ),
    ],
)
def test_what_is_wrong_with_a_frozen_row_is_found(
    table: Table, changes: dict[str, Any], found_by: set[str], verify_world: Callable[..., Report]
) -> None:
    world = overflowing(["C1"])
    position = 2 if table is Table.ACTIVITY_CHANGES else 0
    world.row(table, position).update(changes)
    assert failing(verify_world(world)) == found_by
