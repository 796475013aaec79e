"""An input topic as Kafka and bronze together hold it, and bronze compared with it.

Compaction and retention remove records from Kafka that bronze or quarantine still hold. Those are taken from the lake's
raw columns, so that the oracle sees everything that the pipeline saw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from customer_activity.catalog import Reason
from customer_activity.verification import traces
from customer_activity.verification.comparison import (
    PAYMENT_COLUMNS,
    PROFILE_COLUMNS,
    PURCHASE_COLUMNS,
    Check,
    Differences,
    InQuarantine,
    unlike,
)
from customer_activity.verification.lake import Landed, Tombstone
from customer_activity.verification.order import Notes, Order, Run
from customer_activity.verification.records import (
    NOT_LANDED,
    NOWHERE,
    SAID_OF_PAYMENT,
    SAID_OF_PROFILE,
    SAID_OF_PURCHASE,
    Log,
    Payment,
    Place,
    Profile,
    Purchase,
    RawRecord,
    Record,
    Refused,
)

# What bronze has beside the raw columns; the coordinates are compared by finding the record at all.
LANDED_COLUMNS: dict[type[Record], tuple[str, ...]] = {
    Purchase: PURCHASE_COLUMNS[:SAID_OF_PURCHASE],
    Profile: (*PROFILE_COLUMNS[:SAID_OF_PROFILE], "is_tombstone"),
    Payment: PAYMENT_COLUMNS[:SAID_OF_PAYMENT],
}


@dataclass
class TopicInput:
    """One input topic up to the end that was noted at the start."""

    topic: str
    judge: Callable[[RawRecord, Place], Record]  # reads a record by the rules that were in force at its place
    begin: dict[int, int]  # first offset that Kafka still has, by partition
    end: dict[int, int]  # end offset (exclusive), by partition
    is_compacted: bool  # whether Kafka removes records from the middle, too
    notes: Notes  # what bronze's commits say of its landings
    log: Log = field(default_factory=dict)  # every record by partition and offset
    read: int = 0  # records from Kafka
    from_lake: int = 0  # records from the lake, because Kafka has them no longer
    beyond: int = 0  # rows of the lake past the end, because input still arrives
    present: dict[int, int] = field(default_factory=dict)  # end offset after the tables were opened, by partition
    # Where Kafka removes records from the middle: the offset of each key's newest record, by partition and by hash of
    # the key. It is a tombstone of the lake where Kafka has removed that, too.
    newest: dict[int, dict[int, int]] = field(default_factory=dict)
    # Up to where (exclusive) it is known whose records arrived after the end, by partition.
    followed: dict[int, int] = field(default_factory=dict)
    moving: set[str] = field(default_factory=set)  # those customers
    traces: dict[tuple[int, int], str] = field(default_factory=dict)  # by partition and offset, of those that have one

    def take(self, records: Iterable[RawRecord], order: Order) -> None:
        """Add what Kafka has; `order` tells where bronze has put it by now."""
        for partition in self.end:
            self.log.setdefault(partition, {})
        log, judge = self.log, self.judge
        runs = dict.fromkeys(self.end, Run(-1, -1, NOWHERE))  # where each partition's last record was: mostly the next
        for raw in records:
            partition, offset = raw[0], raw[1]
            run = runs[partition]
            if not run[0] <= offset <= run[1]:
                run = runs[partition] = order.of(partition, offset)
            log[partition][offset] = judge(raw, run[2])
            if self.is_compacted:
                self.newest.setdefault(partition, {})[hash(raw.key)] = offset
            if raw.headers:
                self._note_trace(raw, run[2])
            self.read += 1

    def _note_trace(self, raw: RawRecord, place: Place) -> None:
        """Keep the trace that a record's headers name, where the rules at its place keep it."""
        trace = traces.of(raw.headers) if place.rules >= traces.KEEPS_TRACES else ""
        if trace:
            self.traces[raw.partition, raw.offset] = trace
        else:
            self.traces.pop((raw.partition, raw.offset), None)

    def know_tombstones(self, found: Iterable[Tombstone]) -> None:
        """Take note of the tombstones that the lake has: compaction removes them from Kafka in the end."""
        for partition, offset, key in found:
            if offset < self.end.get(partition, 0):
                of_partition = self.newest.setdefault(partition, {})
                of_partition[hash(key)] = max(offset, of_partition.get(hash(key), -1))

    def follow(self, records: Iterable[RawRecord], upto: dict[int, int]) -> None:
        """Take note of whose records arrived after the end; one that is refused changes nobody's row."""
        judged = (self.judge(raw, NOWHERE) for raw in records)
        self.moving.update(
            record.customer_id for record in judged if not isinstance(record, Refused) and record.customer_id
        )
        self.followed = upto

    def find(self, row: Landed, *, decides: bool) -> Record | None:
        """Return the record at a landed row's coordinates: Kafka's, or the row's own where Kafka has removed it.

        A record that had not landed when it was read from Kafka gets its place from the row, and where the row
        `decides`, any other. None means that Kafka never had a record there.
        """
        raw = row.raw
        of_partition = self.log.get(raw.partition)
        if of_partition is None or raw.offset is None:
            return None
        record = of_partition.get(raw.offset)
        if record is None:
            is_new = self._was_removed(raw)
            self.from_lake += is_new
        else:
            is_open = decides or record.landing == NOT_LANDED
            is_new = is_open and record.landing != row.landing and record.fingerprint == raw.fingerprint
        if is_new:
            place = self.notes.place(row.landing, row.landed_at)
            record = of_partition[raw.offset] = self.judge(raw, place)
            self._note_trace(raw, place)
        return record

    def _was_removed(self, raw: RawRecord) -> bool:
        """Whether Kafka may have had a record that it does not have.

        Retention removes what is before the first offset. Compaction leaves the newest record of each key, but for a
        tombstone, which is removed, too, after a time; and what has no key.
        """
        partition, offset = raw.partition, raw.offset
        if not 0 <= offset < self.end[partition]:
            return False
        if offset < self.begin.get(partition, 0):
            return True
        if not self.is_compacted:
            return False
        is_growing = self.present.get(partition, 0) > self.end[partition]  # with the key's newest record, perhaps
        is_replaced = offset < self.newest.get(partition, {}).get(hash(raw.key), -1)
        return is_replaced or is_growing or raw.key is None or raw.value is None

    def covers(self) -> dict[int, int]:
        """Return the first offset that is seen by partition, but for partitions that are seen whole."""
        firsts = {
            partition: min([begin, *self.log.get(partition, {})]) for partition, begin in self.begin.items() if begin
        }
        return {partition: first for partition, first in sorted(firsts.items()) if first}

    def within(self, rows: Iterable[Landed]) -> Iterator[Landed]:
        """Pass the rows on that are not past the end, and count the others; those that Kafka cannot have had go on."""
        end, present = self.end, self.present
        for row in rows:
            partition, offset = row.raw.partition, row.raw.offset
            is_placed = offset is not None  # else the row is damaged
            if is_placed and partition in present and end.get(partition, 0) <= offset < present[partition]:
                self.beyond += 1
            else:
                yield row


def compare_landed(
    name: str, source: TopicInput, kind: type[Purchase | Profile | Payment], rows: Iterable[Landed]
) -> Check:
    """Compare a bronze table with its topic: every valid record exactly once, byte for byte, and read correctly."""
    differences = Differences()
    columns = LANDED_COLUMNS[kind]
    seen: dict[int, set[int]] = {partition: set() for partition in source.log}
    found = 0
    for row in source.within(rows):
        topic, raw, fields = row.topic, row.raw, row.columns
        found += 1
        record = (
            source.find(row, decides=raw.offset not in seen.get(raw.partition, ())) if topic == source.topic else None
        )
        if record is None:
            differences.add(_place(topic, raw), "is not on the topic")
            continue
        if raw.offset in seen[raw.partition]:
            differences.add(_place(topic, raw), "is there more than once")
        seen[raw.partition].add(record.offset)  # the log's own number: a million copies need not stay
        if isinstance(record, Refused):
            differences.add(_place(topic, raw), "belongs in quarantine:", record.reason)
        elif record.fingerprint != raw.fingerprint:
            differences.add(_place(topic, raw), "differs from Kafka: key, value, headers or timestamp")
        elif (wanted := _fields(record)) != fields:
            differences.add(_place(topic, raw), "was read wrongly:", unlike(columns, wanted, fields))
    valid = 0
    for partition, records in source.log.items():
        of_kind = [offset for offset, record in records.items() if type(record) is kind]
        valid += len(of_kind)
        for offset in sorted(set(of_kind) - seen[partition]):
            differences.add(f"{source.topic}-{partition}@{offset} is missing")
    return differences.check(name, valid, found)


def quarantined(sources: Iterable[TopicInput], rows: Iterable[Landed]) -> list[InQuarantine]:
    """Reduce quarantine's rows to what is compared of them."""
    by_topic = {source.topic: source for source in sources}
    reduced: list[InQuarantine] = []
    for row in rows:
        raw, source = row.raw, by_topic.get(row.topic)
        at = (row.topic, raw.partition, raw.offset)
        if source is None:
            reduced.append(InQuarantine(at, row.columns[0], None, row.landing))
        elif any(True for _ in source.within([row])):
            source.find(row, decides=False)
            reduced.append(InQuarantine(at, row.columns[0], raw.fingerprint, row.landing))
    return reduced


def is_too_large(row: Landed) -> bool:
    """Whether a row of quarantine is a record that was too large to publish: never sent, it has no coordinates."""
    return row.columns[0] == Reason.TOO_LARGE_TO_PUBLISH and row.raw.offset is None


def without_totals(rows: Iterable[Landed], customers: list[str]) -> Iterator[Landed]:
    """Pass on what is in quarantine, but note of whose totals it says that they do not fit: those are no records."""
    for row in rows:
        if row.columns[0] == Reason.TOTAL_OUT_OF_RANGE:
            customers.append((row.raw.key or b"").decode(errors="replace"))
        else:
            yield row


def _fields(record: Purchase | Profile | Payment) -> tuple[Any, ...]:
    if isinstance(record, Purchase):
        return record[:SAID_OF_PURCHASE]
    if isinstance(record, Payment):
        return record[:SAID_OF_PAYMENT]
    return *record[:SAID_OF_PROFILE], record.is_tombstone


def _place(topic: str, raw: RawRecord) -> str:
    return f"{topic}-{raw.partition}@{raw.offset}"
