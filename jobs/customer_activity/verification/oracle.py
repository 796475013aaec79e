"""The oracle: what every table and the view must hold, folded from the input's records in offset order.

Records are tuples whose fields stand in the order of the table's columns, so that a row read from a table compares
with one `==`. Amounts are cents, times are milliseconds since 1970.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from customer_activity.catalog import Reason
from customer_activity.verification import contract

READ, ACCEPTED, QUARANTINED, DUPLICATE, STALE = OUTCOMES = ("read", "accepted", "quarantined", "duplicate", "stale")

Headers = tuple[tuple[str, bytes | None], ...]
Coordinates = tuple[str, int, int]  # topic, partition, offset


class RawRecord(NamedTuple):
    """A record as Kafka or bronze has it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def fingerprint(self) -> int:
        """A 64-bit hash of the bytes, keyed anew in every process: equal for equal records, else as good as never."""
        return hash(self[2:])


class Purchase(NamedTuple):
    """A valid purchase record; the first nine fields are silver.purchases' columns."""

    purchase_id: str
    customer_id: str
    product_id: str | None
    amount: int
    currency: str
    occurred_at: int
    partition: int
    offset: int
    kafka_timestamp: int
    fingerprint: int


class Profile(NamedTuple):
    """A valid profile record; the first nine fields are silver.customer_profiles' columns. A tombstone has no name."""

    customer_id: str
    name: str | None
    email: str | None
    address: str | None
    loyalty_status: str | None
    updated_at: int | None
    partition: int
    offset: int
    kafka_timestamp: int
    is_tombstone: bool
    fingerprint: int


class Refused(NamedTuple):
    """A record that belongs in quarantine."""

    reason: Reason
    partition: int
    offset: int
    fingerprint: int


class Summary(NamedTuple):
    """What a customer bought; columns of silver.purchase_summaries."""

    customer_id: str
    purchase_count: int
    total_amount: int
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


Record = Purchase | Profile | Refused
Log = dict[int, dict[int, Record]]  # partition, offset


@dataclass(frozen=True)
class Expected:
    """Everything that follows from the input.

    Attributes:
        purchases: counted purchases by id.
        summaries: by customer.
        profiles: the current ones, by customer.
        gold: rows of the view by customer.
        quarantine: every record that belongs there, by its coordinates.
        outcomes: how many records of each topic were read, accepted, quarantined, duplicate and stale.
    """

    purchases: dict[str, Purchase]
    summaries: dict[str, Summary]
    profiles: dict[str, Profile]
    gold: dict[str, Activity]
    quarantine: dict[Coordinates, Refused]
    outcomes: dict[str, Counter[str]]


def judge_purchase(raw: RawRecord, currency: str) -> Purchase | Refused:
    """Read one record of the purchase topic."""
    fields = contract.purchase(raw.key, raw.value, raw.timestamp, currency)
    if isinstance(fields, Reason):
        return Refused(fields, raw.partition, raw.offset, raw.fingerprint)
    return Purchase(*fields, raw.partition, raw.offset, raw.timestamp, raw.fingerprint)


def judge_profile(raw: RawRecord) -> Profile | Refused:
    """Read one record of the profile topic."""
    fields = contract.profile(raw.key, raw.value, raw.timestamp)
    if isinstance(fields, Reason):
        return Refused(fields, raw.partition, raw.offset, raw.fingerprint)
    return Profile(*fields, raw.partition, raw.offset, raw.timestamp, raw.value is None, raw.fingerprint)


def expect(purchase_log: Log, profile_log: Log, *, purchase_topic: str, profile_topic: str, currency: str) -> Expected:
    """Fold both topics' records into what the tables and the view must hold."""
    purchases, refused_purchases, purchase_outcomes = fold_purchases(purchase_log)
    profiles, refused_profiles, profile_outcomes = fold_profiles(profile_log)
    summaries = summarise(purchases)
    quarantine = {
        (topic, refused.partition, refused.offset): refused
        for topic, all_refused in ((purchase_topic, refused_purchases), (profile_topic, refused_profiles))
        for refused in all_refused
    }
    return Expected(
        purchases,
        summaries,
        profiles,
        join(profiles, summaries, currency),
        quarantine,
        {purchase_topic: purchase_outcomes, profile_topic: profile_outcomes},
    )


def in_order(log: Log) -> Iterator[Record]:
    """Return a topic's records by partition and offset."""
    for partition in sorted(log):
        records = log[partition]
        yield from map(records.__getitem__, sorted(records))


def fold_purchases(log: Log) -> tuple[dict[str, Purchase], list[Refused], Counter[str]]:
    """Count each purchase once: the first record of an id.

    Returns:
        The counted purchases by id, what belongs in quarantine (repeats with other content included), and the number of
        records by outcome.
    """
    counted: dict[str, Purchase] = {}
    refused: list[Refused] = []
    records = 0
    for record in in_order(log):
        records += 1
        if type(record) is not Purchase:
            refused.append(cast("Refused", record))
            continue
        first = counted.setdefault(record[0], record)
        if first is not record and first[1:6] != record[1:6]:
            refused.append(Refused(Reason.CONFLICTING_DUPLICATE, record.partition, record.offset, record.fingerprint))
    duplicates = records - len(refused) - len(counted)
    return counted, refused, _outcomes(records, len(counted), len(refused), duplicates, 0)


def summarise(purchases: Mapping[str, Purchase]) -> dict[str, Summary]:
    """Add the counted purchases up by customer."""
    sums: dict[str, list[int]] = {}
    for _, customer_id, _, amount, _, occurred_at, _, _, timestamp, _ in purchases.values():
        total = sums.get(customer_id)
        if total is None:
            sums[customer_id] = [1, amount, occurred_at, occurred_at, timestamp]
            continue
        total[0] += 1
        total[1] += amount
        if occurred_at < total[2]:  # noqa: PLR1730 - min() and max() take three times as long
            total[2] = occurred_at
        if occurred_at > total[3]:  # noqa: PLR1730
            total[3] = occurred_at
        if timestamp > total[4]:  # noqa: PLR1730
            total[4] = timestamp
    return {
        customer_id: Summary(customer_id, count, amount, first, last, timestamp)
        for customer_id, (count, amount, first, last, timestamp) in sums.items()
    }


def fold_profiles(log: Log) -> tuple[dict[str, Profile], list[Refused], Counter[str]]:
    """Keep each customer's current profile: the newest update since the last tombstone.

    Returns:
        The current profiles by customer, what belongs in quarantine, and the number of records by outcome.
    """
    current: dict[str, Profile] = {}
    refused: list[Refused] = []
    outcomes = _outcomes(0, 0, 0, 0, 0)
    for record in in_order(log):
        outcomes[READ] += 1
        if type(record) is not Profile:
            outcomes[QUARANTINED] += 1
            refused.append(cast("Refused", record))
        elif record.is_tombstone:
            current.pop(record.customer_id, None)
            outcomes[ACCEPTED] += 1
        else:
            outcomes[_place(record, current)] += 1
    return current, refused, outcomes


def _place(update: Profile, current: dict[str, Profile]) -> str:
    """Let an update become current unless it is older than, or a repeat of, what is; return its outcome."""
    held = current.get(update.customer_id)
    if held is not None and (update.updated_at or 0) < (held.updated_at or 0):
        return STALE
    if held is not None and update[:6] == held[:6]:
        return DUPLICATE
    current[update.customer_id] = update
    return ACCEPTED


def join(profiles: Mapping[str, Profile], summaries: Mapping[str, Summary], currency: str) -> dict[str, Activity]:
    """Left join: one row per customer with a profile, with or without purchases."""
    gold = {}
    for customer_id, profile in profiles.items():
        bought = summaries.get(customer_id)
        if bought is None:
            gold[customer_id] = Activity(*profile[:6], 0, 0, currency, None, None, profile.kafka_timestamp)
            continue
        _, count, total, first, last, newest = bought
        as_of = max(newest, profile.kafka_timestamp)
        gold[customer_id] = Activity(*profile[:6], count, total, currency, first, last, as_of)
    return gold


def _outcomes(read: int, accepted: int, quarantined: int, duplicate: int, stale: int) -> Counter[str]:
    return Counter({READ: read, ACCEPTED: accepted, QUARANTINED: quarantined, DUPLICATE: duplicate, STALE: stale})
