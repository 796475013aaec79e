"""What bronze's parser refuses, and for which reason."""

from __future__ import annotations

import pytest

from customer_activity.catalog import Reason
from support.kafka_batches import (
    FIVE_MINUTES,
    GOOD,
    INTEGER,
    KAFKA_MILLIS,
    NUMBER,
    OBJECT,
    PROFILE_COLUMNS,
    PURCHASE_COLUMNS,
    Record,
    parse_one,
    profile,
    purchase,
    raw_profile,
    raw_purchase,
)


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
