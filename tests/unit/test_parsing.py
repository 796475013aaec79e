"""Bronze's parser: each reason, their order, and that no bytes whatever get past the closed list."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from customer_activity.bronze.parsing import PARSED_SCHEMA, parse_batch
from customer_activity.catalog import Reason
from customer_activity.contracts import CUSTOMER_PROFILE, PURCHASE_EVENT, Refusal, examine

PURCHASES = "purchase-events"
PROFILES = "customer-profile-state"
KAFKA_TIME = datetime(2017, 7, 14, 2, 40, tzinfo=UTC)
KAFKA_MILLIS = 1_500_000_000_000
FIVE_MINUTES = 300_000
PURCHASE_COLUMNS = ("purchase_id", "customer_id", "product_id", "amount", "currency", "occurred_at")
PROFILE_COLUMNS = ("customer_id", "name", "email", "address", "loyalty_status", "updated_at", "is_tombstone")

KAFKA_SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        # Spark names the inner field so.
        "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    }
)

# Known by silver and by publish, not by the record alone.
LATER_REASONS = {Reason.CONFLICTING_DUPLICATE, Reason.TOO_LARGE_TO_PUBLISH}


class Record(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None


def kafka_batch(records: Sequence[Record]) -> pa.RecordBatch:
    """Build a batch as Spark's Kafka source gives it, from offset 100 on."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": record.topic,
            "partition": 3,
            "offset": 100 + row,
            "timestamp": KAFKA_TIME,
            "timestampType": 0,
            "headers": [{"key": "traceparent", "value": b"00-\xff"}] if row % 2 == 0 else None,
        }
        for row, record in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=KAFKA_SCHEMA)


def parse(batch: pa.RecordBatch) -> pa.RecordBatch:
    return parse_batch(batch, purchase_topic=PURCHASES, profile_topic=PROFILES, currency="EUR")


def parse_one(record: Record) -> dict[str, Any]:
    (row,) = parse(kafka_batch([record])).to_pylist()
    parsed: dict[str, Any] = row
    return parsed


GOOD_PURCHASE: dict[str, str | None] = {
    "purchaseId": '"P-1"',
    "customerId": '"C-1"',
    "productId": '"A-1"',
    "amount": "12.34",
    "currency": '"EUR"',
    "occurredAtEpochMillis": str(KAFKA_MILLIS),
}
GOOD_PROFILE: dict[str, str | None] = {
    "customerId": '"C-1"',
    "name": '"Ada"',
    "email": '"ada@example.org"',
    "address": '"Main Street 1"',
    "loyaltyStatus": '"gold"',
    "updatedAtEpochMillis": str(KAFKA_MILLIS),
}


def text_of(fields: dict[str, str | None]) -> bytes:
    """Build an object from raw JSON texts; a field given as None is left out."""
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items() if value is not None) + "}").encode()


def purchase(key: bytes | None = b"P-1", **changes: str | None) -> Record:
    return Record(PURCHASES, key, text_of(GOOD_PURCHASE | changes))


def profile(key: bytes | None = b"C-1", **changes: str | None) -> Record:
    return Record(PROFILES, key, text_of(GOOD_PROFILE | changes))


def raw_purchase(value: bytes | None, key: bytes | None = b"P-1") -> Record:
    return Record(PURCHASES, key, value)


def raw_profile(value: bytes | None, key: bytes | None = b"C-1") -> Record:
    return Record(PROFILES, key, value)


GOOD = text_of(GOOD_PURCHASE)
OBJECT, NUMBER, INTEGER = "expected an object", "expected a number", "expected an integer"


def test_good_purchase() -> None:
    assert parse_one(purchase()) == {
        "key": b"P-1",
        "value": GOOD,
        "headers": [{"key": "traceparent", "value": b"00-\xff"}],
        "topic": PURCHASES,
        "partition": 3,
        "offset": 100,
        "kafka_timestamp": KAFKA_TIME,
        "reason": None,
        "detail": None,
        "purchase_id": "P-1",
        "customer_id": "C-1",
        "product_id": "A-1",
        "amount": Decimal("12.34"),
        "currency": "EUR",
        "occurred_at": KAFKA_TIME,
        "name": None,
        "email": None,
        "address": None,
        "loyalty_status": None,
        "updated_at": None,
        "is_tombstone": None,
    }


def test_good_profile() -> None:
    parsed = parse_one(profile())

    assert {column: parsed[column] for column in ("reason", "detail", *PROFILE_COLUMNS)} == {
        "reason": None,
        "detail": None,
        "customer_id": "C-1",
        "name": "Ada",
        "email": "ada@example.org",
        "address": "Main Street 1",
        "loyalty_status": "gold",
        "updated_at": KAFKA_TIME,
        "is_tombstone": False,
    }
    assert {parsed[column] for column in PURCHASE_COLUMNS if column != "customer_id"} == {None}


def test_tombstone_has_the_key_as_customer_and_nothing_else() -> None:
    parsed = parse_one(raw_profile(None, key="Zoë".encode()))

    assert (parsed["reason"], parsed["customer_id"], parsed["is_tombstone"]) == (None, "Zoë", True)
    assert {
        parsed[column]
        for column in (*PURCHASE_COLUMNS, *PROFILE_COLUMNS)
        if column not in ("customer_id", "is_tombstone")
    } == {None}


@pytest.mark.parametrize(
    ("record", "column", "expected"),
    [
        pytest.param(purchase(productId=None), "product_id", None, id="optional field absent"),
        pytest.param(purchase(productId="null"), "product_id", None, id="optional field null"),
        pytest.param(purchase(productId='""'), "product_id", "", id="optional field empty"),
        pytest.param(profile(email=None, address="null"), "email", None, id="optional profile fields"),
        pytest.param(profile(name='""'), "name", "", id="a name may be empty"),
        pytest.param(purchase(more='{"a": [1, 1e400, "x"]}'), "purchase_id", "P-1", id="unknown field"),
        pytest.param(purchase(more="1" * 5000), "purchase_id", "P-1", id="unknown number of any size"),
        pytest.param(purchase(more="[" * 200 + "]" * 200), "purchase_id", "P-1", id="unknown field nested 200 deep"),
        pytest.param(
            purchase(more=json.dumps("[{" * 9000)), "purchase_id", "P-1", id="brackets in text are no nesting"
        ),
        pytest.param(raw_purchase(b" \r\n\t" + GOOD + b"\n "), "purchase_id", "P-1", id="white space around"),
        pytest.param(
            raw_purchase(GOOD.replace(b"purchaseId", b"purchase\\u0049d")),
            "purchase_id",
            "P-1",
            id="escaped field name",
        ),
        pytest.param(
            purchase(customerId='"\\u00e9\\ud83d\\ude00"'), "customer_id", "é😀", id="escapes and surrogate pairs"
        ),
        pytest.param(purchase(customerId='"a\\u0000b"'), "customer_id", "a\0b", id="escaped NUL"),
        pytest.param(
            purchase(key="Zoë".encode(), purchaseId='"Zo\\u00eb"'), "purchase_id", "Zoë", id="key equals the id as text"
        ),
        pytest.param(
            raw_purchase(b'{"amount":"x",' + GOOD[1:]),
            "amount",
            Decimal("12.34"),
            id="repeated field: the last one counts",
        ),
        pytest.param(
            raw_purchase(GOOD[:-1] + b',"amount":2}'),
            "amount",
            Decimal("2.00"),
            id="repeated good field: the last one counts",
        ),
        pytest.param(purchase(amount="0"), "amount", Decimal("0.00"), id="amount 0"),
        pytest.param(purchase(amount="-0"), "amount", Decimal("0.00"), id="amount -0"),
        pytest.param(purchase(amount="-0.0e5"), "amount", Decimal("0.00"), id="amount -0.0e5"),
        pytest.param(purchase(amount="1e2"), "amount", Decimal("100.00"), id="amount with exponent"),
        pytest.param(purchase(amount="1.5E-1"), "amount", Decimal("0.15"), id="amount with negative exponent"),
        pytest.param(purchase(amount="1.5000000000"), "amount", Decimal("1.50"), id="amount with zeros after it"),
        pytest.param(purchase(amount="0.29"), "amount", Decimal("0.29"), id="amount no float holds"),
        pytest.param(
            purchase(amount="9999999999999999.99"), "amount", Decimal("9999999999999999.99"), id="greatest amount"
        ),
        pytest.param(purchase(occurredAtEpochMillis="0"), "occurred_at", datetime(1970, 1, 1, tzinfo=UTC), id="time 0"),
        pytest.param(
            purchase(occurredAtEpochMillis=str(KAFKA_MILLIS + FIVE_MINUTES)),
            "occurred_at",
            KAFKA_TIME + timedelta(minutes=5),
            id="exactly 5 minutes ahead",
        ),
        pytest.param(
            purchase(occurredAtEpochMillis="1499999999999"),
            "occurred_at",
            KAFKA_TIME - timedelta(milliseconds=1),
            id="milliseconds kept",
        ),
    ],
)
def test_accepted(record: Record, column: str, expected: object) -> None:
    parsed = parse_one(record)

    assert (parsed["reason"], parsed["detail"], parsed[column]) == (None, None, expected)


@pytest.mark.parametrize(
    ("record", "reason", "detail"),
    [
        pytest.param(purchase(key=None), Reason.MISSING_KEY, "key: missing or empty", id="purchase without key"),
        pytest.param(purchase(key=b""), Reason.MISSING_KEY, "key: missing or empty", id="purchase with empty key"),
        pytest.param(profile(key=None), Reason.MISSING_KEY, "key: missing or empty", id="profile without key"),
        pytest.param(
            raw_profile(None, key=None), Reason.MISSING_KEY, "key: missing or empty", id="tombstone without key"
        ),
        pytest.param(
            raw_profile(None, key=b""), Reason.MISSING_KEY, "key: missing or empty", id="tombstone with empty key"
        ),
        pytest.param(raw_purchase(None), Reason.MISSING_VALUE, "value: missing", id="purchase without value"),
        pytest.param(purchase(key=b"P-\xff"), Reason.NOT_UTF8, "key: not UTF-8 at byte 2", id="key is not UTF-8"),
        pytest.param(
            raw_profile(None, key=b"\xc3"),
            Reason.NOT_UTF8,
            "key: not UTF-8 at byte 0",
            id="tombstone's key is not UTF-8",
        ),
        pytest.param(
            raw_purchase(GOOD.replace(b"C-1", b"\xe9")),
            Reason.NOT_UTF8,
            "value: not UTF-8 at byte 34",
            id="Latin-1 text",
        ),
        pytest.param(
            raw_purchase(GOOD[:-1] + b',"x":"\xff"}'),
            Reason.NOT_UTF8,
            "value: not UTF-8",
            id="unknown field is not UTF-8",
        ),
        pytest.param(
            raw_purchase(GOOD.replace(b"C-1", b"\xed\xa0\x80")),
            Reason.NOT_UTF8,
            "value: not UTF-8",
            id="surrogate in bytes",
        ),
        pytest.param(
            raw_purchase(GOOD.replace(b"C-1", b"\xc0\x80")), Reason.NOT_UTF8, "value: not UTF-8", id="overlong form"
        ),
        pytest.param(
            raw_purchase(GOOD.decode().encode("utf-16")), Reason.NOT_UTF8, "value: not UTF-8 at byte 0", id="UTF-16"
        ),
        pytest.param(
            purchase(customerId='"\\ud800"'), Reason.NOT_UTF8, "value: a string holds half", id="high surrogate alone"
        ),
        pytest.param(
            purchase(customerId='"\\udc00x"'), Reason.NOT_UTF8, "value: a string holds half", id="low surrogate alone"
        ),
        pytest.param(
            purchase(more='"\\udc00\\ud800"'),
            Reason.NOT_UTF8,
            "value: a string holds half",
            id="surrogates the wrong way round, unknown field",
        ),
        pytest.param(
            profile(name='"\\ud83d\\u0041"'),
            Reason.NOT_UTF8,
            "value: a string holds half",
            id="half a pair in a profile",
        ),
        pytest.param(raw_purchase(b""), Reason.NOT_JSON, "value: ", id="empty value"),
        pytest.param(raw_profile(b""), Reason.NOT_JSON, "value: ", id="empty profile is no tombstone"),
        pytest.param(raw_purchase(b" "), Reason.NOT_JSON, "value: ", id="white space only"),
        pytest.param(raw_purchase(GOOD[:-1]), Reason.NOT_JSON, "value: ", id="cut short"),
        pytest.param(raw_purchase(b"\xef\xbb\xbf" + GOOD), Reason.NOT_JSON, "value: ", id="byte order mark"),
        pytest.param(raw_purchase(GOOD + b"x"), Reason.NOT_JSON, "value: ", id="something after the value"),
        pytest.param(raw_purchase(GOOD + GOOD), Reason.NOT_JSON, "value: ", id="two objects"),
        pytest.param(raw_purchase(GOOD + b"\0"), Reason.NOT_JSON, "value: ", id="NUL after the value"),
        pytest.param(purchase(amount="NaN"), Reason.NOT_JSON, "value: ", id="NaN"),
        pytest.param(purchase(amount="-Infinity"), Reason.NOT_JSON, "value: ", id="-Infinity"),
        pytest.param(purchase(more="NaN"), Reason.NOT_JSON, "value: ", id="NaN in an unknown field"),
        pytest.param(purchase(more="nul"), Reason.NOT_JSON, "value: ", id="broken word in an unknown field"),
        pytest.param(purchase(more='"\\x"'), Reason.NOT_JSON, "value: ", id="wrong escape in an unknown field"),
        pytest.param(purchase(more='"\t"'), Reason.NOT_JSON, "value: ", id="control character in an unknown field"),
        pytest.param(purchase(customerId='"a\nb"'), Reason.NOT_JSON, "value: ", id="line break in text"),
        pytest.param(purchase(amount="01"), Reason.NOT_JSON, "value: ", id="leading zero"),
        pytest.param(purchase(amount=".5"), Reason.NOT_JSON, "value: ", id="no digit before the point"),
        pytest.param(purchase(amount="1."), Reason.NOT_JSON, "value: ", id="no digit after the point"),
        pytest.param(purchase(amount="+1"), Reason.NOT_JSON, "value: ", id="plus sign"),
        pytest.param(purchase(amount="[1,]"), Reason.NOT_JSON, "value: ", id="comma at the end"),
        pytest.param(raw_purchase(b"{'purchaseId':'P-1'}"), Reason.NOT_JSON, "value: ", id="single quotes"),
        pytest.param(
            raw_purchase(b'{"x":' * 100_000),
            Reason.NOT_JSON,
            "value: nested deeper than 256 levels",
            id="100,000 objects deep",
        ),
        pytest.param(
            purchase(more="[" * 100_000 + "]" * 100_000),
            Reason.NOT_JSON,
            "value: nested deeper than 256 levels",
            id="100,000 arrays deep, well formed",
        ),
        pytest.param(
            purchase(amount="[" * 300 + "]" * 300),
            Reason.NOT_JSON,
            "value: nested deeper than 256 levels",
            id="amount 300 arrays deep",
        ),
        pytest.param(raw_purchase(b"null"), Reason.WRONG_TYPE, f"$: {OBJECT}, got null", id="null in text"),
        pytest.param(
            raw_profile(b"null"), Reason.WRONG_TYPE, f"$: {OBJECT}, got null", id="null in text is no tombstone"
        ),
        pytest.param(raw_purchase(b"[" + GOOD + b"]"), Reason.WRONG_TYPE, f"$: {OBJECT}, got an array", id="an array"),
        pytest.param(raw_purchase(b'"text"'), Reason.WRONG_TYPE, f"$: {OBJECT}, got a string", id="a string"),
        pytest.param(raw_purchase(b"12"), Reason.WRONG_TYPE, f"$: {OBJECT}, got a number", id="a number"),
        pytest.param(raw_purchase(b"true"), Reason.WRONG_TYPE, f"$: {OBJECT}, got a boolean", id="a boolean"),
        pytest.param(
            purchase(amount='"12.34"'), Reason.WRONG_TYPE, f"$.amount: {NUMBER}, got a string", id="amount as text"
        ),
        pytest.param(purchase(amount="null"), Reason.WRONG_TYPE, f"$.amount: {NUMBER}, got null", id="amount null"),
        pytest.param(
            purchase(amount="true"), Reason.WRONG_TYPE, f"$.amount: {NUMBER}, got a boolean", id="amount true"
        ),
        pytest.param(
            purchase(amount="[\n1\n]"),
            Reason.WRONG_TYPE,
            f"$.amount: {NUMBER}, got an array",
            id="amount in an array of several lines",
        ),
        pytest.param(
            purchase(amount='{"value":1}'),
            Reason.WRONG_TYPE,
            f"$.amount: {NUMBER}, got an object",
            id="amount in an object",
        ),
        pytest.param(
            purchase(customerId="7"),
            Reason.WRONG_TYPE,
            "$.customerId: expected a string, got a number",
            id="customer as number",
        ),
        pytest.param(
            purchase(customerId="null"),
            Reason.WRONG_TYPE,
            "$.customerId: expected a string, got null",
            id="customer null",
        ),
        pytest.param(
            purchase(productId="[]"),
            Reason.WRONG_TYPE,
            "$.productId: expected a string, got an array",
            id="product as array",
        ),
        pytest.param(
            purchase(occurredAtEpochMillis='"1"'),
            Reason.WRONG_TYPE,
            f"$.occurredAtEpochMillis: {INTEGER}, got a string",
            id="time as text",
        ),
        pytest.param(
            purchase(occurredAtEpochMillis="1.0"),
            Reason.WRONG_TYPE,
            f"$.occurredAtEpochMillis: {INTEGER}, got a number with",
            id="time 1.0",
        ),
        pytest.param(
            purchase(occurredAtEpochMillis="1e3"),
            Reason.WRONG_TYPE,
            f"$.occurredAtEpochMillis: {INTEGER}, got a number with",
            id="time 1e3",
        ),
        pytest.param(profile(name="null"), Reason.WRONG_TYPE, "$.name: expected a string, got null", id="name null"),
        pytest.param(
            profile(email="false"), Reason.WRONG_TYPE, "$.email: expected a string, got a boolean", id="email false"
        ),
        pytest.param(
            raw_purchase(GOOD[:-1] + b',"amount":"2"}'),
            Reason.WRONG_TYPE,
            "$.amount",
            id="repeated field: the last one is text",
        ),
        pytest.param(raw_purchase(b"{}"), Reason.MISSING_FIELD, "$.purchaseId: missing", id="an empty object"),
        pytest.param(purchase(amount=None), Reason.MISSING_FIELD, "$.amount: missing", id="amount missing"),
        pytest.param(purchase(currency=None), Reason.MISSING_FIELD, "$.currency: missing", id="currency missing"),
        pytest.param(profile(name=None), Reason.MISSING_FIELD, "$.name: missing", id="name missing"),
        pytest.param(
            profile(updatedAtEpochMillis=None),
            Reason.MISSING_FIELD,
            "$.updatedAtEpochMillis: missing",
            id="update time missing",
        ),
        pytest.param(
            purchase(purchaseId='""'),
            Reason.OUT_OF_RANGE,
            "$.purchaseId: expected at least 1 character",
            id="empty purchase id",
        ),
        pytest.param(
            purchase(customerId='""'),
            Reason.OUT_OF_RANGE,
            "$.customerId: expected at least 1 character",
            id="empty customer id",
        ),
        pytest.param(
            purchase(amount="-0.01"), Reason.OUT_OF_RANGE, "$.amount: expected at least 0", id="negative amount"
        ),
        pytest.param(
            purchase(amount="-1e2"),
            Reason.OUT_OF_RANGE,
            "$.amount: expected at least 0",
            id="negative amount with exponent",
        ),
        pytest.param(
            purchase(amount="0.001"), Reason.OUT_OF_RANGE, "$.amount: expected a multiple of 0.01", id="3 decimals"
        ),
        pytest.param(
            purchase(amount="1.00000000000000000001"),
            Reason.OUT_OF_RANGE,
            "$.amount: expected a multiple",
            id="decimals beyond a float's",
        ),
        pytest.param(
            purchase(amount="10000000000000000"),
            Reason.OUT_OF_RANGE,
            "$.amount: expected at most",
            id="17 integer digits",
        ),
        pytest.param(purchase(amount="1e400"), Reason.OUT_OF_RANGE, "$.amount: expected at most", id="amount 1e400"),
        pytest.param(
            purchase(amount="1E-400"), Reason.OUT_OF_RANGE, "$.amount: expected a multiple of 0.01", id="amount 1E-400"
        ),
        pytest.param(
            purchase(amount="1e999999999999"),
            Reason.OUT_OF_RANGE,
            "$.amount: expected at most",
            id="exponent of a trillion",
        ),
        pytest.param(
            purchase(amount="1e" + "9" * 90),
            Reason.OUT_OF_RANGE,
            "$.amount: expected an exponent",
            id="exponent of 90 digits",
        ),
        pytest.param(
            purchase(amount="9" * 1_000_000),
            Reason.OUT_OF_RANGE,
            "$.amount: expected a number of at most",
            id="a million digits",
        ),
        pytest.param(
            purchase(currency='"eur"'),
            Reason.OUT_OF_RANGE,
            "$.currency: expected text that matches",
            id="currency in small letters",
        ),
        pytest.param(
            purchase(currency='"EURO"'),
            Reason.OUT_OF_RANGE,
            "$.currency: expected text that matches",
            id="currency of 4 letters",
        ),
        pytest.param(
            purchase(currency='"EUR\\n"'),
            Reason.OUT_OF_RANGE,
            "$.currency: expected text that matches",
            id="currency and a line break",
        ),
        pytest.param(
            purchase(occurredAtEpochMillis="-1"),
            Reason.OUT_OF_RANGE,
            "$.occurredAtEpochMillis: expected at least 0",
            id="time before 1970",
        ),
        pytest.param(
            purchase(occurredAtEpochMillis="253402300800000"),
            Reason.OUT_OF_RANGE,
            "$.occurredAtEpochMillis: expected at most",
            id="year 10000",
        ),
        pytest.param(
            purchase(occurredAtEpochMillis="9" * 5000),
            Reason.OUT_OF_RANGE,
            "$.occurredAtEpochMillis: expected",
            id="time of 5,000 digits",
        ),
        pytest.param(
            purchase(key=b"P-2"), Reason.KEY_MISMATCH, "key: differs from $.purchaseId", id="purchase under another key"
        ),
        pytest.param(
            profile(key=b"c-1"), Reason.KEY_MISMATCH, "key: differs from $.customerId", id="profile under another key"
        ),
        pytest.param(
            purchase(key=b'"P-1"'), Reason.KEY_MISMATCH, "key: differs from $.purchaseId", id="key as JSON text"
        ),
        pytest.param(
            purchase(currency='"USD"'), Reason.CURRENCY_MISMATCH, "$.currency: expected EUR", id="another currency"
        ),
        pytest.param(
            purchase(occurredAtEpochMillis=str(KAFKA_MILLIS + FIVE_MINUTES + 1)),
            Reason.TIMESTAMP_IN_FUTURE,
            "$.occurredAtEpochMillis: more than 5 minutes after",
            id="5 minutes and 1 ms ahead",
        ),
        pytest.param(
            profile(updatedAtEpochMillis="253402300799999"),
            Reason.TIMESTAMP_IN_FUTURE,
            "$.updatedAtEpochMillis: more than",
            id="update in year 9999",
        ),
    ],
)
def test_refused(record: Record, reason: Reason, detail: str) -> None:
    parsed = parse_one(record)

    assert parsed["reason"] == reason
    assert parsed["detail"].startswith(detail)
    assert (parsed["key"], parsed["value"], parsed["offset"]) == (record.key, record.value, 100)
    assert {parsed[column] for column in (*PURCHASE_COLUMNS, *PROFILE_COLUMNS)} == {None}


FUTURE = str(KAFKA_MILLIS + FIVE_MINUTES + 1)
FAULTS_IN_ORDER = [
    (Reason.MISSING_KEY, raw_purchase(None, key=None)),
    (Reason.MISSING_VALUE, raw_purchase(None, key=b"\xff")),
    (Reason.NOT_UTF8, raw_purchase(b"{nothing", key=b"\xff")),
    (Reason.NOT_JSON, raw_purchase(b'{"amount":"1", "currency":1 nothing')),
    (
        Reason.WRONG_TYPE,
        purchase(b"other", purchaseId=None, customerId='""', amount='"1"', occurredAtEpochMillis=FUTURE),
    ),
    (Reason.MISSING_FIELD, purchase(b"other", customerId='""', currency=None, occurredAtEpochMillis=FUTURE)),
    (Reason.OUT_OF_RANGE, purchase(b"other", currency='"usd"', occurredAtEpochMillis=FUTURE)),
    (Reason.KEY_MISMATCH, purchase(b"other", currency='"USD"', occurredAtEpochMillis=FUTURE)),
    (Reason.CURRENCY_MISMATCH, purchase(currency='"USD"', occurredAtEpochMillis=FUTURE)),
    (Reason.TIMESTAMP_IN_FUTURE, purchase(occurredAtEpochMillis=FUTURE)),
]


@pytest.mark.parametrize(
    ("reason", "record"), [pytest.param(reason, record, id=reason) for reason, record in FAULTS_IN_ORDER]
)
def test_first_reason_counts_when_later_ones_apply_too(reason: Reason, record: Record) -> None:
    assert parse_one(record)["reason"] == reason


def test_every_reason_of_the_parser_is_in_the_precedence_table() -> None:
    assert {reason for reason, _ in FAULTS_IN_ORDER} == set(Reason) - LATER_REASONS


def test_topics_mixed_in_a_batch_keep_their_order() -> None:
    records = [
        record
        for number in range(700)  # more than one chunk of either topic
        for record in (
            purchase(f"P-{number}".encode(), purchaseId=f'"P-{number}"', amount=f"{number}.05"),
            profile(f"C-{number}".encode(), customerId=f'"C-{number}"'),
            raw_profile(None, key=f"C-{number}".encode()),
            raw_purchase(b"{"),
        )
    ]

    parsed = parse(kafka_batch(records))

    assert parsed.schema == PARSED_SCHEMA
    assert parsed.column("offset").to_pylist() == list(range(100, 100 + len(records)))
    assert parsed.column("value").to_pylist() == [record.value for record in records]
    for number, first in enumerate(range(0, len(records), 4)):
        bought, updated, deleted, broken = parsed.slice(first, 4).to_pylist()
        assert (bought["purchase_id"], bought["amount"]) == (f"P-{number}", Decimal(f"{number}.05"))
        assert (updated["customer_id"], updated["is_tombstone"]) == (f"C-{number}", False)
        assert (deleted["customer_id"], deleted["is_tombstone"]) == (f"C-{number}", True)
        assert broken["reason"] == Reason.NOT_JSON


def test_bad_records_do_not_touch_their_neighbours() -> None:
    records = [record for _, bad in FAULTS_IN_ORDER for record in (bad, purchase(amount="1e1"), purchase())]

    parsed = parse(kafka_batch(records)).to_pylist()

    assert [row["reason"] for row in parsed[::3]] == [reason for reason, _ in FAULTS_IN_ORDER]
    assert {row["amount"] for row in parsed[1::3]} == {Decimal("10.00")}
    assert {row["amount"] for row in parsed[2::3]} == {Decimal("12.34")}


def test_empty_batch() -> None:
    parsed = parse(kafka_batch([]))

    assert parsed.schema == PARSED_SCHEMA
    assert parsed.num_rows == 0


def test_carried_columns_are_not_copied() -> None:
    batch = kafka_batch([purchase(), profile()]).slice(0, 1)

    parsed = parse(batch)

    for column in ("key", "value", "topic", "partition", "offset"):
        before, after = batch.column(column).buffers(), parsed.column(column).buffers()
        assert after[-1].address == before[-1].address


def test_kafka_timestamp_type_may_be_absent() -> None:
    batch = kafka_batch([purchase()]).drop_columns(["timestampType"])

    assert parse(batch).column("reason").to_pylist() == [None]


def test_topic_of_neither_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="topic another is neither purchase-events nor customer-profile-state"):
        parse(kafka_batch([purchase(), Record("another", b"k", b"{}")]))


def test_another_deployment_has_another_currency() -> None:
    batch = kafka_batch([purchase(), purchase(currency='"USD"')])

    parsed = parse_batch(batch, purchase_topic=PURCHASES, profile_topic=PROFILES, currency="USD")

    assert parsed.column("reason").to_pylist() == [Reason.CURRENCY_MISMATCH, None]


KEYS = st.none() | st.binary(max_size=4) | st.sampled_from([b"P-1", b"C-1"])
ANY_BYTES = (
    st.none() | st.binary(max_size=40) | st.text(alphabet='{}[]":,\\u0d8e1-.ntf \n', max_size=40).map(str.encode)
)
MUTATED = st.builds(
    lambda text, at, put, drop: text[:at] + put + text[at + drop :],
    st.sampled_from([GOOD, text_of(GOOD_PROFILE)]),
    st.integers(0, len(GOOD)),
    st.binary(max_size=2) | st.sampled_from([b"\\ud800", b"\\udfff", b"1e9", b"-", b"[[", b"null", b'"', b"\n", b","]),
    st.integers(0, 3),
)


@settings(deadline=None, max_examples=150)
@given(
    records=st.lists(st.builds(Record, st.sampled_from([PURCHASES, PROFILES]), KEYS, ANY_BYTES | MUTATED), max_size=8)
)
def test_any_bytes_are_accepted_or_refused_for_one_of_the_reasons(records: list[Record]) -> None:
    parsed = parse(kafka_batch(records))

    parsed.validate(full=True)
    assert parsed.schema == PARSED_SCHEMA
    rows = parsed.to_pylist()
    assert [(row["topic"], row["key"], row["value"]) for row in rows] == records
    for row in rows:
        if row["reason"] is None:
            assert row["detail"] is None
            assert row["customer_id"]
        else:
            assert Reason(row["reason"]) is not Reason.CONFLICTING_DUPLICATE
            assert 0 < len(row["detail"]) <= 200
            assert {row[column] for column in (*PURCHASE_COLUMNS, *PROFILE_COLUMNS)} == {None}


@settings(deadline=None, max_examples=150)
@given(values=st.lists(MUTATED, min_size=1, max_size=4), topic=st.sampled_from([PURCHASES, PROFILES]))
def test_batch_and_single_examination_agree(values: list[bytes], topic: str) -> None:
    """What the columns' checks let pass is what the thorough judge lets pass, with the same values."""
    contract = PURCHASE_EVENT if topic == PURCHASES else CUSTOMER_PROFILE
    later = {Reason.KEY_MISMATCH, Reason.CURRENCY_MISMATCH, Reason.TIMESTAMP_IN_FUTURE}

    rows = parse(
        kafka_batch([Record(topic, b"P-1" if topic == PURCHASES else b"C-1", value) for value in values])
    ).to_pylist()

    for value, row in zip(values, rows, strict=True):
        judged = examine(contract, value)
        if isinstance(judged, Refusal):
            assert (row["reason"], row["detail"]) == judged
        else:
            assert row["reason"] is None or Reason(row["reason"]) in later
        if row["reason"] is None:
            assert row["customer_id"] == judged.customer_id  # type: ignore[union-attr]
            assert topic == PROFILES or row["amount"] == Decimal(bytes(judged.amount).decode())  # type: ignore[union-attr]
