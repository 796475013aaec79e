"""The model's worlds are what they say: verification's own oracle, told apart from them, says the same of each."""

from __future__ import annotations

from decimal import Decimal
from itertools import product
from random import Random

import pytest

from customer_activity.catalog import PURCHASES_ROLE, Reason
from customer_activity.demo.traffic import poison
from customer_activity.verification import oracle
from customer_activity.verification.records import NEWEST_RULES, Log, Place, RawRecord
from support.expected import History, Kind, Landed, expected, meets
from support.lives import PLACES
from support.records import NOW_MS, PROFILES, PURCHASES, Record
from support.records import Log as Topics
from support.streams import Query
from support.visits import POSSIBLE, TOGETHER, impossible
from support.worlds import BAD_ID, KINDS, Everything, Sent, seeded

LANDED_MS = NOW_MS + 1_000
SEEDS = range(30)
RECORDS, RECORDS_A_LANDING = 120, 7


def landed(seed: int) -> list[Landed]:
    """Land a seeded world, some records at a time."""
    topics = Topics()
    places = [(topics.append(sent.record, sent.partition)[:3], sent) for sent in seeded(seed, RECORDS)]
    return [Landed(number // RECORDS_A_LANDING, *place, sent) for number, (place, sent) in enumerate(places)]


def logs(world: list[Landed]) -> tuple[Log, Log]:
    """Judge a world's records as verification does."""
    found: dict[str, Log] = {PURCHASES: {}, PROFILES: {}}
    for landing, topic, partition, offset, sent in world:
        record = sent.record
        raw = RawRecord(partition, offset, record.timestamp_ms, record.key, record.value, ())
        place = Place(landing, LANDED_MS, NEWEST_RULES)
        judged = oracle.judge_purchase(raw, place, "EUR") if topic == PURCHASES else oracle.judge_profile(raw, place)
        found[topic].setdefault(partition, {})[offset] = judged
    return found[PURCHASES], found[PROFILES]


@pytest.mark.parametrize("seed", SEEDS)
def test_verification_judges_a_world_as_the_model_does(seed: int) -> None:
    world = landed(seed)
    wanted = expected(world)
    said = oracle.expect(*logs(world), purchase_topic=PURCHASES, profile_topic=PROFILES, currency="EUR")
    assert {key: (PURCHASES, of.partition, of.offset) for key, of in said.purchases.items()} == wanted.purchases
    assert {customer: of.address for customer, of in said.profiles.items()} == wanted.addresses
    reasons = {entry.place: entry.sent.reason for entry in world if entry.sent.reason is not None}
    conflicts = dict.fromkeys(wanted.conflicts, Reason.CONFLICTING_DUPLICATE)
    assert {place: of.reason for place, of in said.quarantine.items()} == reasons | conflicts
    summaries = {customer: (of.purchase_count, of.total_amount) for customer, of in said.summaries.items()}
    assert {customer for customer, (_, total) in summaries.items() if total is None} == wanted.frozen
    assert {customer: count for customer, (count, _) in summaries.items()} == {
        customer: count for customer, (count, _) in wanted.summaries.items()
    }
    view = {customer: (row.address, row.purchase_count, row.total) for customer, row in wanted.view.items()}
    gold = {
        customer: (of.address, of.purchase_count, Decimal(of.total_amount) / 100) for customer, of in said.gold.items()
    }
    assert gold == view


def test_a_seed_is_a_world_of_its_own() -> None:
    assert seeded(1, 50) == seeded(1, 50)
    assert seeded(1, 50) != seeded(2, 50)


def test_every_kind_of_bad_record_is_refused_for_its_reason() -> None:
    found = {}
    for number, kind in enumerate(KINDS):
        made = poison.record(kind, BAD_ID, "EUR")
        topic = PURCHASES if made.role == PURCHASES_ROLE else PROFILES
        sent = Sent(Record(topic, made.key, made.value, NOW_MS), None, kind.reason)
        ((judged,),) = (log[0].values() for log in logs([Landed(0, topic, 0, number, sent)]) if log)
        found[kind.name] = getattr(judged, "reason", None)
    assert found == {kind.name: kind.reason for kind in KINDS}


@pytest.mark.parametrize("seed", range(5))
def test_a_batch_of_everything_has_every_kind_of_record_for_each_query_that_meets_it(seed: int) -> None:
    everything, history = Everything(Random(seed)), History()
    batches = [[history.kinds(sent, sent.partition or 0) for sent in everything.records()] for _ in range(12)]
    missing = [
        (number, query, kind)
        for number, batch in enumerate(batches[1:], 1)  # the first has nobody to come back
        for query, kind in product(Query, Kind)
        if query in meets(kind) and kind is not Kind.LARGE
        if not any(kind in kinds and all(query in meets(of) for of in kinds) for kinds in batch)
    ]
    assert missing == []
    assert any(Kind.LARGE in kinds for batch in batches for kinds in batch)


def test_each_group_of_events_and_each_kind_of_record_is_possible_somewhere() -> None:
    assert sorted(event for group in TOGETHER for event in group) == sorted({triple.event for triple in POSSIBLE})
    assert {triple.kind for triple in POSSIBLE} == set(Kind)
    assert impossible(PLACES[0], Kind.BAD) == ""  # bronze meets every record
    assert impossible(PLACES[-1], Kind.BAD) == "bronze refuses it"
