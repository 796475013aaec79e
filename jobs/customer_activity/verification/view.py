"""The view topic, record by record: each follows the contract, versions grow, and nothing is repeated.

The state is kept between readings, so that waiting for a publisher reads on instead of beginning again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from customer_activity.verification import traces
from customer_activity.verification.comparison import Check, Differences, unlike
from customer_activity.verification.contract import json_value
from customer_activity.verification.lake import Landed
from customer_activity.verification.landing import is_too_large
from customer_activity.verification.numbers import NumberText
from customer_activity.verification.records import Activity, RawRecord
from customer_activity.verification.traces import Traces

# Fields of a value in the order of gold's columns.
FIELDS: dict[str, type | tuple[type, ...]] = {
    "customerId": str,
    "name": str,
    "email": (str, type(None)),
    "address": (str, type(None)),
    "loyaltyStatus": (str, type(None)),
    "profileUpdatedAtEpochMillis": int,
    "purchaseCount": int,
    "totalAmount": NumberText,
    "currency": str,
    "firstPurchaseAtEpochMillis": (int, type(None)),
    "lastPurchaseAtEpochMillis": (int, type(None)),
    "asOfEpochMillis": int,
    "viewVersion": int,
}
FRAME_BYTES = 100  # what a batch of one record has beside key and value, at most; and what headers have beside theirs
LARGE_BYTES = 1 << 16  # no topic takes less
EXACT_CENTS = re.compile(r"(0|[1-9][0-9]*)\.([0-9]{2})")


class Repeat(NamedTuple):
    """A record that says what the one of its key before it said."""

    key: str
    place: str
    after: int  # the newest version before
    version: int | None  # None of a tombstone


class Change(NamedTuple):
    """A change of gold to a row: at which version, and whether it took the row away."""

    view_version: int
    is_gone: bool


@dataclass
class ViewTopic:
    """What was seen on the view topic so far."""

    records: int = 0
    # By key, the row and version of the newest record; None after a tombstone.
    last: dict[str, tuple[Activity, int] | None] = field(default_factory=dict)
    newest_version: dict[str, int] = field(default_factory=dict)  # by key, over deletes too
    malformed: Differences = field(default_factory=Differences)  # records that break the contract
    not_growing: Differences = field(default_factory=Differences)  # records whose version is not above all before it
    repeated: list[Repeat] = field(default_factory=list)  # records that say again what the record before said
    traces: dict[str, str] = field(default_factory=dict)  # by key, that of the newest record, where it has one
    large: dict[str, int] = field(default_factory=dict)  # by key, the bytes of the newest record, where it has many
    # By key, the newest row, version and bytes of what is in quarantine because the topic takes none so large.
    held: dict[str, tuple[Activity, int, int]] = field(default_factory=dict)

    def take(self, topic: str, records: Iterable[RawRecord]) -> None:
        """Add records, a partition's in offset order."""
        for raw in records:
            self.records += 1
            place = f"{topic}-{raw.partition}@{raw.offset}"
            try:
                key, state = parse(raw)
            except ValueError as fault:
                self.malformed.add(place, fault)
                continue
            newest = self.newest_version.get(key, 0)
            if key in self.last and _content(self.last[key]) == _content(state):
                self.repeated.append(Repeat(key, place, newest, None if state is None else state[1]))
            if state is not None:
                version = state[1]
                if version <= newest:
                    self.not_growing.add(key, f"at {place}: viewVersion {version} after {newest}")
                self.newest_version[key] = max(version, newest)
            self.last[key] = state
            self._note_trace(key, raw)

    def _note_trace(self, key: str, raw: RawRecord) -> None:
        """Keep the trace on a record, and how large one is that may have had no room for it."""
        for of_newest in (self.traces, self.large):
            of_newest.pop(key, None)
        if trace := traces.of(raw.headers):
            self.traces[key] = trace
        elif (size := len(raw.key or b"") + len(raw.value or b"")) > LARGE_BYTES:
            self.large[key] = size

    def trace_checks(
        self,
        wanted: Traces,
        expected: Mapping[str, Activity],
        customers: Collection[str] | None = None,
        largest: int = 0,
    ) -> Iterator[Check]:
        """Compare the traces on records with those that they must have; one goes without where there was no room."""
        rows = {key: _content(state) for key, state in self.last.items() if customers is None or key in customers}
        known = {
            key: row
            for key, row in expected.items()
            if self.large.get(key, 0) + len(wanted.wanted.get(key, "")) <= largest - 2 * FRAME_BYTES
        }
        yield from wanted.check(rows, self.traces, known)

    def holding(self, topic: str, quarantine: Iterable[Landed]) -> Iterator[Landed]:
        """Keep what never went out to the topic, and pass on what else is in quarantine."""
        for row in quarantine:
            if row.topic != topic or not is_too_large(row):
                yield row
                continue
            try:
                key, state = parse(row.raw)
            except ValueError:  # not as we publish: the customer's row is found to be missing
                continue
            if state is not None and (key not in self.held or self.held[key][1] < state[1]):
                self.held[key] = (*state, len(row.raw.key or b"") + len(row.raw.value or b""))

    def checks(
        self,
        expected: Mapping[str, Activity],
        versions: Mapping[str, Any],
        customers: Collection[str] | None = None,
        largest: int = 0,
        changed: Callable[[Collection[str]], Mapping[str, Collection[Change]]] = lambda _: {},
    ) -> list[Check]:
        """Compare the last values with the rows expected and gold's versions; report on the records one by one.

        Args:
            expected: the rows, by customer.
            versions: gold's, by customer.
            customers: only these are compared, where they are given.
            largest: how many bytes the topic takes; a row of more may be in quarantine instead.
            changed: returns how gold changed the rows of customers. A row that changed and changed back while nothing
                was published is published again, and one that came and went while it was too large is deleted again.
        """
        live = {
            key: state
            for key, state in self.last.items()
            if state is not None and (customers is None or key in customers)
        }
        differences = Differences()
        held = 0
        for customer_id, wanted in expected.items():
            state = live.get(customer_id)
            kept = self.held.get(customer_id)
            is_kept = kept is not None and kept[:2] == (wanted, versions.get(customer_id))
            if kept is not None and is_kept and kept[2] > largest - FRAME_BYTES:
                held += 1
                continue
            if state is None:
                differences.add(customer_id, "is missing")
                continue
            row, version = state
            if row != wanted:
                differences.add(customer_id, "differs:", unlike(Activity._fields, wanted, row))
            elif versions.get(customer_id, version) != version:
                differences.add(customer_id, f"differs: view_version (gold {versions[customer_id]}, topic {version})")
        for customer_id in live.keys() - expected.keys():
            differences.add(customer_id, "should have been deleted")
        changes = changed({repeat.key for repeat in self.repeated}) if self.repeated else {}
        repeated = Differences()
        for repeat in self.repeated:
            if not any(_explains(change, repeat) for change in changes.get(repeat.key, ())):
                repeated.add(repeat.key, f"at {repeat.place}: the same as the record before")
        return [
            differences.check("view: last values", len(expected), len(live)),
            *([Check("view: too large, in quarantine", held, held, 0)] if held else []),
            self.malformed.check("view: contract", self.records, self.records - self.malformed.count),
            self.not_growing.check("view: versions grow", self.records, self.records - self.not_growing.count),
            repeated.check("view: nothing twice", self.records, self.records - repeated.count),
        ]


def parse(raw: RawRecord) -> tuple[str, tuple[Activity, int] | None]:
    """Read a record of the view topic; return its key, and the row with its version, or None for a tombstone.

    Raises:
        ValueError: it breaks the contract; the message has no values in it.
    """
    if not raw.key:
        raise ValueError("has no key")
    try:
        key = raw.key.decode()
        text = None if raw.value is None else raw.value.decode()
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    if text is None:
        return key, None
    fields = _fields(text)
    money = EXACT_CENTS.fullmatch(fields["totalAmount"])
    if money is None:
        raise ValueError("totalAmount has not exactly two decimals")
    if fields["customerId"] != key:
        raise ValueError("customerId is not the key")
    if fields["viewVersion"] < 1:
        raise ValueError("viewVersion is less than 1")
    fields["totalAmount"] = int(money[1] + money[2])
    row = [fields[name] for name in FIELDS if name != "viewVersion"]
    return key, (Activity(*row), fields["viewVersion"])


def _fields(text: str) -> dict[str, Any]:
    """Parse a value and check that it has the contract's fields, each of its type."""
    try:
        fields = json_value(text)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(fields, dict) or fields.keys() != FIELDS.keys():
        raise ValueError("does not have exactly the contract's fields")
    for name, kind in FIELDS.items():
        if not isinstance(fields[name], kind) or isinstance(fields[name], bool):
            raise ValueError(f"{name} is of the wrong type")  # noqa: TRY004 - the input is wrong, not the program
    return fields


def _explains(change: Change, repeat: Repeat) -> bool:
    """Whether a row was another one in between."""
    if repeat.version is None:
        return change.view_version > repeat.after and not change.is_gone
    return repeat.after < change.view_version < repeat.version


def _content(state: tuple[Activity, int] | None) -> Activity | None:
    return None if state is None else state[0]
