"""Verification: every kind of damage is found by the check that is named for it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from customer_activity.catalog import Table
from customer_activity.verification.verify import Report
from support.world import World, commit, failing
from support.world_rows import (
    C1_ROW,
    C3_ROW,
    C4,
    NOW,
    P1,
    PERSONAL,
    PROFILES,
    PURCHASES,
    VIEW,
    Row,
    at,
    landed,
    placed,
    published,
)

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


def landing(position: int, number: int) -> Damage:
    """A row of bronze's purchases that says it landed in a landing of that number."""
    return change(Table.PURCHASE_EVENTS, position, landing=number)


BAD = landed(PURCHASES, 0, 3, **P1)
GOOD = landed(PURCHASES, 1, 1, reason="not_json")
NOWHERE = landed(PURCHASES, 1, 1, **P1) | {"partition": 7, "offset": 0}
GONE = C1_ROW | {"is_gone": True}
C4_ROW = C3_ROW | {"customer_id": "C4"}
MICROSECOND = timedelta(microseconds=1)
BRONZE, TOMBSTONES, QUARANTINE = Table.PURCHASE_EVENTS.label, Table.PROFILE_EVENTS.label, Table.QUARANTINE.label
BOUGHT, SUMS, PEOPLE, GOLD = (
    table.label for table in (Table.PURCHASES, Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY)
)
PEOPLE_LOG, GOLD_LOG = Table.PROFILE_CHANGES.label, Table.ACTIVITY_CHANGES.label
REASONS, LAST, CONTRACT = f"{QUARANTINE}: reasons", "view: last values", "view: contract"
ORDER = f"landing order of {PURCHASES}"
GROW, TWICE = "view: versions grow", "view: nothing twice"


@pytest.mark.parametrize(
    ("damage", "found_by"),
    [
        case("bronze: record lost", drop(Table.PURCHASE_EVENTS, 3), BRONZE, BOUGHT),
        case("bronze: record twice", double(Table.PURCHASE_EVENTS, 1), BRONZE),
        case("bronze: bytes changed", change(Table.PURCHASE_EVENTS, 1, value=b"{}"), BRONZE),
        case("bronze: header lost", change(Table.PURCHASE_EVENTS, headers=None), BRONZE),
        case("bronze: timestamp changed", change(Table.PURCHASE_EVENTS, 1, kafka_timestamp=at(NOW)), BRONZE),
        case("bronze: amount read wrongly", change(Table.PURCHASE_EVENTS, 1, amount=Decimal("1.00")), BRONZE),
        case("bronze: risk score that nobody sent", change(Table.PURCHASE_EVENTS, 1, risk_score=7), BRONZE),
        case("bronze: wrong topic", change(Table.PURCHASE_EVENTS, 1, topic="other"), BRONZE),
        case("bronze: partition that Kafka has not", change(Table.PURCHASE_EVENTS, 1, partition=7), BRONZE),
        case("bronze: offset that Kafka has not come to", change(Table.PURCHASE_EVENTS, 1, offset=99), BRONZE),
        case("bronze: no partition", change(Table.PURCHASE_EVENTS, 1, partition=None), BRONZE),
        case("bronze: no offset", change(Table.PURCHASE_EVENTS, 1, offset=None), BRONZE),
        case("bronze: no coordinates", change(Table.PURCHASE_EVENTS, 1, partition=None, offset=None), BRONZE),
        case("bronze: profile without an offset", change(Table.PROFILE_EVENTS, 4, offset=None), TOMBSTONES),
        case("bronze: partition that Kafka has not, added", add(Table.PURCHASE_EVENTS, NOWHERE), BRONZE),
        case(
            "bronze: profile that compaction cannot have removed",
            lambda world: world.kafka[PROFILES][0].pop(3),
            *(TOMBSTONES, PEOPLE, PEOPLE_LOG, GOLD, GOLD_LOG, LAST, ACCOUNTS[PROFILES]),
        ),
        case("bronze: bad record accepted", add(Table.PURCHASE_EVENTS, BAD), BRONZE),
        case("bronze: tombstone lost", drop(Table.PROFILE_EVENTS, 6), TOMBSTONES),
        case("bronze: tombstone not marked", change(Table.PROFILE_EVENTS, 6, is_tombstone=False), TOMBSTONES),
        case("quarantine: row missing", drop(Table.QUARANTINE), QUARANTINE),
        case("quarantine: row twice", double(Table.QUARANTINE), QUARANTINE),
        case(
            "quarantine: record that Kafka never had",
            add(Table.QUARANTINE, NOWHERE | {"reason": "not_json"}),
            QUARANTINE,
        ),
        case("quarantine: no coordinates", change(Table.QUARANTINE, partition=None, offset=None), QUARANTINE),
        case("quarantine: no offset", change(Table.QUARANTINE, offset=None), QUARANTINE),
        case("quarantine: good record", add(Table.QUARANTINE, GOOD), QUARANTINE),
        case("quarantine: bytes changed", change(Table.QUARANTINE, value=b"["), QUARANTINE),
        case("quarantine: wrong topic", change(Table.QUARANTINE, topic="other"), QUARANTINE),
        case("quarantine: wrong reason", change(Table.QUARANTINE, reason="not_utf8"), REASONS),
        case(
            "order: landed before what Kafka has before it",
            both(landing(1, 3), landing(2, 2)),
            ORDER,
            QUARANTINE,
        ),
        case("order: a number, and none after it", landing(1, 1), ORDER),
        case("order: silver names another landing", change(Table.PURCHASES, landing=7), BOUGHT),
        case("order: quarantine names another landing", change(Table.QUARANTINE, 1, landing=7), QUARANTINE),
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
        case(
            "gold: version that neither its changes nor the topic have",
            change(Table.ACTIVITY, view_version=13),
            GOLD,
            LAST,
        ),
        case(
            "gold: version of a change that neither its row nor the topic have",
            change(Table.ACTIVITY_CHANGES, 2, view_version=13),
            GOLD,
        ),
        case(
            "gold: version not on the topic",
            both(change(Table.ACTIVITY, view_version=13), change(Table.ACTIVITY_CHANGES, 2, view_version=13)),
            LAST,
        ),
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
            both(
                change(Table.ACTIVITY, 1, view_version=13),
                add(Table.ACTIVITY_CHANGES, C3_ROW | {"view_version": 12, "is_gone": True}),
                add(Table.ACTIVITY_CHANGES, C3_ROW | {"view_version": 13, "is_gone": False}),
                publish(None, key="C3"),
                publish(C3_ROW, viewVersion=13),
            ),
        ),
        case(
            "view: the same content may come back where gold had another in between",
            both(
                change(Table.ACTIVITY, view_version=15),
                change(Table.ACTIVITY_CHANGES, 2, view_version=15),
                add(Table.ACTIVITY_CHANGES, GONE | {"view_version": 14}),
                publish(C1_ROW, viewVersion=15),
            ),
        ),
        case(
            "view: deleted again what came and went while it was too large",
            both(
                add(Table.ACTIVITY_CHANGES, C4_ROW | {"view_version": 14, "is_gone": False}),
                add(Table.ACTIVITY_CHANGES, C4_ROW | {"view_version": 15, "is_gone": True}),
                publish(None, key="C4", partition=1),
            ),
        ),
        case(
            "view: the same record twice beside a damaged change",
            both(add(Table.ACTIVITY_CHANGES, C1_ROW | {"view_version": None, "is_gone": False}), publish(C1_ROW)),
            TWICE,
            GROW,
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
