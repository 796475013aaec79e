"""Repeats, conflicts and bad records: as many as asked for, and every bad one is bad for the reason it says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from random import Random
from typing import Any

import pytest

from customer_activity import catalog
from customer_activity.catalog import Reason
from customer_activity.demo.traffic import generator, mixing, poison, positions
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.demo.traffic.profiles import ProfileTraffic
from customer_activity.demo.traffic.record import BAD, CONFLICT, DUPLICATE, PROFILE, PURCHASE, Record
from support.kafka_batches import LATER_REASONS
from support.traffic import CONTRACTS, fields_of, kinds, parsed, small


@pytest.mark.parametrize("share", [0.001, 0.01, 0.3, 1.0])
def test_shares_are_met_to_within_two_records(share: float) -> None:
    count = 2_050
    assert (
        abs(sum(1 for place in islice(positions.marks(share, Random(1)), count) if place < count) - share * count) <= 1
    )
    duplicated = kinds(mixing.disturbed(generator.records(small()), Disturbance(duplicate_share=share)))
    assert abs(duplicated[DUPLICATE] - share * count) <= 2
    conflicting = kinds(mixing.disturbed(generator.records(small()), Disturbance(conflict_share=share / 2)))
    assert abs(conflicting[CONFLICT] - share / 2 * count) <= 2


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_bad_share_is_of_all_records(share: float) -> None:
    disturbance = Disturbance(bad_share=share)
    records = list(mixing.disturbed(generator.records(small()), disturbance))
    bad = sum(record.kind.startswith(BAD) for record in records)
    assert bad == pytest.approx(share * len(records), abs=2 / (1 - share))
    assert mixing.expected(2_050, disturbance) == pytest.approx(len(records), abs=2 / (1 - share))


def test_duplicates_repeat_an_earlier_record_byte_for_byte() -> None:
    sent: set[tuple[Any, ...]] = set()
    previous: Record | None = None
    plan = ProfileTraffic(changes=500, tombstones=100)
    for record in mixing.disturbed(generator.records(small(profiles=plan)), Disturbance(duplicate_share=0.2)):
        if record.kind == DUPLICATE:
            assert record[:4] in sent
            assert record.role == catalog.PURCHASES_ROLE or (previous is not None and record[:4] == previous[:4])
        sent.add(record[:4])
        previous = record


def test_duplicates_fall_far_from_the_original_too() -> None:
    place: dict[bytes | None, int] = {}
    distances = []
    records = mixing.disturbed(generator.purchases(small(purchases=20_000)), Disturbance(duplicate_share=0.05))
    for position, record in enumerate(records):
        if record.kind == DUPLICATE:
            distances.append(position - place[record.key])
        place.setdefault(record.key, position)
    assert max(distances) > mixing.REPEAT_WITHIN * 0.9
    assert min(distances) < mixing.REPEAT_WITHIN * 0.1


def test_conflict_follows_its_purchase_with_another_amount_only() -> None:
    purchases: dict[bytes | None, dict[str, Any]] = {}
    conflicts = 0
    for record in mixing.disturbed(generator.records(small()), Disturbance(0.1, 0.1)):
        if record.kind == PURCHASE:
            purchases[record.key] = fields_of(record)
        elif record.kind == CONFLICT:
            conflicts += 1
            assert fields_of(record) == purchases[record.key] | {"amount": purchases[record.key]["amount"] + 1}
    assert conflicts > 100


def test_good_records_are_there_in_their_order_whatever_disturbs_them() -> None:
    good = list(generator.records(small()))
    disturbed = mixing.disturbed(iter(good), Disturbance(0.3, 0.3, 0.3))
    assert [record for record in disturbed if record.kind in {PURCHASE, PROFILE}] == good


def test_bad_records_hold_every_kind_as_often_and_no_good_id() -> None:
    good = list(generator.records(small()))
    bad = [r for r in mixing.disturbed(iter(good), Disturbance(bad_share=0.3)) if r.kind.startswith(BAD)]
    per_kind = kinds(bad)
    assert per_kind.keys() == {BAD + kind.name for kind in poison.KINDS}
    assert max(per_kind.values()) - min(per_kind.values()) <= 1
    assert not {record.key for record in bad} & {record.key for record in good}
    assert not any(fields_of(record)["purchaseId"].startswith("bad-") for record in good if record.kind == PURCHASE)


def test_there_are_kinds_for_every_reason_on_both_topics() -> None:
    assert len(poison.KINDS) >= 25
    assert len({kind.name for kind in poison.KINDS}) == len(poison.KINDS)
    assert {kind.role for kind in poison.KINDS} == {catalog.PURCHASES_ROLE, catalog.PROFILES_ROLE}
    assert set(poison.REASONS.values()) == set(Reason) - LATER_REASONS


def test_profile_topic_has_no_record_that_compaction_refuses() -> None:
    assert all(kind.key is not None for kind in poison.KINDS if kind.role == catalog.PROFILES_ROLE)


def reason_by_the_schema(record: Record) -> Reason | None:
    """Judge the value alone by Python's JSON reader and the JSON Schema; None where only key or clock can tell."""

    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    assert record.value is not None
    try:
        event = json.loads(record.value.decode("utf-8"), parse_float=Decimal, parse_constant=refuse)
        json.dumps(event, default=str, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        return Reason.NOT_UTF8
    except (ValueError, RecursionError):
        return Reason.NOT_JSON
    broken = {error.validator for error in CONTRACTS[record.role].iter_errors(event)}
    if not broken:
        return None
    if "required" in broken:
        return Reason.MISSING_FIELD
    return Reason.WRONG_TYPE if "type" in broken else Reason.OUT_OF_RANGE


KEY_OR_CLOCK = {
    Reason.MISSING_KEY,
    Reason.MISSING_VALUE,
    Reason.KEY_MISMATCH,
    Reason.CURRENCY_MISMATCH,
    Reason.TIMESTAMP_IN_FUTURE,
}


# Those whose key is at fault before the value is looked at say nothing about the value.
JUDGED_BY_VALUE = [
    kind
    for kind in poison.KINDS
    if kind.value is not None and (kind.key or b"").isascii() and kind.name != "no_key_before_not_json"
]


@pytest.mark.parametrize("kind", JUDGED_BY_VALUE, ids=lambda k: k.name)
def test_json_schema_agrees_on_what_is_wrong_with_the_value(kind: poison.Poison) -> None:
    by_schema = reason_by_the_schema(poison.record(kind, "bad-1", "EUR"))
    assert by_schema == (None if kind.reason in KEY_OR_CLOCK else kind.reason)


def test_parser_refuses_every_kind_for_its_reason() -> None:
    records = [poison.record(kind, f"bad-{serial}", "USD") for serial, kind in enumerate(poison.KINDS)]
    rows = parsed(records, "USD", datetime.now(UTC))
    assert {kind.name: row["reason"] for kind, row in zip(poison.KINDS, rows, strict=True)} == {
        kind.name: kind.reason for kind in poison.KINDS
    }
