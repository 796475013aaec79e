"""What follows from records that landed, told from the contracts' rules alone; and what kind of record each one was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple

from customer_activity.catalog import Reason
from support.records import PROFILES, PURCHASES
from support.streams import Query
from support.worlds import AHEAD_MS, HUGE, LARGE_BYTES, OTHERS_HEADERS, PLAIN, Sent

MOST = Decimal("9999999999999999.99")  # what a total may say: decimal(18,2)


class Landed(NamedTuple):
    """A record with the number of the batch in which it landed, and its coordinates."""

    landing: int
    topic: str
    partition: int
    offset: int
    sent: Sent

    @property
    def place(self) -> tuple[str, int, int]:
        """Where it is in Kafka."""
        return self[1:4]


class Row(NamedTuple):
    """What the view says of a customer."""

    address: str | None
    purchase_count: int
    total: Decimal


class Expected(NamedTuple):
    """What the tables have to say.

    Attributes:
        purchases: by purchase id, where the record is that counts.
        conflicts: where the repeats with other content are.
        summaries: by customer, how many purchases and their total, however large.
        addresses: by customer with a profile, its address.
        frozen: customers whose total is out of range.
        lives: by customer, the addresses that its profile has had since its last tombstone.
        traces: by customer with a profile, the `traceparent` of the record that the row is as new as; empty: none.
    """

    purchases: dict[str, tuple[str, int, int]]
    conflicts: set[tuple[str, int, int]]
    summaries: dict[str, tuple[int, Decimal]]
    addresses: dict[str, str | None]
    frozen: set[str]
    lives: dict[str, set[str | None]]
    traces: dict[str, bytes]

    @property
    def view(self) -> dict[str, Row]:
        """The row of each customer with a profile whose total is in range."""
        nothing = (0, Decimal(0))
        return {
            customer: Row(address, *self.summaries.get(customer, nothing))
            for customer, address in self.addresses.items()
            if customer not in self.frozen
        }


CONTENT = ("customerId", "productId", "amount", "currency", "occurredAtEpochMillis", "riskScore")


def expected(landed: Iterable[Landed]) -> Expected:
    """Judge records in the order of landing, partition and offset.

    A purchase counts by its first record; a profile is the newest update since a tombstone.
    """
    counted: dict[str, tuple[Landed, dict[str, Any]]] = {}
    conflicts = set()
    current: dict[str, tuple[int, str | None]] = {}
    stamps: dict[str, tuple[int, bytes]] = {}  # of current profiles
    lives: dict[str, set[str | None]] = {}
    for entry in sorted(landed, key=lambda entry: (entry.landing, entry.partition, entry.offset)):
        record = entry.sent.record
        if entry.sent.reason is not None:
            continue
        key = (record.key or b"").decode()
        if record.topic == PROFILES and record.value is None:
            current.pop(key, None)
            lives.pop(key, None)
            continue
        fields = record.fields()
        if record.topic == PURCHASES:
            _, first = counted.setdefault(key, (entry, fields))
            if [first.get(name) for name in CONTENT] != [fields.get(name) for name in CONTENT]:
                conflicts.add(entry.place)
        elif key not in current or fields["updatedAtEpochMillis"] >= current[key][0]:
            current[key] = (fields["updatedAtEpochMillis"], fields["address"])
            stamps[key] = _stamp(entry)
            lives.setdefault(key, set()).add(fields["address"])
    newest: dict[str, tuple[int, bytes]] = {}
    for record_of, fields in counted.values():
        newest[fields["customerId"]] = max(_stamp(record_of), newest.get(fields["customerId"], (0, b"")))
    bought: dict[str, list[Decimal]] = {}
    for _, fields in counted.values():
        bought.setdefault(fields["customerId"], []).append(Decimal(fields["amount"]))
    summaries = {customer: (len(amounts), sum(amounts, Decimal(0))) for customer, amounts in bought.items()}
    return Expected(
        {key: first.place for key, (first, _) in counted.items()},
        conflicts,
        summaries,
        {customer: address for customer, (_, address) in current.items()},
        {customer for customer, (_, total) in summaries.items() if total > MOST},
        lives,
        {customer: max(newest.get(customer, (0, b"")), stamps[customer], key=itemgetter(0))[1] for customer in current},
    )


def _stamp(entry: Landed) -> tuple[int, bytes]:
    record = entry.sent.record
    return record.timestamp_ms, dict(record.headers).get("traceparent") or b""


class Kind(StrEnum):
    """What a record is, by what it says and by what came before it."""

    PURCHASE = "purchase of a customer with a profile"
    EARLY = "purchase before the profile"
    REPEAT = "repeated purchase"
    CONFLICT = "repeat with other content"
    PROFILE = "first profile"
    LATE = "first profile after purchases"
    UPDATE = "newer profile"
    STALE = "older profile"
    TOMBSTONE = "tombstone"
    NOTHING_GOES = "tombstone of nothing"
    RETURN = "profile after a tombstone"
    MOVED = "key on another partition"
    ODD_ID = "odd id"
    CONTROL_ID = "control character in an id"
    ODD_TEXT = "odd text"
    HUGE = "greatest amount"
    OUT_OF_RANGE = "total out of range"
    HEADERS = "other client's headers"
    CLOCK_AHEAD = "clock ahead"
    FUTURE = "event of the future"
    LARGE = "megabyte"
    BAD = "bad record"


EVERY = frozenset(Query)
OF_PURCHASES = EVERY - {Query.PROFILES}
OF_PROFILES = EVERY - {Query.SUMMARIES}
# The queries whose batches have records of a kind in them, where these are not all, and why.
MEETS: Mapping[Kind, tuple[frozenset[Query], str]] = {
    **dict.fromkeys((Kind.BAD, Kind.CONTROL_ID, Kind.FUTURE), (frozenset({Query.BRONZE}), "bronze refuses it")),
    **dict.fromkeys(
        (Kind.REPEAT, Kind.CONFLICT, Kind.STALE, Kind.NOTHING_GOES),
        (frozenset({Query.BRONZE, Query.SILVER}), "silver appends nothing for it"),
    ),
    **dict.fromkeys(
        (Kind.EARLY, Kind.OUT_OF_RANGE),
        (OF_PURCHASES - {Query.PUBLISH, Query.ACTIVITY}, "gold appends nothing for it"),
    ),
    Kind.MOVED: (OF_PROFILES, "a purchase whose key has moved is a repeat, and summaries reads nothing else"),
    **dict.fromkeys((Kind.PURCHASE, Kind.HUGE), (OF_PURCHASES, "profiles reads no purchase")),
    **dict.fromkeys(
        (Kind.PROFILE, Kind.LATE, Kind.UPDATE, Kind.TOMBSTONE, Kind.RETURN, Kind.ODD_TEXT, Kind.CLOCK_AHEAD),
        (OF_PROFILES, "summaries reads no profile"),
    ),
}


def meets(kind: Kind) -> frozenset[Query]:
    """Return the queries that meet records of a kind."""
    return MEETS[kind][0] if kind in MEETS else EVERY


@dataclass
class History:
    """What was sent so far, to tell what kind of record the next one is."""

    profiles: dict[str, int | None] = field(default_factory=dict)  # None: it was removed
    purchases: dict[str, dict[str, Any]] = field(default_factory=dict)
    totals: dict[str, Decimal] = field(default_factory=dict)
    places: dict[tuple[str, bytes | None], int] = field(default_factory=dict)

    def kinds(self, sent: Sent, partition: int) -> frozenset[Kind]:
        """Tell the kinds of a record that is sent to a partition."""
        record = sent.record
        if sent.reason is not None:
            refused = {Reason.TIMESTAMP_IN_FUTURE: Kind.FUTURE, Reason.OUT_OF_RANGE: Kind.CONTROL_ID}
            return frozenset({Kind.BAD if b"BAD" in (record.key or b"") else refused.get(sent.reason, Kind.BAD)})
        key = (record.key or b"").decode()
        found = {self._of_profile(key, sent) if record.topic == PROFILES else self._of_purchase(key, sent)}
        if self.places.setdefault((record.topic, record.key), partition) != partition:
            found.add(Kind.MOVED)
        self.places[record.topic, record.key] = partition
        if record.headers == OTHERS_HEADERS:
            found.add(Kind.HEADERS)
        if record.timestamp_ms == AHEAD_MS:
            found.add(Kind.CLOCK_AHEAD)
        if len(record.value or b"") > LARGE_BYTES:
            found.add(Kind.LARGE)
        if record.value is not None:
            found |= self._of_texts(record.fields())
        return frozenset(found)

    def _of_profile(self, key: str, sent: Sent) -> Kind:
        held = self.profiles.get(key)
        if sent.record.value is None:
            if held is None:
                return Kind.NOTHING_GOES
            self.profiles[key] = None
            return Kind.TOMBSTONE
        updated = sent.record.fields()["updatedAtEpochMillis"]
        if held is not None and updated < held:
            return Kind.STALE
        is_first = key not in self.profiles
        self.profiles[key] = updated
        if held is not None:
            return Kind.UPDATE
        if not is_first:
            return Kind.RETURN
        return Kind.LATE if key in self.totals else Kind.PROFILE

    def _of_purchase(self, key: str, sent: Sent) -> Kind:
        fields = sent.record.fields()
        if key in self.purchases:
            first = self.purchases[key]
            alike = [first.get(name) for name in CONTENT] == [fields.get(name) for name in CONTENT]
            return Kind.REPEAT if alike else Kind.CONFLICT
        self.purchases[key] = fields
        customer = fields["customerId"]
        self.totals[customer] = self.totals.get(customer, Decimal(0)) + Decimal(fields["amount"])
        if self.totals[customer] > MOST:
            return Kind.OUT_OF_RANGE
        return Kind.EARLY if self.profiles.get(customer) is None else Kind.PURCHASE

    @staticmethod
    def _of_texts(fields: dict[str, Any]) -> set[Kind]:
        found = set()
        if fields["customerId"] not in PLAIN:
            found.add(Kind.ODD_ID)
        if str(fields.get("amount")) == HUGE:
            found.add(Kind.HUGE)
        if any(
            not text.isalnum() for text in (fields.get("address", "Old"), fields.get("name", "Ada")) if text is not None
        ):
            found.add(Kind.ODD_TEXT)
        return found
