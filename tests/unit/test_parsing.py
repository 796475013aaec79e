"""Bronze's parser: what it accepts, the order of its reasons, and that no bytes get past the closed list."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from customer_activity.catalog import Reason
from customer_activity.contracts import (
    CUSTOMER_PROFILE,
    NO_CONTROL_CHARACTERS,
    PURCHASE_EVENT,
    Field,
    Kind,
    Refusal,
    examine,
    parsing,
)
from customer_activity.contracts.parsing import parse_batch, parsed_schema
from customer_activity.contracts.refusals import Refusals
from support.kafka_batches import (
    CONTRACTS,
    FIVE_MINUTES,
    GOOD,
    GOOD_PROFILE,
    KAFKA_MILLIS,
    KAFKA_TIME,
    LANDED,
    LATER_REASONS,
    PROFILE_COLUMNS,
    PROFILES,
    PURCHASE_COLUMNS,
    PURCHASES,
    Record,
    kafka_batch,
    parse,
    parse_one,
    profile,
    purchase,
    raw_profile,
    raw_purchase,
    text_of,
)


@pytest.mark.parametrize(
    ("kind", "more", "written", "column"),
    [
        (Kind.STRING, {}, '"S-1"', ["S-1", None, None]),
        (Kind.INTEGER, {}, "7", [7, None, None]),
        (Kind.NUMBER, {"maximum": Decimal("99.99"), "step": Decimal("0.01")}, "1e1", [Decimal("10.00"), None, None]),
    ],
)
def test_an_optional_field_may_be_there_null_or_absent(
    kind: Kind, more: dict[str, Any], written: str, column: list[Any]
) -> None:
    limits = dict.fromkeys(("min_length", "pattern", "minimum", "maximum", "step"), None) | more
    extra = Field(name="extra", kind=kind, description="", nullable=True, required=False, **limits)
    contract = replace(PURCHASE_EVENT, fields=(*PURCHASE_EVENT.fields, extra))
    values = [GOOD[:-1] + f', "extra": {text}}}'.encode() for text in (written, "null")]
    refusals = Refusals()
    found = parsing._decode([*values, GOOD, GOOD[:-1] + b', "extra": true}', None], contract, refusals)
    assert found["extra"].to_pylist() == [*column, None, None]
    assert {row: refusal.reason for row, refusal in refusals.items()} == {3: Reason.WRONG_TYPE}


def test_texts_of_a_purchase_have_no_control_characters() -> None:
    """Silver's digest of a content puts two of them between texts and in the place of none."""
    assert {field.pattern for field in PURCHASE_EVENT.fields if field.kind is Kind.STRING} == {
        NO_CONTROL_CHARACTERS,
        "^[A-Z]{3}$",
    }


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
        "risk_score": None,
        "name": None,
        "email": None,
        "address": None,
        "loyalty_status": None,
        "updated_at": None,
        "is_tombstone": None,
        "trace_context": None,
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
        pytest.param(purchase(riskScore="100"), "risk_score", 100, id="optional number"),
        pytest.param(purchase(riskScore="null"), "risk_score", None, id="optional number null"),
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

    assert parsed.schema == parsed_schema(*CONTRACTS.values())
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

    assert parsed.schema == parsed_schema(*CONTRACTS.values())
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
    with pytest.raises(ValueError, match="topic another is none of purchase-events, customer-profile-state"):
        parse(kafka_batch([purchase(), Record("another", b"k", b"{}")]))


def test_another_deployment_has_another_currency() -> None:
    batch = kafka_batch([purchase(), purchase(currency='"USD"')])

    parsed = parse_batch(batch, contracts=CONTRACTS, currency="USD", landed_at=LANDED)

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
    assert parsed.schema == parsed_schema(*CONTRACTS.values())
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
