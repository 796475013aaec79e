"""The oracle: what every table and the view must hold, folded from the input's records in the order of their landing.

Records are ordered by (landing, partition, offset); those that landed before landings had numbers come first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

from customer_activity.catalog import Reason
from customer_activity.verification import contract
from customer_activity.verification.records import (
    ACCEPTED,
    DUPLICATE,
    GREATEST_TOTAL,
    OUTCOMES,
    QUARANTINED,
    READ,
    SAID_OF_PROFILE,
    SAID_OF_PURCHASE,
    STALE,
    Activity,
    Bought,
    Coordinates,
    Log,
    Payment,
    Place,
    Profile,
    Purchase,
    RawRecord,
    Record,
    Refused,
    Summary,
)
from customer_activity.verification.totals import Frozen, freeze, joined


@dataclass(frozen=True)
class Expected:
    """Everything that follows from the input, by customer where nothing else is said."""

    purchases: dict[str, Purchase]  # that count, by id
    summaries: dict[str, Summary]
    profiles: dict[str, Profile]  # the current ones
    profile_changes: list[Profile]  # every record that changed one, tombstones included, in the order of records
    gold: dict[str, Activity]  # rows of the view, but of those in `frozen`
    frozen: dict[str, Frozen]  # what the row may be of a customer whose total its type does not hold
    quarantine: dict[Coordinates, Refused]
    outcomes: dict[
        str, Counter[str]
    ]  # by topic, how many records were read, accepted, quarantined, duplicate and stale
    payments: dict[tuple[int, int], Payment] = field(default_factory=dict)  # all of them, by partition and offset


def judge_purchase(raw: RawRecord, place: Place, currency: str) -> Purchase | Refused:
    """Read one record of the purchase topic."""
    landing, landed_at, rules = place
    fields = contract.purchase(raw.key, raw.value, raw.timestamp, currency, landed_at=landed_at, rules=rules)
    if isinstance(fields, Reason):
        return Refused(fields, raw.partition, raw.offset, landing, raw.fingerprint)
    return Purchase(*fields, raw.partition, raw.offset, dated(raw), landing, raw.fingerprint)


def judge_payment(raw: RawRecord, place: Place) -> Payment | Refused:
    """Read one record of the payment topic."""
    landing, landed_at, rules = place
    fields = contract.payment(raw.key, raw.value, raw.timestamp, landed_at=landed_at, rules=rules)
    if isinstance(fields, Reason):
        return Refused(fields, raw.partition, raw.offset, landing, raw.fingerprint)
    return Payment(*fields, raw.partition, raw.offset, dated(raw), landing, raw.fingerprint)


def judge_profile(raw: RawRecord, place: Place) -> Profile | Refused:
    """Read one record of the profile topic."""
    landing, landed_at, rules = place
    fields = contract.profile(raw.key, raw.value, raw.timestamp, landed_at=landed_at, rules=rules)
    if isinstance(fields, Reason):
        return Refused(fields, raw.partition, raw.offset, landing, raw.fingerprint)
    return Profile(*fields, raw.partition, raw.offset, dated(raw), landing, raw.value is None, raw.fingerprint)


def dated(raw: RawRecord) -> int:
    """Return the timestamp of a record that is valid; the rules of before let every one pass."""
    return contract.UNDATED if raw.timestamp is None else raw.timestamp


def expect(purchase_log: Log, profile_log: Log, *, purchase_topic: str, profile_topic: str, currency: str) -> Expected:
    """Fold both topics' records into what the tables and the view must hold."""
    purchases, refused_purchases, purchase_outcomes = fold_purchases(purchase_log)
    profiles, changes, refused_profiles, profile_outcomes = fold_profiles(profile_log)
    summaries = summarise(purchases)
    overflowing = [customer for customer, summary in summaries.items() if summary.total_amount is None]
    quarantine = {
        (topic, refused.partition, refused.offset): refused
        for topic, all_refused in ((purchase_topic, refused_purchases), (profile_topic, refused_profiles))
        for refused in all_refused
    }
    return Expected(
        purchases,
        summaries,
        profiles,
        changes,
        join(profiles, summaries, currency),
        freeze(purchases.values(), live_profiles(profile_log, overflowing), currency),
        quarantine,
        {purchase_topic: purchase_outcomes, profile_topic: profile_outcomes},
    )


def with_payments(expected: Expected, log: Log, topic: str) -> Expected:
    """Add the payment topic's records: each valid one is a payment, whatever becomes of it."""
    payments, quarantine = {}, dict(expected.quarantine)
    for partition, records in log.items():
        for offset, record in records.items():
            if isinstance(record, Payment):
                payments[partition, offset] = record
            else:
                quarantine[topic, partition, offset] = cast("Refused", record)
    refused = len(quarantine) - len(expected.quarantine)
    counts = (len(payments) + refused, len(payments), refused, 0, 0)
    outcomes = {**expected.outcomes, topic: Counter(dict(zip(OUTCOMES, counts, strict=True)))}
    return replace(expected, payments=payments, quarantine=quarantine, outcomes=outcomes)


def in_order(log: Log) -> Iterator[Record]:
    """Return a topic's records by landing, partition and offset; those of before the numbers come first."""
    landings: dict[int, list[Record]] = {}
    for partition in sorted(log):
        records = log[partition]
        for offset in sorted(records):
            record = records[offset]
            landing = record.landing
            landings.setdefault(-1 if landing is None else landing, []).append(record)
    for landing in sorted(landings):
        yield from landings.pop(landing)


def fold_purchases(log: Log) -> tuple[dict[str, Purchase], list[Refused], Counter[str]]:
    """Count each purchase once: the first record of an id.

    Returns the counted purchases by id, what belongs in quarantine (repeats with other content, too), and the number of
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
        if first is not record and first[:SAID_OF_PURCHASE] != record[:SAID_OF_PURCHASE]:
            at = record.partition, record.offset, record.landing, record.fingerprint
            refused.append(Refused(Reason.CONFLICTING_DUPLICATE, *at))
    duplicates = records - len(refused) - len(counted)
    outcomes = (records, len(counted), len(refused), duplicates, 0)
    return counted, refused, Counter(dict(zip(OUTCOMES, outcomes, strict=True)))


def summarise(purchases: Mapping[str, Purchase]) -> dict[str, Summary]:
    """Add the counted purchases up by customer."""
    sums: dict[str, list[int]] = {}
    for _, customer_id, _, amount, _, occurred_at, _, _, _, timestamp, *_ in purchases.values():
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
        customer_id: Summary(customer_id, count, total if total <= GREATEST_TOTAL else None, first, last, timestamp)
        for customer_id, (count, total, first, last, timestamp) in sums.items()
    }


def fold_profiles(log: Log) -> tuple[dict[str, Profile], list[Profile], list[Refused], Counter[str]]:
    """Keep each customer's current profile: the newest update since the last tombstone.

    Returns the current profiles by customer, every record that changed one, what belongs in quarantine, and the number
    of records by outcome.
    """
    current: dict[str, Profile] = {}
    changes: list[Profile] = []
    refused: list[Refused] = []
    outcomes: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
    for record in in_order(log):
        outcomes[READ] += 1
        if type(record) is not Profile:
            outcomes[QUARANTINED] += 1
            refused.append(cast("Refused", record))
        elif record.is_tombstone:
            current.pop(record.customer_id, None)
            changes.append(record)
            outcomes[ACCEPTED] += 1
        else:
            outcome = _place(record, current)
            changes += [record] if outcome == ACCEPTED else []
            outcomes[outcome] += 1
    return current, changes, refused, outcomes


def live_profiles(log: Log, customers: Collection[str]) -> dict[str, list[Profile]]:
    """Return every profile of some customers that was current since their last tombstone."""
    current: dict[str, Profile] = {}
    lives: dict[str, list[Profile]] = {customer: [] for customer in customers}
    for record in in_order(log) if lives else ():
        if type(record) is not Profile or record.customer_id not in lives:
            continue
        if record.is_tombstone:
            current.pop(record.customer_id, None)
            lives[record.customer_id] = []
        elif _place(record, current) == ACCEPTED:
            lives[record.customer_id].append(record)
    return lives


def _place(update: Profile, current: dict[str, Profile]) -> str:
    """Let an update become current unless it is older than, or a repeat of, what is; return its outcome."""
    held = current.get(update.customer_id)
    if held is not None and (update.updated_at or 0) < (held.updated_at or 0):
        return STALE
    if held is not None and update[:SAID_OF_PROFILE] == held[:SAID_OF_PROFILE]:
        return DUPLICATE
    current[update.customer_id] = update
    return ACCEPTED


def join(profiles: Mapping[str, Profile], summaries: Mapping[str, Summary], currency: str) -> dict[str, Activity]:
    """Left join: one row per customer with a profile, with or without purchases, whose total its type holds."""
    gold = {}
    for customer_id, profile in profiles.items():
        bought = summaries.get(customer_id)
        if bought is None:
            gold[customer_id] = joined(profile, None, currency)
        elif bought.total_amount is not None:
            _, count, _, first, last, newest = bought
            gold[customer_id] = joined(profile, Bought(count, bought.total_amount, first, last, newest), currency)
    return gold
