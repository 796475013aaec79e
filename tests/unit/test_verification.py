"""Verification: every kind of damage is found by the check that is named for it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
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
from support.world import (
    C1_ROW,
    C3_ROW,
    C4,
    NOW,
    OUTCOMES,
    P1,
    PERSONAL,
    PROFILES,
    PURCHASES,
    VIEW,
    Row,
    World,
    at,
    commit,
    expect,
    landed,
    placed,
    profile,
    published,
    purchase,
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run")


@pytest.fixture(scope="module")
def right_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a right world, written once."""
    lake = tmp_path_factory.mktemp("right_lake")
    World().write(str(lake))
    return lake


@pytest.fixture
def verify_world(settings: Settings, right_lake: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Write a world's tables, stand in for its Kafka, verify."""

    def write_and_verify(world: World, **options: Any) -> Report:
        world.write(settings.lake, right_lake)
        world.serve(monkeypatch)
        return verify(settings, **{"settle_seconds": 0.0} | options)

    return write_and_verify


def failing(report: Report) -> set[str]:
    return {check.name for check in report.checks if not check.ok}


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


# --- damage ---

Damage = Callable[[World], object]


def change(table: Table, position: int = 0, **columns: Any) -> Damage:
    return lambda world: world.row(table, position).update(columns)


def drop(table: Table, position: int = 0) -> Damage:
    return lambda world: world.tables[table].pop(position)


def double(table: Table, position: int = 0) -> Damage:
    return lambda world: world.tables[table].append(world.tables[table][position])


def add(table: Table, row: Row) -> Damage:
    return lambda world: world.tables[table].append(row)


def count(table: Table, topic: str, position: int = 0, **counts: int) -> Damage:
    def damage(world: World) -> None:
        note = copy.deepcopy(world.commits[table][position])
        note["counts"].setdefault(topic, {}).update(counts)
        world.commits[table][position] = note

    return damage


def damaged_record(topic: str, offset: int, **fields: Any) -> Damage:
    def damage(world: World) -> None:
        world.kafka[topic][0][offset] = world.kafka[topic][0][offset]._replace(**fields)

    return damage


def both(*damages: Damage) -> Damage:
    return lambda world: [damage(world) for damage in damages]


ACCOUNTS = {topic: f"accounting of {topic}" for topic in (PURCHASES, PROFILES)}


def case(name: str, damage: Damage, *found_by: str) -> Any:
    return pytest.param(damage, set(found_by), id=name)


def publish(row: Row | None, **changes: Any) -> Damage:
    return lambda world: world.publish(row, **changes)


def unpublish(partition: int, position: int = -1) -> Damage:
    return lambda world: world.kafka[VIEW][partition].pop(position)


def instead(**changes: Any) -> Damage:
    """C1's last record on the view topic, changed."""
    return damaged_record(VIEW, 2, value=published(C1_ROW, **changes)[1])


BAD = landed(PURCHASES, 0, 3, **P1)
GOOD = landed(PURCHASES, 1, 1, reason="not_json")
MICROSECOND = timedelta(microseconds=1)
BRONZE, TOMBSTONES, QUARANTINE = Table.PURCHASE_EVENTS.label, Table.PROFILE_EVENTS.label, Table.QUARANTINE.label
BOUGHT, SUMS, PEOPLE, GOLD = (
    table.label for table in (Table.PURCHASES, Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY)
)
PEOPLE_LOG, GOLD_LOG = Table.PROFILE_CHANGES.label, Table.ACTIVITY_CHANGES.label
REASONS, LAST, CONTRACT = f"{QUARANTINE}: reasons", "view: last values", "view: contract"
GROW, TWICE = "view: versions grow", "view: nothing twice"


@pytest.mark.parametrize(
    ("damage", "found_by"),
    [
        case("bronze: record lost", drop(Table.PURCHASE_EVENTS, 3), BRONZE),
        case("bronze: record twice", double(Table.PURCHASE_EVENTS, 1), BRONZE),
        case("bronze: bytes changed", change(Table.PURCHASE_EVENTS, 1, value=b"{}"), BRONZE),
        case("bronze: header lost", change(Table.PURCHASE_EVENTS, headers=None), BRONZE),
        case("bronze: timestamp changed", change(Table.PURCHASE_EVENTS, 1, kafka_timestamp=at(NOW)), BRONZE),
        case("bronze: amount read wrongly", change(Table.PURCHASE_EVENTS, 1, amount=Decimal("1.00")), BRONZE),
        case("bronze: wrong topic", change(Table.PURCHASE_EVENTS, 1, topic="other"), BRONZE),
        case("bronze: partition that Kafka has not", change(Table.PURCHASE_EVENTS, 1, partition=7), BRONZE),
        case("bronze: bad record accepted", add(Table.PURCHASE_EVENTS, BAD), BRONZE),
        case("bronze: tombstone lost", drop(Table.PROFILE_EVENTS, 6), TOMBSTONES),
        case("bronze: tombstone not marked", change(Table.PROFILE_EVENTS, 6, is_tombstone=False), TOMBSTONES),
        case("quarantine: row missing", drop(Table.QUARANTINE), QUARANTINE),
        case("quarantine: row twice", double(Table.QUARANTINE), QUARANTINE),
        case("quarantine: good record", add(Table.QUARANTINE, GOOD), QUARANTINE),
        case("quarantine: bytes changed", change(Table.QUARANTINE, value=b"["), QUARANTINE),
        case("quarantine: wrong topic", change(Table.QUARANTINE, topic="other"), QUARANTINE),
        case("quarantine: wrong reason", change(Table.QUARANTINE, reason="not_utf8"), REASONS),
        case("silver: purchase dropped", drop(Table.PURCHASES), BOUGHT),
        case("silver: purchase doubled", double(Table.PURCHASES), BOUGHT),
        case("silver: amount changed", change(Table.PURCHASES, amount=Decimal("10.01")), BOUGHT),
        case("silver: amount null", change(Table.PURCHASES, amount=None), BOUGHT),
        case("silver: currency changed", change(Table.PURCHASES, currency="USD"), BOUGHT),
        case("silver: not the first record counted", change(Table.PURCHASES, offset=1), BOUGHT),
        case("silver: a microsecond off", change(Table.PURCHASES, occurred_at=at(NOW) + MICROSECOND), BOUGHT),
        case("silver: counted once too often", change(Table.SUMMARIES, purchase_count=3), SUMS),
        case("silver: a cent too much", change(Table.SUMMARIES, total_amount=Decimal("10.11")), SUMS),
        case("silver: summary without profile lost", drop(Table.SUMMARIES, 1), SUMS),
        case("silver: wrong address", change(Table.PROFILES, address="Hidden Lane 1"), PEOPLE),
        case("silver: a repeated profile taken for new", change(Table.PROFILES, offset=4), PEOPLE),
        case("silver: deleted profile still there", add(Table.PROFILES, placed(C4, 1, 0)), PEOPLE),
        case("silver: newest change of a profile lost", drop(Table.PROFILE_CHANGES, 1), PEOPLE_LOG),
        case("silver: end of a profile lost", drop(Table.PROFILE_CHANGES, 4), PEOPLE_LOG),
        case("gold: newest change lost", drop(Table.ACTIVITY_CHANGES, 2), GOLD_LOG),
        case("gold: end of a row lost", drop(Table.ACTIVITY_CHANGES, 4), GOLD_LOG),
        case("gold: wrong change", change(Table.ACTIVITY_CHANGES, 2, name="Mallory"), GOLD_LOG),
        case("gold: stale row", change(Table.ACTIVITY, name="Mallory"), GOLD),
        case("gold: row missing", drop(Table.ACTIVITY), GOLD),
        case("gold: row twice", double(Table.ACTIVITY), GOLD),
        case("gold: row without profile", add(Table.ACTIVITY, C3_ROW | {"customer_id": "C2"}), GOLD),
        case("gold: wrong currency", change(Table.ACTIVITY, currency="USD"), GOLD),
        case("gold: as_of wrong", change(Table.ACTIVITY, as_of=at(NOW)), GOLD),
        case("gold: no count", change(Table.ACTIVITY, 1, purchase_count=None), GOLD),
        case("gold: version not on the topic", change(Table.ACTIVITY, view_version=13), LAST),
        case("gold: no version", change(Table.ACTIVITY, view_version=None), GOLD, LAST),
        case("view: record missing", unpublish(0), LAST),
        case("view: customer missing", unpublish(0, 1), LAST),
        case("view: deletion missing", unpublish(1), LAST),
        case("view: key that should not be", publish(C1_ROW | {"customer_id": "C9"}), LAST),
        case("view: deleted though it lives", publish(None, key="C3"), LAST),
        case("view: deleted twice", publish(None, key="C4", partition=1), TWICE),
        case("view: the same record twice", publish(C1_ROW), TWICE, GROW),
        case("view: repeated with a new version", publish(C1_ROW, viewVersion=13), TWICE, LAST),
        case("view: version repeated over a deletion", both(publish(None, key="C3"), publish(C3_ROW)), GROW),
        case(
            "view: the same content may come back after a deletion",
            both(change(Table.ACTIVITY, 1, view_version=13), publish(None, key="C3"), publish(C3_ROW, viewVersion=13)),
        ),
        case("view: as_of wrong", instead(asOfEpochMillis=NOW), LAST),
        case("view: one decimal", instead(totalAmount=b"10.1"), LAST, CONTRACT),
        case("view: total as text", instead(totalAmount="10.10"), LAST, CONTRACT),
        case("view: a field too many", instead(more=1), LAST, CONTRACT),
        case("view: a field missing", instead(currency=...), LAST, CONTRACT),
        case("view: not JSON", damaged_record(VIEW, 2, value=b"{"), LAST, CONTRACT),
        case("view: wrong key", damaged_record(VIEW, 2, key=b"C3"), LAST, CONTRACT),
        case("view: no key", damaged_record(VIEW, 2, key=None), LAST, CONTRACT),
        case("view: version below one", damaged_record(VIEW, 0, value=published(C1_ROW, viewVersion=0)[1]), CONTRACT),
        case("accounting: accepted too many", count(Table.PURCHASES, PURCHASES, accepted=4), ACCOUNTS[PURCHASES]),
        case("accounting: stale not counted", count(Table.PROFILE_CHANGES, PROFILES, stale=0), ACCOUNTS[PROFILES]),
        case("accounting: no metadata", lambda world: world.commits.pop(Table.PROFILE_EVENTS), ACCOUNTS[PROFILES]),
        case(
            "accounting: a batch counted twice under another number",
            lambda world: world.commits[Table.PROFILE_CHANGES].append(commit("silver", 1, {PROFILES: {"accepted": 1}})),
            ACCOUNTS[PROFILES],
        ),
    ],
)
def test_damage_is_found(damage: Damage, found_by: set[str], verify_world: Callable[..., Report]) -> None:
    world = World()
    damage(world)
    report = verify_world(world)
    assert failing(report) == found_by
    examples = " ".join(example for check in report.checks for example in check.examples)
    assert bool(examples) == bool(found_by)
    assert not [word for word in PERSONAL if word in examples]


# --- what Kafka has no longer, what it has too much, and what cannot be known ---


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
    assert BRONZE in failing(verify_world(world))


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
    assert BRONZE not in failing(report)  # what lies past the end that was noted is nobody's fault
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
