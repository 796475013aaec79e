"""Compare what was found with what is expected. Pure: rows in, one named check with its differences out.

An example of a difference names a customer id, a purchase id or coordinates, and the columns that differ. Values of
columns that can identify a person are never shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from customer_activity.catalog import REPLAY, Table
from customer_activity.verification.records import (
    ACCEPTED,
    DUPLICATE,
    NOT_LANDED,
    OUTCOMES,
    QUARANTINED,
    READ,
    STALE,
    Activity,
    Coordinates,
    Payment,
    Profile,
    Purchase,
    Refused,
    Summary,
)

BRONZE, SILVER, PAYMENTS = "bronze", "silver", "payment_events"  # what their commits call themselves
EXAMPLES = 5

PURCHASE_COLUMNS = Purchase._fields[: Purchase._fields.index("fingerprint")]
PROFILE_COLUMNS = Profile._fields[: Profile._fields.index("is_tombstone")]
PAYMENT_COLUMNS = Payment._fields[: Payment._fields.index("fingerprint")]
SUMMARY_COLUMNS = Summary._fields
GOLD_COLUMNS = (*Activity._fields, "view_version")

REPLAYED = "replayed"  # brought back from quarantine, where bronze had counted them

# Only these columns' values may stand in a message.
SHOWN = frozenset(
    {"purchase_count", "total_amount", "amount", "currency", "partition", "offset", "landing", "view_version"}
)
OF_QUERY = {  # what of its counts is told by whose commits
    BRONZE: (READ, QUARANTINED),
    SILVER: (ACCEPTED, QUARANTINED, DUPLICATE, STALE),
    PAYMENTS: (READ, ACCEPTED, QUARANTINED),
}
MONEY = frozenset({"total_amount", "amount"})


class Check(NamedTuple):
    """One comparison."""

    name: str  # what was compared
    expected: int | dict[str, int]  # how many rows or records the input gives, or its counts by outcome
    observed: int | dict[str, int]
    differences: int
    examples: tuple[str, ...] = ()  # some of them, without personal values
    impossible: str = ""  # why the comparison could not be made; empty when it was

    @property
    def ok(self) -> bool:
        """Whether the comparison was made and found no difference."""
        return not self.differences and not self.impossible


class InQuarantine(NamedTuple):
    """A row of quarantine; the fingerprint is None where the topic has no such record."""

    at: Coordinates
    reason: str
    fingerprint: int | None
    landing: int | None


class Commits(NamedTuple):
    """What a table's log says about its writes."""

    first_version: int  # the oldest commit that the log still has; above 0 the log was cleaned
    metadata: Sequence[Mapping[str, Any]]  # each commit's `userMetadata`, where there is one and it is a JSON object


@dataclass
class Differences:
    """Differences counted, and a few kept as examples."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, *words: object) -> None:
        """Count one difference; its words become an example while there is room."""
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(" ".join(str(word) for word in words))

    def check(self, name: str, expected: int | dict[str, int], observed: int | dict[str, int]) -> Check:
        """Close the comparison."""
        return Check(name, expected, observed, self.count, tuple(self.examples))


def compare_rows(
    name: str, columns: Sequence[str], expected: Mapping[str, tuple[Any, ...]], rows: Iterable[tuple[Any, ...]]
) -> Check:
    """Compare a table that has one row a key, its first column, with what must be in it.

    Fields of `expected` beyond `columns` are not compared.
    """
    differences = Differences()
    width = len(columns)
    seen: set[str] = set()
    found = 0
    for row in rows:
        found += 1
        key = row[0]
        wanted = expected.get(key)
        if key in seen:
            differences.add(key, "is there more than once")
        elif wanted is None:
            differences.add(key, "should not be there")
        elif wanted[:width] != row:
            differences.add(key, "differs:", unlike(columns, wanted, row))
        seen.add(key if wanted is None else wanted[0])  # the oracle's own text: a million copies need not stay
    for key in expected:
        if key not in seen:
            differences.add(key, "is missing")
    return differences.check(name, len(expected), found)


def compare_gold(
    name: str,
    expected: Mapping[str, Activity],
    rows: Iterable[tuple[Any, ...]],
    newest: Mapping[str, Any] = {},
) -> tuple[Check, dict[str, Any]]:
    """Compare gold's rows with the oracle's; also return each customer's view version, which only gold knows.

    A right row must have the version that `newest` has of the customer: that of the newest change, if that is right.
    """
    versions: dict[str, Any] = {}
    others: dict[str, Any] = {}  # the versions that rows should have, where they have another one

    def without_version() -> Iterator[tuple[Any, ...]]:
        for row in rows:
            customer_id, version = row[0], row[-1]
            versions[customer_id] = version
            if newest.get(customer_id) not in {None, version} and expected.get(customer_id) == row[:-1]:
                others[customer_id] = newest[customer_id]
            yield row[:-1]

    check = compare_rows(name, Activity._fields, expected, without_version())
    differences = Differences(check.differences, list(check.examples))
    for customer_id, version in versions.items():
        if version is None or version < 1:
            differences.add(customer_id, "has no view_version")
        elif customer_id in others:
            differences.add(
                customer_id, f"differs: view_version (newest change {others[customer_id]}, found {version})"
            )
    return differences.check(check.name, check.expected, check.observed), versions


def compare_quarantine(expected: Mapping[Coordinates, Refused], rows: Iterable[InQuarantine]) -> tuple[Check, Check]:
    """Compare bronze.quarantine with the records that belong there.

    Returns whether each record is there exactly once with its bytes, and whether each is there for the right reason.
    """
    places, reasons = Differences(), Differences()
    seen: Counter[Coordinates] = Counter()
    agreeing = 0
    for at, reason, fingerprint, landing in rows:
        seen[at] += 1
        wanted = expected.get(at)
        if seen[at] > 1:
            places.add(_place(at), "is there more than once")
        elif wanted is None:
            places.add(_place(at), "should not be there")
        elif wanted.fingerprint != fingerprint:
            places.add(_place(at), "differs from Kafka: key, value, headers or timestamp")
        elif wanted.landing != landing:
            places.add(_place(at), f"differs: landing (expected {wanted.landing}, found {landing})")
        if wanted is not None and wanted.reason != reason:
            reasons.add(_place(at), f"expected {wanted.reason}, found {reason}")
        elif wanted is not None:
            agreeing += 1
    for at in expected:
        if at not in seen:
            places.add(_place(at), "is missing:", expected[at].reason)
    label = Table.QUARANTINE.label
    return places.check(label, len(expected), seen.total()), reasons.check(f"{label}: reasons", len(expected), agreeing)


def compare_totals(expected: Collection[str], customers: Iterable[str]) -> Check:
    """Compare the customers of whom quarantine says that their total does not fit with those of whom it is so."""
    differences = Differences()
    found = Counter(customers)
    for customer_id, times in found.items():
        if customer_id not in expected:
            differences.add(customer_id, "should not be there")
        elif times > 1:
            differences.add(customer_id, "is there more than once")
    for customer_id in expected:
        if customer_id not in found:
            differences.add(customer_id, "is missing")
    return differences.check(f"{Table.QUARANTINE.label}: totals", len(expected), found.total())


def compare_accounting(
    topic: str, landed: Table, expected: Mapping[str, int], commits: Mapping[Table, Commits], *, is_moving: bool = False
) -> Check:
    """Compare a topic's counts by outcome, as the commits of bronze and silver carry them, with the oracle's.

    The check is not possible while commits count records that the oracle was not given, because they arrived meanwhile.

    Args:
        topic: whose records.
        landed: the bronze table of the topic's records.
        expected: the oracle's counts, by outcome.
        commits: what the tables' logs say.
        is_moving: whether records have arrived since the oracle was given the topic.
    """
    name = f"accounting of {topic}"
    wanted = {outcome: expected[outcome] for outcome in OUTCOMES}
    if is_moving:
        return Check(name, wanted, {}, 0, impossible="records arrived meanwhile, which the batches count too")
    cleaned = [f"{table.label} begins at version {first}" for table, (first, _) in commits.items() if first]
    if cleaned:
        return Check(name, wanted, {}, 0, impossible=f"the log was cleaned: {', '.join(cleaned)}")
    # What silver judged is told by its own tables: quarantine's commits tell it, too, also of what was retracted since.
    told = [
        (table, metadata)
        for table, (_, all_metadata) in commits.items()
        for metadata in all_metadata
        if (table, metadata.get("query")) != (Table.QUARANTINE, SILVER)
    ]
    counted = _sum_batches(topic, landed, told)
    differences = Differences()
    for outcome in OUTCOMES:
        if counted[outcome] != wanted[outcome]:
            differences.add(f"{outcome}: expected {wanted[outcome]}, counted {counted[outcome]}")
    if counted[READ] != sum(counted[outcome] for outcome in OUTCOMES if outcome != READ):
        differences.add("read is not accepted + quarantined + duplicate + stale")
    return differences.check(name, wanted, counted)


def _sum_batches(topic: str, landed: Table, told: Iterable[tuple[Table, Mapping[str, Any]]]) -> dict[str, int]:
    """Add up the batches' counts: what bronze read and refused, and what silver made of the rest.

    A batch, or a part of one, writes several commits, each with the counts known by then, and counts only grow: the
    greatest of each is the batch's, or the part's. Where they tell of different reads, it landed in two attempts,
    between which Kafka compacted the topic: each table has what its own commit tells.
    """
    attempts: dict[tuple[Any, ...], dict[Table, Counter[str]]] = {}
    for table, commit in told:
        if commit.get("query") in (BRONZE, SILVER, PAYMENTS, REPLAY):
            counts: dict[str, int] = commit.get("counts", {}).get(topic, {})
            batch = (commit["query"], commit.get("generation"), commit.get("batch_id"), commit.get("upto"))
            of_batch = attempts.setdefault(batch, {})
            of_batch[table] = of_batch.get(table, Counter[str]()) | Counter[str](counts)
    batches = {batch: _together(landed, of_batch) for batch, of_batch in attempts.items()}
    total: Counter[str] = Counter()
    is_judged = all(query != PAYMENTS for (query, *_), counted in batches.items() if counted)  # by silver
    for (query, *_), counted in batches.items():
        if query == REPLAY:
            total[QUARANTINED] -= counted[REPLAYED]
            total[ACCEPTED] += 0 if is_judged else counted[REPLAYED]
            continue
        of_query = OF_QUERY[str(query)]
        for outcome in of_query:
            total[outcome] += counted[outcome]
    return {outcome: total[outcome] for outcome in OUTCOMES}


def _together(landed: Table, attempts: Mapping[Table, Counter[str]]) -> Counter[str]:
    counts = reduce(or_, attempts.values())
    if len({of[READ] for of in attempts.values()}) > 1:
        for own, outcome in ((landed, ACCEPTED), (Table.QUARANTINE, QUARANTINED)):
            counts[outcome] = attempts[own][outcome] if own in attempts else 0
        counts[READ] = counts[ACCEPTED] + counts[QUARANTINED]
    return counts


def unlike(columns: Sequence[str], expected: Sequence[Any], observed: Sequence[Any]) -> str:
    """Name the columns that differ, with both values where they tell nothing about a person."""
    return ", ".join(
        f"{column} (expected {_shown(column, wanted)}, found {_shown(column, found)})" if column in SHOWN else column
        for column, wanted, found in zip(columns, expected, observed, strict=False)
        if wanted != found
    )


def _shown(column: str, value: Any) -> str:
    if column == "landing" and value == NOT_LANDED:
        return "none: not in bronze"
    return f"{value // 100}.{value % 100:02}" if column in MONEY and isinstance(value, int) else str(value)


def _place(at: Coordinates) -> str:
    return f"{at[0]}-{at[1]}@{at[2]}"
