"""Payment records: bronze's parser and the verifier's own reading of the contract say the same of any."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from customer_activity.catalog import Reason
from customer_activity.contracts import PAYMENT_CONFIRMED
from customer_activity.contracts.parsing import parse_batch
from customer_activity.verification import contract
from support.kafka_batches import KAFKA_MILLIS, KAFKA_SCHEMA, KAFKA_TIME, LANDED

TOPIC = "payment-events"
LANDED_MS = int(LANDED.timestamp() * 1000)
GOOD: dict[str, str] = {
    "purchaseId": '"P-1"',
    "paymentId": '"pay-1"',
    "customerId": '"C-1"',
    "amount": "12.34",
    "currency": '"EUR"',
    "confirmedAtEpochMillis": str(KAFKA_MILLIS),
}
COLUMNS = [field.column for field in PAYMENT_CONFIRMED.fields]


def value(without: str = "", **changes: str) -> bytes:
    fields = {name: text for name, text in (GOOD | changes).items() if name != without}
    return ("{" + ",".join(f"{json.dumps(name)}: {text}" for name, text in fields.items()) + "}").encode()


def parsed(key: bytes | None, text: bytes | None) -> dict[str, Any]:
    row = {
        "key": key,
        "value": text,
        "topic": TOPIC,
        "partition": 0,
        "offset": 0,
        "timestamp": KAFKA_TIME,
        "timestampType": 0,
        "headers": None,
    }
    batch = pa.RecordBatch.from_pylist([row], schema=KAFKA_SCHEMA)
    (found,) = parse_batch(batch, contracts={TOPIC: PAYMENT_CONFIRMED}, currency="EUR", landed_at=LANDED).to_pylist()
    return dict(found)


def judged(key: bytes | None, text: bytes | None) -> contract.PaymentFields | Reason:
    return contract.payment(key, text, KAFKA_MILLIS, landed_at=LANDED_MS, rules=2)


def assert_same(key: bytes | None, text: bytes | None) -> Reason | None:
    """Hold one side against the other; return why both refuse it."""
    row, verdict = parsed(key, text), judged(key, text)
    if isinstance(verdict, Reason):
        assert row["reason"] == verdict
        return verdict
    assert row["reason"] is None
    *texts, cents, currency, confirmed_at = verdict
    assert [row[name] for name in COLUMNS[:3]] == texts
    assert int(row["amount"] * 100) == cents
    assert (row["currency"], int(row["confirmed_at"].timestamp() * 1000)) == (currency, confirmed_at)
    return None


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        pytest.param(b"P-1", value(), None, id="good"),
        pytest.param(b"P-1", value(customerId="null"), None, id="nobody says who paid"),
        pytest.param(b"P-1", value(without="customerId"), None, id="no word of who paid"),
        pytest.param(b"P-1", value(currency='"USD"'), None, id="another currency is no fault of the record"),
        pytest.param(b"P-1", value(more="1"), None, id="a field more"),
        pytest.param(None, value(), Reason.MISSING_KEY, id="no key"),
        pytest.param(b"P-1", None, Reason.MISSING_VALUE, id="no value"),
        pytest.param(b"P-2", value(), Reason.KEY_MISMATCH, id="another key"),
        pytest.param(b"P-1", value(without="paymentId"), Reason.MISSING_FIELD, id="no id"),
        pytest.param(b"P-1", value(paymentId='""'), Reason.OUT_OF_RANGE, id="an empty id"),
        pytest.param(b"P-1", value(customerId='""'), Reason.OUT_OF_RANGE, id="an empty customer"),
        pytest.param(b"P-1", value(paymentId='"a\\u0000"'), Reason.OUT_OF_RANGE, id="a control in the id"),
        pytest.param(b"P-1", value(currency='"eur"'), Reason.OUT_OF_RANGE, id="no currency"),
        pytest.param(b"P-1", value(amount="1.234"), Reason.OUT_OF_RANGE, id="too many decimals"),
        pytest.param(b"P-1", value(amount='"1"'), Reason.WRONG_TYPE, id="an amount as text"),
        pytest.param(
            b"P-1",
            value(confirmedAtEpochMillis=str(KAFKA_MILLIS + 300_001)),
            Reason.TIMESTAMP_IN_FUTURE,
            id="later than its record",
        ),
    ],
)
def test_which_payment_records_are_valid(key: bytes | None, text: bytes | None, reason: Reason | None) -> None:
    assert assert_same(key, text) == reason


TEXTS = st.sampled_from(
    ['"P-1"', '"C-1"', '""', "null", "1", "-1", "1.5", "1e2", "true", "[]", '"EUR"', '"\\ud800"', '"a\\u0085"', "1.005"]
)


@given(
    st.sampled_from([b"P-1", b"", None, b"P-2", b"\xff"]),
    st.dictionaries(st.sampled_from(sorted(GOOD)), TEXTS, max_size=3),
    st.sampled_from(["", *GOOD]),
)
@example(b"P-1", {"amount": "1e2"}, "")
def test_both_sides_say_the_same_of_any(key: bytes | None, changes: dict[str, str], without: str) -> None:
    assert_same(key, value(without, **changes))
