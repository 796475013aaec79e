"""Verification: the oracle knows every rule, and every kind of damage is found by the check that is named for it."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
import typer
from confluent_kafka import KafkaError
from deltalake import CommitProperties, write_deltalake
from typer.testing import CliRunner, Result

from customer_activity import kafka
from customer_activity.bronze.parsing import PARSED_SCHEMA, parse_batch
from customer_activity.catalog import Reason, Table, table_path
from customer_activity.commands import verify as command
from customer_activity.errors import BrokerUnavailable, TerminalError, TransientError
from customer_activity.settings import Settings
from customer_activity.verification import contract, kafka_input, oracle
from customer_activity.verification import verify as verification
from customer_activity.verification.comparison import Check, Commits, compare_accounting
from customer_activity.verification.oracle import Headers, RawRecord, Refused
from customer_activity.verification.verify import Report, verify

NOW = 1_700_000_000_000  # Kafka timestamp of most records, milliseconds
PURCHASES, PROFILES, VIEW = "purchase-events", "customer-profile-state", "customer-activity-view"


def document(**fields: Any) -> bytes:
    """A JSON object; a value of type bytes stands in it as it is, Ellipsis leaves the field out."""
    parts = (
        json.dumps(name).encode() + b":" + (value if isinstance(value, bytes) else json.dumps(value).encode())
        for name, value in fields.items()
        if value is not ...
    )
    return b"{" + b",".join(parts) + b"}"


def purchase(**changes: Any) -> bytes:
    fields = {
        "purchaseId": "P1",
        "customerId": "C1",
        "productId": "X",
        "amount": b"1.25",
        "currency": "EUR",
        "occurredAtEpochMillis": NOW,
    }
    return document(**fields | changes)


def profile(**changes: Any) -> bytes:
    fields = {
        "customerId": "C1",
        "name": "Ada",
        "email": "ada@example.org",
        "address": "1 Old Road",
        "loyaltyStatus": "gold",
        "updatedAtEpochMillis": NOW,
    }
    return document(**fields | changes)


# --- the contract ---


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param(None, purchase(), Reason.MISSING_KEY, id="key is null"),
        pytest.param(b"", purchase(), Reason.MISSING_KEY, id="key is empty"),
        pytest.param(None, None, Reason.MISSING_KEY, id="key goes before value"),
        pytest.param(b"P1", None, Reason.MISSING_VALUE, id="value is null"),
        pytest.param(b"\xff", purchase(), Reason.NOT_UTF8, id="key is not UTF-8"),
        pytest.param(b"P1", b"\xff" + purchase(), Reason.NOT_UTF8, id="value is not UTF-8"),
        pytest.param(b"P1", purchase(customerId=b'"\xed\xa0\x80"'), Reason.NOT_UTF8, id="surrogate encoded in UTF-8"),
        pytest.param(b"P1", purchase(customerId=b'"\\ud800"'), Reason.NOT_UTF8, id="lone surrogate escaped"),
        pytest.param(b"P1", purchase(more=b'["\\udc00"]'), Reason.NOT_UTF8, id="lone surrogate in an unknown field"),
        pytest.param(b"P1", purchase()[:-1] + b',"\\ud800":1}', Reason.NOT_UTF8, id="lone surrogate in a name"),
        pytest.param(b"P1", b"", Reason.NOT_JSON, id="value is empty"),
        pytest.param(b"P1", purchase()[:-1], Reason.NOT_JSON, id="cut off"),
        pytest.param(b"P1", purchase() + b"{}", Reason.NOT_JSON, id="something after the object"),
        pytest.param(b"P1", purchase(amount=b"NaN"), Reason.NOT_JSON, id="NaN"),
        pytest.param(b"P1", purchase(amount=b"-Infinity"), Reason.NOT_JSON, id="infinity"),
        pytest.param(b"P1", purchase(more=b"NaN"), Reason.NOT_JSON, id="NaN in an unknown field"),
        pytest.param(b"P1", purchase(amount=b"01"), Reason.NOT_JSON, id="leading zero"),
        pytest.param(b"P1", b"\xef\xbb\xbf" + purchase(), Reason.NOT_JSON, id="byte order mark"),
        pytest.param(b"P1", purchase(customerId=b'"a\nb"'), Reason.NOT_JSON, id="raw line break in text"),
        pytest.param(b"P1", purchase(more=b"[" * 300 + b"]" * 300), Reason.NOT_JSON, id="nested too deeply"),
        pytest.param(b"P1", purchase(more=b"[" * 90_000 + b"]" * 90_000), Reason.NOT_JSON, id="nested absurdly"),
        pytest.param(b"P1", b"[]", Reason.WRONG_TYPE, id="an array"),
        pytest.param(b"P1", b"null", Reason.WRONG_TYPE, id="JSON null"),
        pytest.param(b"P1", purchase(amount="1.25"), Reason.WRONG_TYPE, id="number as text"),
        pytest.param(b"P1", purchase(amount=True), Reason.WRONG_TYPE, id="boolean amount"),
        pytest.param(b"P1", purchase(amount=None), Reason.WRONG_TYPE, id="null amount"),
        pytest.param(b"P1", purchase(purchaseId=1), Reason.WRONG_TYPE, id="id is a number"),
        pytest.param(b"P1", purchase(productId=[]), Reason.WRONG_TYPE, id="product is an array"),
        pytest.param(b"P1", purchase(occurredAtEpochMillis=b"1.0"), Reason.WRONG_TYPE, id="time with a fraction"),
        pytest.param(b"P1", purchase(occurredAtEpochMillis=b"1e3"), Reason.WRONG_TYPE, id="time with an exponent"),
        pytest.param(b"P1", purchase(amount="x", customerId=...), Reason.WRONG_TYPE, id="type goes before absence"),
        pytest.param(b"P1", purchase(customerId=...), Reason.MISSING_FIELD, id="field missing"),
        pytest.param(b"P1", purchase(currency=..., amount=-1), Reason.MISSING_FIELD, id="absence goes before range"),
        pytest.param(b"P1", purchase(customerId=""), Reason.OUT_OF_RANGE, id="empty id"),
        pytest.param(b"P1", purchase(amount=-1), Reason.OUT_OF_RANGE, id="negative"),
        pytest.param(b"P1", purchase(amount=b"1.255"), Reason.OUT_OF_RANGE, id="three decimals"),
        pytest.param(b"P1", purchase(amount=b"1e-3"), Reason.OUT_OF_RANGE, id="a tenth of a cent"),
        pytest.param(b"P1", purchase(amount=10**16), Reason.OUT_OF_RANGE, id="17 digits"),
        pytest.param(b"P1", purchase(amount=b"1e999999999"), Reason.OUT_OF_RANGE, id="huge exponent"),
        pytest.param(b"P1", purchase(amount=b"9" * 5000), Reason.OUT_OF_RANGE, id="more digits than Python converts"),
        pytest.param(b"P1", purchase(currency="eur"), Reason.OUT_OF_RANGE, id="no currency code"),
        pytest.param(b"P1", purchase(currency="EUR\n"), Reason.OUT_OF_RANGE, id="currency with a line break"),
        pytest.param(b"P1", purchase(occurredAtEpochMillis=-1), Reason.OUT_OF_RANGE, id="before 1970"),
        pytest.param(b"P1", purchase(occurredAtEpochMillis=253402300800000), Reason.OUT_OF_RANGE, id="year 10000"),
        pytest.param(b"P2", purchase(), Reason.KEY_MISMATCH, id="another key"),
        pytest.param(b"P2", purchase(currency="USD"), Reason.KEY_MISMATCH, id="key goes before currency"),
        pytest.param(b"P1", purchase(currency="USD"), Reason.CURRENCY_MISMATCH, id="another currency"),
        pytest.param(
            b"P1", purchase(occurredAtEpochMillis=NOW + 300_001), Reason.TIMESTAMP_IN_FUTURE, id="in the future"
        ),
        pytest.param(
            b"P1",
            purchase(purchaseId="P2")[:-1] + b',"purchaseId":"P1","amount":"x"}',
            Reason.WRONG_TYPE,
            id="last name wins",
        ),
    ],
)
def test_purchase_is_refused(key: bytes | None, value: bytes | None, reason: Reason) -> None:
    assert contract.purchase(key, value, NOW, "EUR") == reason


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, ("P1", "C1", "X", 125, "EUR", NOW), id="plain"),
        pytest.param({"productId": ...}, ("P1", "C1", None, 125, "EUR", NOW), id="product left out"),
        pytest.param({"productId": None}, ("P1", "C1", None, 125, "EUR", NOW), id="product null"),
        pytest.param({"amount": 0}, ("P1", "C1", "X", 0, "EUR", NOW), id="nothing paid"),
        pytest.param(
            {"more": b"[1.5,{}]"}, ("P1", "C1", "X", 125, "EUR", NOW), id="unknown fields are kept, not refused"
        ),
        pytest.param({"more": b"9" * 5000}, ("P1", "C1", "X", 125, "EUR", NOW), id="unknown number of any length"),
        pytest.param(
            {"more": b"[" * 255 + b"]" * 255}, ("P1", "C1", "X", 125, "EUR", NOW), id="nested as deeply as allowed"
        ),
        pytest.param({"more": "[" * 300 + '"'}, ("P1", "C1", "X", 125, "EUR", NOW), id="brackets in text are text"),
        pytest.param({"customerId": b'"\\ud83d\\ude00"'}, ("P1", "😀", "X", 125, "EUR", NOW), id="pair of surrogates"),
        pytest.param(
            {"occurredAtEpochMillis": NOW + 300_000},
            ("P1", "C1", "X", 125, "EUR", NOW + 300_000),
            id="five minutes ahead",
        ),
    ],
)
def test_purchase_is_accepted(changes: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert contract.purchase(b"P1", purchase(**changes), NOW, "EUR") == expected


@pytest.mark.parametrize(
    ("text", "cents"),
    [
        pytest.param("0.1", 10, id="one decimal"),
        pytest.param("12.99", 1299, id="two decimals"),
        pytest.param("1.100", 110, id="zeros at the end are no decimals"),
        pytest.param("1e2", 10_000, id="exponent"),
        pytest.param("1050E-2", 1050, id="negative exponent"),
        pytest.param("-0.0", 0, id="minus zero"),
        pytest.param("0e999", 0, id="zero with an exponent"),
        pytest.param("9999999999999999.99", 10**18 - 1, id="the greatest amount"),
        pytest.param("0.29", 29, id="no binary fraction"),
        pytest.param("1." + "0" * 98, 100, id="as long as allowed"),
        pytest.param("1." + "0" * 99, None, id="too long"),
        pytest.param("1e9999999999999999999", None, id="exponent too long"),
        pytest.param("-0.01", None, id="negative"),
    ],
)
def test_amounts_are_exact(text: str, cents: int | None) -> None:
    assert contract.cents_of(contract.NumberText(text)) == cents


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        pytest.param(b"C1", profile(), ("C1", "Ada", "ada@example.org", "1 Old Road", "gold", NOW), id="whole"),
        pytest.param(
            b"C1",
            profile(email=..., address=None, loyaltyStatus=...),
            ("C1", "Ada", None, None, None, NOW),
            id="optional",
        ),
        pytest.param(
            b"C1", profile(name=""), ("C1", "", "ada@example.org", "1 Old Road", "gold", NOW), id="a name may be empty"
        ),
        pytest.param(b"C1", None, ("C1", None, None, None, None, None), id="tombstone"),
        pytest.param(b"", None, Reason.MISSING_KEY, id="tombstone without key"),
        pytest.param(b"\xff", None, Reason.NOT_UTF8, id="tombstone for no text"),
        pytest.param(b"C1", b"", Reason.NOT_JSON, id="empty is not null"),
        pytest.param(b"C1", profile(name=None), Reason.WRONG_TYPE, id="name null"),
        pytest.param(b"C1", profile(updatedAtEpochMillis=...), Reason.MISSING_FIELD, id="no time"),
        pytest.param(b"C1", profile(customerId=""), Reason.OUT_OF_RANGE, id="empty id"),
        pytest.param(b"C2", profile(), Reason.KEY_MISMATCH, id="another key"),
        pytest.param(
            b"C1", profile(updatedAtEpochMillis=NOW + 300_001), Reason.TIMESTAMP_IN_FUTURE, id="in the future"
        ),
    ],
)
def test_profile_is_read(key: bytes, value: bytes | None, expected: object) -> None:
    assert contract.profile(key, value, NOW) == expected


def test_pipeline_and_oracle_read_mutilated_records_alike() -> None:
    """Two parsers, written apart, on records with random faults: same verdict, same reason."""
    chance = random.Random(7)
    odd = [
        b"1",
        b"-1",
        b"1.5",
        b"1.999",
        b"1e2",
        b"1e-3",
        b'""',
        b'"EUR"',
        b'"USD"',
        b"null",
        b"true",
        b"[]",
        b'"\\ud800"',
        b"NaN",
    ]
    records = []
    for offset in range(600):
        value = bytearray(
            purchase(
                **{
                    chance.choice(["purchaseId", "amount", "currency", "occurredAtEpochMillis", "x"]): chance.choice(
                        odd
                    )
                }
            )
        )
        if chance.random() < 0.3:
            value[chance.randrange(len(value))] = chance.choice(b'\xff"\\,:{}[]0 ')
        records.append(RawRecord(0, offset, NOW, chance.choice([b"P1", b"P1", b"P1", b"P2", b""]), bytes(value), ()))
    batch = pa.record_batch(
        {
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "topic": pa.array([PURCHASES] * len(records)),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(range(len(records)), pa.int64()),
            "timestamp": pa.array([NOW * 1000] * len(records), pa.int64()).cast(pa.timestamp("us", "UTC")),
            "headers": pa.nulls(len(records), PARSED_SCHEMA.field("headers").type),
        }
    )
    parsed = parse_batch(batch, purchase_topic=PURCHASES, profile_topic=PROFILES, currency="EUR").to_pylist()
    for record, row in zip(records, parsed, strict=True):
        judged = oracle.judge_purchase(record, "EUR")
        if isinstance(judged, Refused):
            assert row["reason"] == judged.reason, record.value
        else:
            assert (row["reason"], row["customer_id"], row["amount"] * 100) == (
                None,
                judged.customer_id,
                judged.amount,
            ), record.value
    assert {row["reason"] for row in parsed} >= {
        None,
        "not_json",
        "wrong_type",
        "out_of_range",
        "key_mismatch",
        "not_utf8",
    }


# --- the fold ---


def expect(purchases: list[tuple[str, bytes]] = [], profiles: list[tuple[str, bytes | None]] = []) -> oracle.Expected:  # noqa: B006 - not changed
    """Fold records of one partition; a record's Kafka timestamp is NOW plus its offset, profiles 100 later."""
    logs: list[oracle.Log] = [{0: {}}, {0: {}}]
    for offset, (key, value) in enumerate(purchases):
        logs[0][0][offset] = oracle.judge_purchase(RawRecord(0, offset, NOW + offset, key.encode(), value, ()), "EUR")
    for offset, (key, maybe) in enumerate(profiles):
        logs[1][0][offset] = oracle.judge_profile(RawRecord(0, offset, NOW + 100 + offset, key.encode(), maybe, ()))
    return oracle.expect(*logs, purchase_topic=PURCHASES, profile_topic=PROFILES, currency="EUR")


def test_first_record_of_a_purchase_counts_and_repeats_do_not() -> None:
    expected = expect(
        [
            ("P1", purchase()),
            ("P1", purchase(amount=b"1.250", more=1)),
            ("P1", purchase(amount=2)),
            ("P1", purchase(productId=None)),
            ("P2", purchase(purchaseId="P2", amount=b"0.10", occurredAtEpochMillis=5)),
            ("P1", b"{"),
        ]
    )
    assert expected.purchases["P1"].offset == 0
    assert expected.summaries["C1"] == ("C1", 2, 135, 5, NOW, NOW + 4)
    assert {at[2]: refused.reason for at, refused in expected.quarantine.items()} == {
        2: Reason.CONFLICTING_DUPLICATE,
        3: Reason.CONFLICTING_DUPLICATE,
        5: Reason.NOT_JSON,
    }
    assert expected.outcomes[PURCHASES] == {"read": 6, "accepted": 2, "quarantined": 3, "duplicate": 1, "stale": 0}


def test_the_lowest_offset_counts_in_whatever_order_records_were_found() -> None:
    records = [
        oracle.judge_purchase(RawRecord(0, offset, NOW, b"P1", purchase(amount=offset), ()), "EUR")
        for offset in range(3)
    ]
    counted, refused, _ = oracle.fold_purchases({0: {offset: records[offset] for offset in (2, 0, 1)}})
    assert (counted["P1"].offset, [record.offset for record in refused]) == (0, [1, 2])


@pytest.mark.parametrize(
    ("updates", "current", "outcomes"),
    [
        pytest.param([(1, "a"), (2, "b")], (1, "b"), "accepted accepted", id="newer wins"),
        pytest.param([(2, "b"), (1, "a")], (0, "b"), "accepted stale", id="older changes nothing"),
        pytest.param([(1, "a"), (1, "b")], (1, "b"), "accepted accepted", id="equal times: the later offset wins"),
        pytest.param(
            [(1, "a"), (1, "a")], (0, "a"), "accepted duplicate", id="a repeat keeps the first record's place"
        ),
        pytest.param([(1, "a"), (2, "a")], (1, "a"), "accepted accepted", id="only the time is new"),
        pytest.param([(1, "a"), (1, "b"), (1, "a")], (2, "a"), "accepted accepted accepted", id="there and back"),
        pytest.param([(5, "a"), None, (1, "b")], (2, "b"), "accepted accepted accepted", id="afresh after a tombstone"),
        pytest.param(
            [(5, "a"), None, (5, "a")], (2, "a"), "accepted accepted accepted", id="no repeat across a tombstone"
        ),
        pytest.param([(5, "a"), (1, "b"), None], None, "accepted stale accepted", id="tombstone ends it"),
        pytest.param([None, None], None, "accepted accepted", id="tombstones for nobody"),
    ],
)
def test_profile_order(updates: list[tuple[int, str] | None], current: tuple[int, str] | None, outcomes: str) -> None:
    values = [None if update is None else profile(updatedAtEpochMillis=update[0], name=update[1]) for update in updates]
    expected = expect(profiles=[("C1", value) for value in values])
    held = expected.profiles.get("C1")
    assert (held and (held.offset, held.name)) == current
    words = outcomes.split()
    assert expected.outcomes[PROFILES] == {"read": len(words), "quarantined": 0} | {
        word: words.count(word) for word in ("accepted", "duplicate", "stale")
    }
    assert ("C1" in expected.gold) == (current is not None)
    if current is not None:
        assert expected.gold["C1"].as_of == NOW + 100 + current[0]


@pytest.mark.parametrize("order", list(permutations(["old", "purchase", "tombstone", "new"])), ids="-".join)
def test_every_order_of_profile_purchase_tombstone_profile(order: tuple[str, ...]) -> None:
    values = {
        "old": profile(updatedAtEpochMillis=1, name="old"),
        "new": profile(updatedAtEpochMillis=2, name="new"),
        "tombstone": None,
    }
    on_profile_topic = [name for name in order if name != "purchase"]
    expected = expect([("P1", purchase())], [("C1", values[name]) for name in on_profile_topic])
    survivors = on_profile_topic[on_profile_topic.index("tombstone") + 1 :]
    if not survivors:
        assert expected.gold == {}
    else:
        row = expected.gold["C1"]
        name = "new" if "new" in survivors else "old"  # the greatest update since the tombstone
        as_of = NOW + 100 + on_profile_topic.index(name)
        updated_at = {"old": 1, "new": 2}[name]
        who = ("C1", name, "ada@example.org", "1 Old Road", "gold", updated_at)
        assert row == (*who, 1, 125, "EUR", NOW, NOW, as_of)
    assert expected.summaries["C1"].purchase_count == 1


def test_as_of_is_the_newest_record_that_the_row_reflects() -> None:
    bought = [("P1", purchase()), ("P1", purchase())]  # the repeat, one millisecond later, does not count
    assert expect(bought, [("C1", profile())]).gold["C1"].as_of == NOW + 100
    logs: list[oracle.Log] = [
        {0: {0: oracle.judge_purchase(RawRecord(0, 0, NOW + 500, b"P1", purchase(), ()), "EUR")}},
        {0: {0: oracle.judge_profile(RawRecord(0, 0, NOW, b"C1", profile(), ()))}},
    ]
    assert (
        oracle.expect(*logs, purchase_topic=PURCHASES, profile_topic=PROFILES, currency="EUR").gold["C1"].as_of
        == NOW + 500
    )


def test_totals_stay_exact_beyond_what_a_float_holds() -> None:
    records = [(f"P{n}", purchase(purchaseId=f"P{n}", amount=b"0.07")) for n in range(1_000)]
    greatest = ("Q", purchase(purchaseId="Q", amount=b"9999999999999999.99"))
    assert expect([*records, greatest]).summaries["C1"].total_amount == 10**18 - 1 + 7_000


# --- a small world, right in every detail ---

TRACE: Headers = (("traceparent", b"00-1-2-01"),)
OUTCOMES = ("read", "accepted", "quarantined", "duplicate", "stale")

VALUES: dict[tuple[str, int, int], tuple[bytes | None, bytes | None, Headers]] = {
    (PURCHASES, 0, 0): (b"P1", purchase(amount=10), TRACE),
    (PURCHASES, 0, 1): (b"P1", purchase(amount=10), ()),  # duplicate
    (PURCHASES, 0, 2): (b"P1", purchase(amount=11), ()),  # conflicting duplicate
    (PURCHASES, 0, 3): (b"P9", b"{", ()),  # not JSON
    (PURCHASES, 1, 0): (
        b"P2",
        purchase(purchaseId="P2", amount=b"0.10", productId=None, occurredAtEpochMillis=NOW - 50),
        (),
    ),
    (PURCHASES, 1, 1): (b"P3", purchase(purchaseId="P3", customerId="C2", amount=b"5.25"), ()),  # nobody's profile
    (PROFILES, 0, 0): (b"C1", profile(address="Hidden Lane 1", updatedAtEpochMillis=NOW - 9), ()),
    (PROFILES, 0, 1): (b"C1", profile(address="Hidden Lane 2", updatedAtEpochMillis=NOW - 5), ()),  # current
    (PROFILES, 0, 2): (b"C1", profile(address="Hidden Lane 1", updatedAtEpochMillis=NOW - 9), ()),  # stale
    (PROFILES, 0, 3): (b"C3", profile(customerId="C3", name="Grace", email=None, updatedAtEpochMillis=NOW - 7), ()),
    (PROFILES, 0, 4): (b"C1", profile(address="Hidden Lane 2", updatedAtEpochMillis=NOW - 5), ()),  # duplicate
    (PROFILES, 1, 0): (b"C4", profile(customerId="C4", name="Edsger"), ()),
    (PROFILES, 1, 1): (b"C4", None, ()),
    (PROFILES, 1, 2): (None, profile(), ()),  # no key
}
PERSONAL = ("Ada", "Grace", "Edsger", "ada@example.org", "Hidden Lane", "1 Old Road", "Mallory")

Row = dict[str, Any]


def at(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def stamp(partition: int, offset: int) -> int:
    return NOW + 10 * offset + partition


def landed(topic: str, partition: int, offset: int, **columns: Any) -> Row:
    key, value, headers = VALUES[topic, partition, offset]
    return columns | {
        "key": key,
        "value": value,
        "headers": [{"key": name, "value": content} for name, content in headers] or None,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "kafka_timestamp": at(stamp(partition, offset)),
    }


def on_kafka(topic: str, partition: int) -> list[RawRecord]:
    at_home = {offset: record for (t, p, offset), record in VALUES.items() if (t, p) == (topic, partition)}
    return [
        RawRecord(partition, offset, stamp(partition, offset), key, value, headers)
        for offset, (key, value, headers) in at_home.items()
    ]


def bought(purchase_id: str, customer_id: str, product_id: str | None, amount: str, occurred_at: int = NOW) -> Row:
    return {
        "purchase_id": purchase_id,
        "customer_id": customer_id,
        "product_id": product_id,
        "amount": Decimal(amount),
        "currency": "EUR",
        "occurred_at": at(occurred_at),
    }


def person(
    customer_id: str,
    name: str,
    address: str = "1 Old Road",
    updated_at: int = NOW,
    email: str | None = "ada@example.org",
) -> Row:
    return {
        "customer_id": customer_id,
        "name": name,
        "email": email,
        "address": address,
        "loyalty_status": "gold",
        "updated_at": at(updated_at),
    }


def placed(columns: Row, partition: int, offset: int) -> Row:
    return columns | {"partition": partition, "offset": offset, "kafka_timestamp": at(stamp(partition, offset))}


P1, P2, P3 = (
    bought("P1", "C1", "X", "10.00"),
    bought("P2", "C1", None, "0.10", NOW - 50),
    bought("P3", "C2", "X", "5.25"),
)
C1_BEFORE, C1 = person("C1", "Ada", "Hidden Lane 1", NOW - 9), person("C1", "Ada", "Hidden Lane 2", NOW - 5)
C3, C4 = person("C3", "Grace", updated_at=NOW - 7, email=None), person("C4", "Edsger")
NOBODY = dict.fromkeys(C1)


def summary(customer_id: str, count: int, total: str, first: int, last: int, newest: int) -> Row:
    return {
        "customer_id": customer_id,
        "purchase_count": count,
        "total_amount": Decimal(total),
        "first_purchase_at": at(first),
        "last_purchase_at": at(last),
        "last_kafka_timestamp": at(newest),
    }


def activity(who: Row, count: int, total: str, first: int | None, last: int | None, *, version: int, as_of: int) -> Row:
    return {
        **{name: who[name] for name in ("customer_id", "name", "email", "address", "loyalty_status")},
        "profile_updated_at": who["updated_at"],
        "purchase_count": count,
        "total_amount": Decimal(total),
        "currency": "EUR",
        "first_purchase_at": None if first is None else at(first),
        "last_purchase_at": None if last is None else at(last),
        "view_version": version,
        "as_of": at(as_of),
    }


C1_ROW = activity(C1, 2, "10.10", NOW - 50, NOW, version=12, as_of=stamp(0, 1))
C3_ROW = activity(C3, 0, "0.00", None, None, version=11, as_of=stamp(0, 3))


def published(row: Row, **changes: Any) -> tuple[bytes, bytes]:
    """A gold row as the view topic has it."""

    def millis(column: str) -> int | None:
        return None if row[column] is None else round(row[column].timestamp() * 1000)

    fields = {
        "customerId": row["customer_id"],
        "name": row["name"],
        "email": row["email"],
        "address": row["address"],
        "loyaltyStatus": row["loyalty_status"],
        "profileUpdatedAtEpochMillis": millis("profile_updated_at"),
        "purchaseCount": row["purchase_count"],
        "totalAmount": str(row["total_amount"]).encode(),
        "currency": row["currency"],
        "firstPurchaseAtEpochMillis": millis("first_purchase_at"),
        "lastPurchaseAtEpochMillis": millis("last_purchase_at"),
        "viewVersion": row["view_version"],
        "asOfEpochMillis": millis("as_of"),
    }
    return row["customer_id"].encode(), document(**fields | changes)


RAW = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "kafka_timestamp": pa.timestamp("us", "UTC"),
}
TYPES = RAW | {
    "amount": pa.decimal128(18, 2),
    "total_amount": pa.decimal128(18, 2),
    "purchase_count": pa.int64(),
    "view_version": pa.int64(),
    "is_tombstone": pa.bool_(),
    "is_gone": pa.bool_(),
    **dict.fromkeys(
        [
            "occurred_at",
            "updated_at",
            "profile_updated_at",
            "first_purchase_at",
            "last_purchase_at",
            "last_kafka_timestamp",
            "as_of",
        ],
        pa.timestamp("us", "UTC"),
    ),
}


def commit(query: str, batch_id: int, counts: Mapping[str, Mapping[str, int]]) -> Row:
    return {"query": query, "generation": "g1", "batch_id": batch_id, "counts": counts}


@dataclass
class World:
    """Rows of each table, commit metadata, and Kafka's records: consistent until a test damages them."""

    tables: dict[Table, list[Row]] = field(
        default_factory=lambda: {
            Table.PURCHASE_EVENTS: [
                landed(PURCHASES, 0, 0, **P1),
                landed(PURCHASES, 0, 1, **P1),
                landed(PURCHASES, 0, 2, **P1 | {"amount": Decimal("11.00")}),
                landed(PURCHASES, 1, 0, **P2),
                landed(PURCHASES, 1, 1, **P3),
            ],
            Table.PROFILE_EVENTS: [
                landed(PROFILES, 0, 0, **C1_BEFORE, is_tombstone=False),
                landed(PROFILES, 0, 1, **C1, is_tombstone=False),
                landed(PROFILES, 0, 2, **C1_BEFORE, is_tombstone=False),
                landed(PROFILES, 0, 3, **C3, is_tombstone=False),
                landed(PROFILES, 0, 4, **C1, is_tombstone=False),
                landed(PROFILES, 1, 0, **C4, is_tombstone=False),
                landed(PROFILES, 1, 1, **NOBODY | {"customer_id": "C4"}, is_tombstone=True),
            ],
            Table.QUARANTINE: [
                landed(PURCHASES, 0, 3, reason="not_json"),
                landed(PURCHASES, 0, 2, reason="conflicting_duplicate"),
                landed(PROFILES, 1, 2, reason="missing_key"),
            ],
            Table.PURCHASES: [placed(P1, 0, 0), placed(P2, 1, 0), placed(P3, 1, 1)],
            Table.PROFILE_CHANGES: [
                placed(C1_BEFORE, 0, 0) | {"is_tombstone": False},
                placed(C1, 0, 1) | {"is_tombstone": False},
                placed(C3, 0, 3) | {"is_tombstone": False},
                placed(C4, 1, 0) | {"is_tombstone": False},
                placed(NOBODY | {"customer_id": "C4"}, 1, 1) | {"is_tombstone": True},
            ],
            Table.SUMMARIES: [
                summary("C1", 2, "10.10", NOW - 50, NOW, stamp(1, 0)),
                summary("C2", 1, "5.25", NOW, NOW, stamp(1, 1)),
            ],
            Table.PROFILES: [placed(C1, 0, 1), placed(C3, 0, 3)],
            Table.ACTIVITY_CHANGES: [
                C1_ROW | {"address": "Hidden Lane 1", "view_version": 10, "is_gone": False},
                C3_ROW | {"is_gone": False},
                C1_ROW | {"is_gone": False},
                C3_ROW | {"customer_id": "C4", "view_version": 11, "is_gone": False},
                C3_ROW | {"customer_id": "C4", "view_version": 12, "is_gone": True},
            ],
            Table.ACTIVITY: [C1_ROW, C3_ROW],
        }
    )
    commits: dict[Table, list[Row]] = field(
        default_factory=lambda: {
            Table.PURCHASE_EVENTS: [
                commit(
                    "bronze",
                    0,
                    {PURCHASES: {"read": 6, "accepted": 5, "quarantined": 1}, PROFILES: {"read": 7, "accepted": 7}},
                )
            ],
            Table.PROFILE_EVENTS: [
                commit(
                    "bronze",
                    0,
                    {PURCHASES: {"read": 6, "accepted": 5, "quarantined": 1}, PROFILES: {"read": 7, "accepted": 7}},
                ),
                commit("bronze", 1, {PROFILES: {"read": 1, "quarantined": 1}}),
            ],
            Table.QUARANTINE: [commit("silver", 0, {PURCHASES: {"accepted": 3, "quarantined": 1, "duplicate": 1}})],
            Table.PURCHASES: [
                commit("silver", 0, {PURCHASES: {"accepted": 3}})
            ],  # counts grow while the batch is written
            Table.PROFILE_CHANGES: [
                commit(
                    "silver",
                    0,
                    {
                        PURCHASES: {"accepted": 3, "quarantined": 1, "duplicate": 1},
                        PROFILES: {"accepted": 5, "duplicate": 1, "stale": 1},
                    },
                )
            ],
        }
    )
    kafka: dict[str, dict[int, list[RawRecord]]] = field(
        default_factory=lambda: {
            **{
                topic: {partition: on_kafka(topic, partition) for partition in (0, 1)}
                for topic in (PURCHASES, PROFILES)
            },
            VIEW: {
                0: [
                    RawRecord(0, 0, NOW, *published(C1_ROW | {"address": "Hidden Lane 1", "view_version": 10}), ()),
                    RawRecord(0, 1, NOW, *published(C3_ROW), ()),
                    RawRecord(0, 2, NOW, *published(C1_ROW), ()),
                ],
                1: [
                    RawRecord(1, 0, NOW, *published(activity(C4, 0, "0.00", None, None, version=11, as_of=NOW)), ()),
                    RawRecord(1, 1, NOW, b"C4", None, ()),
                ],
            },
        }
    )
    begin: dict[str, int] = field(default_factory=dict)
    end: dict[str, int] = field(default_factory=dict)

    def write(self, lake: str, right_lake: Path | None = None) -> None:
        """Write the Delta tables: one commit for each metadata, the first with the rows. Copy those that are right."""
        right = World()
        for table, rows in self.tables.items():
            if right_lake is not None and (rows, self.commits.get(table)) == (
                right.tables[table],
                right.commits.get(table),
            ):
                shutil.copytree(right_lake / table.value, table_path(lake, table))
                continue
            names = rows[0].keys() if rows else {}
            data = pa.table(
                {name: pa.array([row[name] for row in rows], TYPES.get(name, pa.string())) for name in names}
            )
            notes = [json.dumps(note) for note in self.commits.get(table, [])] or ["somebody else's note"]
            for number, note in enumerate(notes):
                write_deltalake(
                    table_path(lake, table),
                    data.slice(0, None if number == 0 else 0),
                    mode="append",
                    commit_properties=CommitProperties(custom_metadata={"userMetadata": note}),
                )

    def serve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in for Kafka."""

        def ends(_: Settings, topic: str) -> dict[int, int]:
            return {
                p: self.end.get(topic, records[-1].offset + 1 if records else 0)
                for p, records in self.kafka[topic].items()
            }

        def read(_: Settings, topic: str, start: dict[int, int], end: dict[int, int]) -> Iterator[RawRecord]:
            for partition, records in self.kafka[topic].items():
                yield from (record for record in records if start[partition] <= record.offset < end[partition])

        monkeypatch.setattr(
            kafka_input, "begins", lambda _, topic: dict.fromkeys(self.kafka[topic], self.begin.get(topic, 0))
        )
        monkeypatch.setattr(kafka_input, "ends", ends)
        monkeypatch.setattr(kafka_input, "read", read)
        monkeypatch.setattr(kafka_input, "is_compacted", lambda _, topic: topic == PROFILES)

    def row(self, table: Table, position: int = 0) -> Row:
        """A copy of a row that may be changed, put in the place of the row."""
        self.tables[table][position] = dict(self.tables[table][position])
        return self.tables[table][position]

    def publish(self, row: Row | None, key: str = "", partition: int = 0, **changes: Any) -> None:
        """Add a record to the view topic; no row deletes the key."""
        offset = len(self.kafka[VIEW][partition])
        content: tuple[bytes, bytes | None] = (key.encode(), None) if row is None else published(row, **changes)
        self.kafka[VIEW][partition].append(RawRecord(partition, offset, NOW, content[0], content[1], ()))


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


# --- Kafka ---


class Script:
    """A consumer that hands out prepared batches."""

    def __init__(self, *batches: list[Any]) -> None:
        self.batches = list(batches)
        self.unassigned: list[int] = []
        self.closed = False

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = [(partition.partition, partition.offset) for partition in partitions]

    def consume(self, _records: int, _timeout: float) -> list[Any]:
        return self.batches.pop(0) if self.batches else []

    def incremental_unassign(self, partitions: list[Any]) -> None:
        self.unassigned += [partition.partition for partition in partitions]

    def close(self) -> None:
        self.closed = True


def message(partition: int, offset: int, error: KafkaError | None = None) -> Any:
    return SimpleNamespace(
        error=lambda: error,
        topic=lambda: PURCHASES,
        partition=lambda: partition,
        offset=lambda: offset,
        timestamp=lambda: (1, NOW),
        key=lambda: b"P",
        value=lambda: b"{}",
        headers=lambda: None,
    )


def read(
    script: Script, settings: Settings, monkeypatch: pytest.MonkeyPatch, start: dict[int, int], end: dict[int, int]
) -> list[tuple[int, int]]:
    monkeypatch.setattr(kafka, "reader", lambda _: script)
    return [(raw.partition, raw.offset) for raw in kafka_input.read(settings, PURCHASES, start, end)]


def test_reading_stops_at_the_ends_that_were_noted(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(
        [message(0, 4), message(1, 0)],
        [message(0, 5), message(0, 6)],
        [message(1, 1, KafkaError(KafkaError._PARTITION_EOF))],
    )
    # Partition 1 ends with a transaction's marker: offset 1 holds no record, and only the end of partition tells.
    assert read(script, settings, monkeypatch, {0: 4, 1: 0, 2: 9}, {0: 6, 1: 2, 2: 9}) == [(0, 4), (1, 0), (0, 5)]
    assert (script.assigned, script.unassigned, script.closed) == ([(0, 4), (1, 0)], [0], True)


def test_nothing_to_read_needs_no_consumer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(Script(), settings, monkeypatch, {0: 3}, {0: 3}) == []


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        pytest.param(KafkaError._AUTO_OFFSET_RESET, TransientError, id="retention was faster"),
        pytest.param(KafkaError.TOPIC_AUTHORIZATION_FAILED, BrokerUnavailable, id="not allowed"),
    ],
)
def test_faults_end_the_reading(
    code: int, raised: type[Exception], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Script([message(0, 0, KafkaError(code))])
    with pytest.raises(raised):
        read(script, settings, monkeypatch, {0: 0}, {0: 1})
    assert script.closed


def test_a_silent_broker_is_given_up(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_input, "SILENCE_SECONDS", 0.0)
    with pytest.raises(BrokerUnavailable, match="no record and no end of partition"):
        read(Script(), settings, monkeypatch, {0: 0}, {0: 1})


# --- the command ---


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command on a report that has these checks."""

    def run_on(checks: list[Check], *arguments: str, **changes: Any) -> Result:
        report = Report(
            checks,
            records={PURCHASES: 1_469_307, PROFILES: 801},
            from_lake={PURCHASES: 0, PROFILES: 0},
            purchases=1_469_307,
            customers=801,
            turnover=453_218_905,
            currency="EUR",
            sample=None,
            growth=0,
            seconds=41.26,
        )
        monkeypatch.setattr(command, "run_checks", lambda *_, **__: replace(report, **changes))
        app = typer.Typer()
        app.command()(command.verify)
        return CliRunner().invoke(app, list(arguments), obj=settings)

    return run_on


EQUAL = Check("gold", 801, 801, 0)
DIFFERENT = Check("silver [x]", 3, 2, 7, ("C1 differs: name", "C2 [/] is missing"))
IMPOSSIBLE = Check("accounting", {"read": 1}, {}, 0, impossible="the log was cleaned")


@pytest.mark.parametrize(
    ("checks", "changes", "last_line", "code"),
    [
        pytest.param([EQUAL], {}, "equal", 0, id="equal"),
        pytest.param([EQUAL, DIFFERENT], {}, "7 differences", 1, id="differences"),
        pytest.param([Check("gold", 1, 0, 1, ("C1 is missing",))], {}, "1 difference", 1, id="one difference"),
        pytest.param([EQUAL, IMPOSSIBLE], {}, "equal (1 check was not possible)", 0, id="not possible"),
        pytest.param(
            [DIFFERENT],
            {"growth": 1200},
            "7 differences; 1,200 records arrived meanwhile: traffic is running: stop it and verify again",
            1,
            id="traffic",
        ),
    ],
)
def test_the_last_line_is_the_verdict(
    checks: list[Check], changes: Row, last_line: str, code: int, run: Callable[..., Result]
) -> None:
    result = run(checks, **changes)
    assert (result.stdout.splitlines()[-1], result.exit_code) == (last_line, code)


def test_the_table_names_checks_examples_and_figures(run: Callable[..., Result]) -> None:
    printed = run([EQUAL, DIFFERENT, IMPOSSIBLE], from_lake={PURCHASES: 0, PROFILES: 12}, sample=3).stdout
    for part in (
        "silver [x]: C2 [/] is missing",
        "silver [x]: and 5 more",
        "accounting: not possible: the log was cleaned",
        "1,470,108 records read from Kafka",
        "801 customers in the view, 1,469,307 purchases counted, turnover 4,532,189.05 EUR",
        "because Kafka has removed them: customer-profile-state 12",
        "a sample of 3 customers",
    ):
        assert part in printed


def test_json_is_for_machines(run: Callable[..., Result]) -> None:
    result = run([EQUAL, DIFFERENT], "--json")
    data = json.loads(result.stdout)
    assert (result.exit_code, data["verdict"], data["differences"], data["turnover"]) == (
        1,
        "7 differences",
        7,
        "4532189.05",
    )
    assert [check["ok"] for check in data["checks"]] == [True, False]
