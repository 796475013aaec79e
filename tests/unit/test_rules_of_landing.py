"""What the second version of the rules adds, by both parsers: control characters, the time of landing, Kafka's time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from customer_activity import contracts
from customer_activity.catalog import Reason
from customer_activity.verification import contract
from support.kafka_batches import (
    FIVE_MINUTES,
    KAFKA_MILLIS,
    LANDED,
    PROFILES,
    Record,
    at,
    kafka_batch,
    parse,
    profile,
    purchase,
    raw_profile,
)

LANDED_MILLIS = KAFKA_MILLIS + 600_000
LAST_MILLIS = 253_402_300_799_999
HOUR = 3_600_000


def judged(
    record: Record, timestamp: int | None = KAFKA_MILLIS, *, landed_at: datetime = LANDED
) -> tuple[dict[str, Any], Reason | None]:
    """The row that bronze makes of a record, and what verification says of it."""
    (row,) = parse(at(kafka_batch([record]), timestamp), landed_at).to_pylist()
    millis = round(landed_at.timestamp() * 1000)
    found = by_the_other(record, timestamp, landed_at=millis, rules=contracts.RULES)
    return row, found if isinstance(found, Reason) else None


def by_the_other(record: Record, timestamp: int | None, *, landed_at: int | None, rules: int) -> object:
    """Judge by verification's own contract."""
    if record.topic == PROFILES:
        return contract.profile(record.key, record.value, timestamp, landed_at=landed_at, rules=rules)
    return contract.purchase(record.key, record.value, timestamp, "EUR", landed_at=landed_at, rules=rules)


CONTROLS = ["\\u0000", "\\u0009", "\\n", "\\u001f", "\\u007f", "\\u0080", "\\u009f", "\x7f", "\x85"]


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
@pytest.mark.parametrize("field", ["purchaseId", "customerId", "productId"])
def test_ids_with_control_characters_are_refused(field: str, control: str) -> None:
    changes: dict[str, Any] = {field: f'"a{control}b"'}
    row, other = judged(purchase(**changes))

    assert (row["reason"], row["detail"]) == (Reason.OUT_OF_RANGE, f"$.{field}: expected no control characters")
    assert other is Reason.OUT_OF_RANGE


@pytest.mark.parametrize(
    ("record", "detail"),
    [
        pytest.param(profile(customerId='"C-\\u0000"'), "$.customerId", id="profile"),
        pytest.param(raw_profile(None, key=b"C\x00"), "key", id="tombstone"),
        pytest.param(raw_profile(None, key=b"C\xc2\x85"), "key", id="tombstone, beyond ASCII"),
        pytest.param(purchase(key=b"P-1\x1b"), "key", id="key alone"),
    ],
)
def test_keys_and_customers_with_control_characters_are_refused(record: Record, detail: str) -> None:
    row, other = judged(record)

    assert (row["reason"], row["detail"]) == (Reason.OUT_OF_RANGE, f"{detail}: expected no control characters")
    assert other is Reason.OUT_OF_RANGE


@pytest.mark.parametrize("anything", ['"high"', "-1", "7.5", "{}"])
def test_a_risk_score_was_unknown_to_the_rules_before(anything: str) -> None:
    record = purchase(riskScore=anything)
    row, by_the_newest = judged(record)

    assert row["reason"] == by_the_newest
    assert by_the_newest is not None
    assert by_the_other(record, KAFKA_MILLIS, landed_at=None, rules=2) == by_the_other(
        purchase(), KAFKA_MILLIS, landed_at=None, rules=contracts.RULES
    )


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(purchase(productId='"\\u00a0\\u200b\\u2028\\ud83d\\ude00"'), id="formats and separators in an id"),
        pytest.param(purchase(key="Ã".encode(), purchaseId='"Ã"'), id="a lead byte of controls"),
        pytest.param(profile(name='"a\\u0000b"', address='"1 Old\\nRoad"'), id="controls in texts"),
    ],
)
def test_what_is_no_control_character_of_an_id_is_let_pass(record: Record) -> None:
    assert (judged(record)[0]["reason"], judged(record)[1]) == (None, None)


@pytest.mark.parametrize(
    ("ahead", "kafka_ahead", "reason"),
    [
        pytest.param(FIVE_MINUTES, 0, None, id="5 minutes after its Kafka timestamp"),
        pytest.param(FIVE_MINUTES + 1, 0, Reason.TIMESTAMP_IN_FUTURE, id="later than that"),
        pytest.param(600_000 + FIVE_MINUTES, HOUR, None, id="both clocks ahead, 5 minutes after its landing"),
        pytest.param(600_000 + FIVE_MINUTES + 1, HOUR, Reason.TIMESTAMP_IN_FUTURE, id="both ahead of its landing"),
        pytest.param(HOUR, HOUR, Reason.TIMESTAMP_IN_FUTURE, id="a producer that is an hour ahead"),
    ],
)
@pytest.mark.parametrize("of", ["purchase", "profile"])
def test_an_event_is_compared_with_its_landing_too(
    of: str, ahead: int, kafka_ahead: int, reason: Reason | None
) -> None:
    moment = str(KAFKA_MILLIS + ahead)
    record = purchase(occurredAtEpochMillis=moment) if of == "purchase" else profile(updatedAtEpochMillis=moment)

    row, other = judged(record, KAFKA_MILLIS + kafka_ahead)

    assert (row["reason"], other) == (reason, reason)


def test_a_landing_is_counted_in_whole_milliseconds() -> None:
    """As the tables that verification reads tell it: what is finer must not divide the two."""
    landed_at = LANDED + timedelta(microseconds=999)
    exactly, later = (
        judged(purchase(occurredAtEpochMillis=str(LANDED_MILLIS + FIVE_MINUTES + more)), 2 * LANDED_MILLIS)
        for more in (0, 1)
    )
    assert (exactly[1], later[1]) == (None, Reason.TIMESTAMP_IN_FUTURE)
    (row,) = parse(
        at(kafka_batch([purchase(occurredAtEpochMillis=str(LANDED_MILLIS + FIVE_MINUTES))]), LAST_MILLIS), landed_at
    ).to_pylist()
    assert row["reason"] is None


@pytest.mark.parametrize(
    ("timestamp", "event", "reason"),
    [
        pytest.param(-1, KAFKA_MILLIS, None, id="none: its landing counts"),
        pytest.param(-1, LANDED_MILLIS + FIVE_MINUTES + 1, Reason.TIMESTAMP_IN_FUTURE, id="none: after its landing"),
        pytest.param(0, 0, None, id="1970"),
        pytest.param(0, KAFKA_MILLIS, Reason.TIMESTAMP_IN_FUTURE, id="an event long after 1970"),
        pytest.param(LAST_MILLIS, KAFKA_MILLIS, None, id="the end of 9999"),
        pytest.param(LAST_MILLIS + 1, KAFKA_MILLIS, Reason.OUT_OF_RANGE, id="the year 10000"),
        pytest.param(2**63 // 1000, KAFKA_MILLIS, Reason.OUT_OF_RANGE, id="too late for microseconds"),
        pytest.param(2**63 - 1, KAFKA_MILLIS, Reason.OUT_OF_RANGE, id="the greatest number"),
        pytest.param(-2, KAFKA_MILLIS, Reason.OUT_OF_RANGE, id="before 1970"),
        pytest.param(-(2**63), KAFKA_MILLIS, Reason.OUT_OF_RANGE, id="the least number"),
        pytest.param(None, KAFKA_MILLIS, Reason.OUT_OF_RANGE, id="one that no table held"),
    ],
)
@pytest.mark.parametrize("of", ["purchase", "profile", "tombstone"])
def test_any_kafka_timestamp_is_judged(of: str, timestamp: int | None, event: int, reason: Reason | None) -> None:
    record = {
        "purchase": purchase(occurredAtEpochMillis=str(event)),
        "profile": profile(updatedAtEpochMillis=str(event)),
        "tombstone": raw_profile(None),
    }[of]
    expected = None if of == "tombstone" and reason is Reason.TIMESTAMP_IN_FUTURE else reason

    row, other = judged(record, timestamp)

    assert (row["reason"], other) == (expected, expected)
    if reason is Reason.OUT_OF_RANGE:
        assert row["kafka_timestamp"] is None
        assert row["detail"].startswith("Kafka timestamp: expected none or one of the years 1970 to 9999")
        assert timestamp is None or f"({timestamp} ms)" in row["detail"]
    else:
        assert row["kafka_timestamp"] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp or 0)


def test_a_timestamp_that_no_column_holds_is_told_whatever_else_is_wrong() -> None:
    row, other = judged(Record(PROFILES, b"C-1", b"{"), 2**63 - 1)

    assert (row["reason"], other) == (Reason.NOT_JSON, Reason.NOT_JSON)
    assert row["detail"].endswith(f" (Kafka timestamp: {2**63 - 1} ms)")


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(purchase(customerId='"a\\u0000b"'), id="control character"),
        pytest.param(purchase(occurredAtEpochMillis=str(KAFKA_MILLIS + HOUR)), id="both clocks ahead"),
    ],
)
def test_what_landed_by_the_first_rules_is_judged_by_them(record: Record) -> None:
    timestamp = KAFKA_MILLIS + HOUR

    assert isinstance(by_the_other(record, timestamp, landed_at=KAFKA_MILLIS, rules=1), tuple)
    assert isinstance(by_the_other(record, timestamp, landed_at=KAFKA_MILLIS, rules=2), Reason)


def test_a_landing_without_its_time_is_judged_by_kafkas() -> None:
    ahead = purchase(occurredAtEpochMillis=str(KAFKA_MILLIS + FIVE_MINUTES + 1))

    assert by_the_other(ahead, KAFKA_MILLIS, landed_at=None, rules=2) is Reason.TIMESTAMP_IN_FUTURE
    assert isinstance(by_the_other(ahead, KAFKA_MILLIS + 1, landed_at=None, rules=2), tuple)
