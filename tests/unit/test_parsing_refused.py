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

REFUSED: dict[Reason, dict[str, tuple[Record, str]]] = {
    Reason.MISSING_KEY: {
        "purchase without key": (purchase(key=None), "key: missing or empty"),
        "purchase with empty key": (purchase(key=b""), "key: missing or empty"),
        "profile without key": (profile(key=None), "key: missing or empty"),
        "tombstone without key": (raw_profile(None, key=None), "key: missing or empty"),
        "tombstone with empty key": (raw_profile(None, key=b""), "key: missing or empty"),
    },
    Reason.MISSING_VALUE: {
        "purchase without value": (raw_purchase(None), "value: missing"),
    },
    Reason.NOT_UTF8: {
        "key is not UTF-8": (purchase(key=b"P-\xff"), "key: not UTF-8 at byte 2"),
        "tombstone's key is not UTF-8": (raw_profile(None, key=b"\xc3"), "key: not UTF-8 at byte 0"),
        "Latin-1 text": (raw_purchase(GOOD.replace(b"C-1", b"\xe9")), "value: not UTF-8 at byte 34"),
        "unknown field is not UTF-8": (raw_purchase(GOOD[:-1] + b',"x":"\xff"}'), "value: not UTF-8"),
        "surrogate in bytes": (raw_purchase(GOOD.replace(b"C-1", b"\xed\xa0\x80")), "value: not UTF-8"),
        "overlong form": (raw_purchase(GOOD.replace(b"C-1", b"\xc0\x80")), "value: not UTF-8"),
        "UTF-16": (raw_purchase(GOOD.decode().encode("utf-16")), "value: not UTF-8 at byte 0"),
        "high surrogate alone": (purchase(customerId='"\\ud800"'), "value: a string holds half"),
        "low surrogate alone": (purchase(customerId='"\\udc00x"'), "value: a string holds half"),
        "surrogates the wrong way round, unknown field": (
            purchase(more='"\\udc00\\ud800"'),
            "value: a string holds half",
        ),
        "half a pair in a profile": (profile(name='"\\ud83d\\u0041"'), "value: a string holds half"),
    },
    Reason.NOT_JSON: {
        "empty value": (raw_purchase(b""), "value: "),
        "empty profile is no tombstone": (raw_profile(b""), "value: "),
        "white space only": (raw_purchase(b" "), "value: "),
        "cut short": (raw_purchase(GOOD[:-1]), "value: "),
        "byte order mark": (raw_purchase(b"\xef\xbb\xbf" + GOOD), "value: "),
        "something after the value": (raw_purchase(GOOD + b"x"), "value: "),
        "two objects": (raw_purchase(GOOD + GOOD), "value: "),
        "NUL after the value": (raw_purchase(GOOD + b"\0"), "value: "),
        "NaN": (purchase(amount="NaN"), "value: "),
        "-Infinity": (purchase(amount="-Infinity"), "value: "),
        "NaN in an unknown field": (purchase(more="NaN"), "value: "),
        "broken word in an unknown field": (purchase(more="nul"), "value: "),
        "wrong escape in an unknown field": (purchase(more='"\\x"'), "value: "),
        "control character in an unknown field": (purchase(more='"\t"'), "value: "),
        "line break in text": (purchase(customerId='"a\nb"'), "value: "),
        "leading zero": (purchase(amount="01"), "value: "),
        "no digit before the point": (purchase(amount=".5"), "value: "),
        "no digit after the point": (purchase(amount="1."), "value: "),
        "plus sign": (purchase(amount="+1"), "value: "),
        "comma at the end": (purchase(amount="[1,]"), "value: "),
        "single quotes": (raw_purchase(b"{'purchaseId':'P-1'}"), "value: "),
        "100,000 objects deep": (raw_purchase(b'{"x":' * 100_000), "value: nested deeper than 256 levels"),
        "100,000 arrays deep, well formed": (
            purchase(more="[" * 100_000 + "]" * 100_000),
            "value: nested deeper than 256 levels",
        ),
        "amount 300 arrays deep": (purchase(amount="[" * 300 + "]" * 300), "value: nested deeper than 256 levels"),
    },
    Reason.WRONG_TYPE: {
        "null in text": (raw_purchase(b"null"), f"$: {OBJECT}, got null"),
        "null in text is no tombstone": (raw_profile(b"null"), f"$: {OBJECT}, got null"),
        "an array": (raw_purchase(b"[" + GOOD + b"]"), f"$: {OBJECT}, got an array"),
        "a string": (raw_purchase(b'"text"'), f"$: {OBJECT}, got a string"),
        "a number": (raw_purchase(b"12"), f"$: {OBJECT}, got a number"),
        "a boolean": (raw_purchase(b"true"), f"$: {OBJECT}, got a boolean"),
        "amount as text": (purchase(amount='"12.34"'), f"$.amount: {NUMBER}, got a string"),
        "amount null": (purchase(amount="null"), f"$.amount: {NUMBER}, got null"),
        "amount true": (purchase(amount="true"), f"$.amount: {NUMBER}, got a boolean"),
        "amount in an array of several lines": (purchase(amount="[\n1\n]"), f"$.amount: {NUMBER}, got an array"),
        "amount in an object": (purchase(amount='{"value":1}'), f"$.amount: {NUMBER}, got an object"),
        "customer as number": (purchase(customerId="7"), "$.customerId: expected a string, got a number"),
        "customer null": (purchase(customerId="null"), "$.customerId: expected a string, got null"),
        "product as array": (purchase(productId="[]"), "$.productId: expected a string, got an array"),
        "time as text": (purchase(occurredAtEpochMillis='"1"'), f"$.occurredAtEpochMillis: {INTEGER}, got a string"),
        "time 1.0": (purchase(occurredAtEpochMillis="1.0"), f"$.occurredAtEpochMillis: {INTEGER}, got a number with"),
        "time 1e3": (purchase(occurredAtEpochMillis="1e3"), f"$.occurredAtEpochMillis: {INTEGER}, got a number with"),
        "name null": (profile(name="null"), "$.name: expected a string, got null"),
        "email false": (profile(email="false"), "$.email: expected a string, got a boolean"),
        "repeated field: the last one is text": (raw_purchase(GOOD[:-1] + b',"amount":"2"}'), "$.amount"),
    },
    Reason.MISSING_FIELD: {
        "an empty object": (raw_purchase(b"{}"), "$.purchaseId: missing"),
        "amount missing": (purchase(amount=None), "$.amount: missing"),
        "currency missing": (purchase(currency=None), "$.currency: missing"),
        "name missing": (profile(name=None), "$.name: missing"),
        "update time missing": (profile(updatedAtEpochMillis=None), "$.updatedAtEpochMillis: missing"),
    },
    Reason.OUT_OF_RANGE: {
        "empty purchase id": (purchase(purchaseId='""'), "$.purchaseId: expected at least 1 character"),
        "empty customer id": (purchase(customerId='""'), "$.customerId: expected at least 1 character"),
        "negative amount": (purchase(amount="-0.01"), "$.amount: expected at least 0"),
        "negative amount with exponent": (purchase(amount="-1e2"), "$.amount: expected at least 0"),
        "3 decimals": (purchase(amount="0.001"), "$.amount: expected a multiple of 0.01"),
        "decimals beyond a float's": (purchase(amount="1.00000000000000000001"), "$.amount: expected a multiple"),
        "17 integer digits": (purchase(amount="10000000000000000"), "$.amount: expected at most"),
        "amount 1e400": (purchase(amount="1e400"), "$.amount: expected at most"),
        "amount 1E-400": (purchase(amount="1E-400"), "$.amount: expected a multiple of 0.01"),
        "exponent of a trillion": (purchase(amount="1e999999999999"), "$.amount: expected at most"),
        "exponent of 90 digits": (purchase(amount="1e" + "9" * 90), "$.amount: expected an exponent"),
        "a million digits": (purchase(amount="9" * 1_000_000), "$.amount: expected a number of at most"),
        "currency in small letters": (purchase(currency='"eur"'), "$.currency: expected text that matches"),
        "currency of 4 letters": (purchase(currency='"EURO"'), "$.currency: expected text that matches"),
        "currency and a line break": (purchase(currency='"EUR\\n"'), "$.currency: expected text that matches"),
        "time before 1970": (purchase(occurredAtEpochMillis="-1"), "$.occurredAtEpochMillis: expected at least 0"),
        "year 10000": (purchase(occurredAtEpochMillis="253402300800000"), "$.occurredAtEpochMillis: expected at most"),
        "time of 5,000 digits": (purchase(occurredAtEpochMillis="9" * 5000), "$.occurredAtEpochMillis: expected"),
    },
    Reason.KEY_MISMATCH: {
        "purchase under another key": (purchase(key=b"P-2"), "key: differs from $.purchaseId"),
        "profile under another key": (profile(key=b"c-1"), "key: differs from $.customerId"),
        "key as JSON text": (purchase(key=b'"P-1"'), "key: differs from $.purchaseId"),
    },
    Reason.CURRENCY_MISMATCH: {
        "another currency": (purchase(currency='"USD"'), "$.currency: expected EUR"),
    },
    Reason.TIMESTAMP_IN_FUTURE: {
        "5 minutes and 1 ms ahead": (
            purchase(occurredAtEpochMillis=str(KAFKA_MILLIS + FIVE_MINUTES + 1)),
            "$.occurredAtEpochMillis: more than 5 minutes after",
        ),
        "update in year 9999": (profile(updatedAtEpochMillis="253402300799999"), "$.updatedAtEpochMillis: more than"),
    },
}


@pytest.mark.parametrize(
    ("record", "reason", "detail"),
    [
        pytest.param(record, reason, detail, id=name)
        for reason, cases in REFUSED.items()
        for name, (record, detail) in cases.items()
    ],
)
def test_refused(record: Record, reason: Reason, detail: str) -> None:
    parsed = parse_one(record)

    assert parsed["reason"] == reason
    assert parsed["detail"].startswith(detail)
    assert (parsed["key"], parsed["value"], parsed["offset"]) == (record.key, record.value, 100)
    assert {parsed[column] for column in (*PURCHASE_COLUMNS, *PROFILE_COLUMNS)} == {None}
