"""What verification compares: records of the topics and rows of the tables, as tuples.

Fields stand in the order of the table's columns, so that a row read from a table compares with one `==`. Amounts are
cents, times are milliseconds since 1970.
"""

from __future__ import annotations

from typing import NamedTuple

from customer_activity.catalog import Reason

READ, ACCEPTED, QUARANTINED, DUPLICATE, STALE = OUTCOMES = ("read", "accepted", "quarantined", "duplicate", "stale")

GREATEST_TOTAL = 10**18 - 1  # cents: what decimal(18,2) holds
NOT_LANDED = 1 << 62  # in the place of a landing's number: after every one
FIRST_RULES, NEWEST_RULES = 1, 4  # versions of the contract's rules

Headers = tuple[tuple[str, bytes | None], ...]
Coordinates = tuple[str, int, int]  # topic, partition, offset


class RawRecord(NamedTuple):
    """A record as Kafka or bronze has it; the timestamp is None where it is none that a table holds."""

    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def fingerprint(self) -> int:
        """A 64-bit hash of the bytes, keyed by process: equal for equal records, and practically never else."""
        return hash(self[2:])


class Place(NamedTuple):
    """Where bronze put a record in the order of all, and by which rules it was judged."""

    landing: int | None  # number of the landing; None where a release landed it that had no numbers, before all others
    landed_at: int | None  # when, milliseconds; None where that decided nothing
    rules: int  # version of the contract's rules that were in force


BEFORE_NUMBERS = Place(None, None, FIRST_RULES)
NOWHERE = Place(NOT_LANDED, None, NEWEST_RULES)


class Purchase(NamedTuple):
    """A valid purchase record; its fields but the last are silver.purchases' columns."""

    purchase_id: str
    customer_id: str
    product_id: str | None
    amount: int
    currency: str
    occurred_at: int
    risk_score: int | None
    partition: int
    offset: int
    kafka_timestamp: int
    landing: int | None
    fingerprint: int


class Payment(NamedTuple):
    """A valid payment record; its fields but the last are relation `payments` of what streams declare."""

    purchase_id: str
    payment_id: str
    customer_id: str | None
    amount: int
    currency: str
    confirmed_at: int
    partition: int
    offset: int
    kafka_timestamp: int
    landing: int | None
    fingerprint: int


class Profile(NamedTuple):
    """A valid profile record; its fields but the last two are silver.customer_profiles' columns.

    A tombstone has no name.
    """

    customer_id: str
    name: str | None
    email: str | None
    address: str | None
    loyalty_status: str | None
    updated_at: int | None
    partition: int
    offset: int
    kafka_timestamp: int
    landing: int | None
    is_tombstone: bool
    fingerprint: int


class Refused(NamedTuple):
    """A record that belongs in quarantine."""

    reason: Reason
    partition: int
    offset: int
    landing: int | None
    fingerprint: int


class Summary(NamedTuple):
    """What a customer bought; columns of silver.purchase_summaries. A total that does not fit its type is None."""

    customer_id: str
    purchase_count: int
    total_amount: int | None
    first_purchase_at: int
    last_purchase_at: int
    last_kafka_timestamp: int


class Activity(NamedTuple):
    """A row of the view; columns of gold.customer_activity without `view_version`, which only the pipeline can know."""

    customer_id: str
    name: str | None
    email: str | None
    address: str | None
    loyalty_status: str | None
    profile_updated_at: int | None
    purchase_count: int
    total_amount: int
    currency: str
    first_purchase_at: int | None
    last_purchase_at: int | None
    as_of: int


class Bought(NamedTuple):
    """What a customer had bought at some moment; as in Summary."""

    purchase_count: int
    total_amount: int
    first_purchase_at: int
    last_purchase_at: int
    last_kafka_timestamp: int


# How many fields of each are what the record itself says; those of its place come next.
SAID_OF_PURCHASE, SAID_OF_PROFILE, SAID_OF_PAYMENT = (
    kind._fields.index("partition") for kind in (Purchase, Profile, Payment)
)
Record = Purchase | Profile | Payment | Refused
Log = dict[int, dict[int, Record]]  # partition, offset
