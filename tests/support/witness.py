"""Looks at a pipeline's tables and topic: after each step for what must never be, at the end for everything."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from decimal import Decimal
from typing import Any

from deltalake import DeltaTable

from customer_activity.catalog import Reason, Table, table_path
from support.expected import MOST, Expected, Landed, Row, expected
from support.lives import PATH
from support.living import Appended, Ledger, LivingPipeline
from support.records import PROFILES, PURCHASES
from support.streams import Query
from support.worlds import Sent

Place = tuple[str, int, int]
BRONZE = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.QUARANTINE)
SIDES = (Table.PURCHASES, Table.PROFILE_CHANGES)
TOTAL_OUT_OF_RANGE = "total_out_of_range"
LATER = (Reason.CONFLICTING_DUPLICATE, Reason.TOO_LARGE_TO_PUBLISH, TOTAL_OUT_OF_RANGE)  # silver's, publish's, gold's


class Witness:
    """Knows what was sent and what every commit appended."""

    def __init__(self, pipeline: LivingPipeline) -> None:
        """Begin with an empty lake."""
        self.pipeline = pipeline
        self.lake = pipeline.settings.lake
        self.ledgers = {table: Ledger(self.lake, table) for table in (*PATH, Table.QUARANTINE)}
        self.sent: dict[Place, Sent] = {}
        self.landed: list[Landed] = []
        self.looked_at = dict.fromkeys(self.ledgers, 0)
        self.gold: dict[str, Row] = {}
        self.changes_seen = 0
        self.view_versions: dict[str, int] = {}
        self.view_seen = 0
        self.quarantine: list[dict[str, Any]] = []

    def keep_books(self) -> None:
        """Read what was committed, before anything can take it away."""
        for ledger in self.ledgers.values():
            ledger.update()

    def read_anew(self, table: Table) -> None:
        """Forget what was read of a table: it was put back to what it was."""
        if table in self.ledgers:
            self.ledgers[table] = Ledger(self.lake, table)
            self.looked_at[table] = 0

    def look(self, *, bronze_is_through: bool) -> None:
        """See that nothing is wrong, whoever has come how far."""
        self.keep_books()
        landed = [_place(row) for table in BRONZE for row in self.ledgers[table].rows() if _of_bronze(table, row)]
        assert len(landed) == len({*landed}), "a record landed twice"
        if bronze_is_through:
            assert {*landed} == {entry.place for entry in self.landed}, "not everything landed"
        new = {table: self._new(table) for table in self.ledgers}
        for table in BRONZE:
            for row in (row for commit in new[table] for row in commit.rows if _of_bronze(table, row)):
                assert row.get("reason") == self.sent[_place(row)].reason, "accepted or refused by another rule"
        counted = Counter(row["purchase_id"] for row in self.ledgers[Table.PURCHASES].rows())
        assert not [key for key, times in counted.items() if times > 1], "a purchase counts twice"
        for commit in new[Table.ACTIVITY_CHANGES]:
            if commit.rows:
                self._gold_is_of_one_pair(commit)
        self._view_versions_grow()

    def _new(self, table: Table) -> list[Appended]:
        commits = self.ledgers[table].commits
        new = commits[self.looked_at[table] :]
        self.looked_at[table] = len(commits)
        return new

    def _gold_is_of_one_pair(self, commit: Appended) -> None:
        """Every state of gold is the join of silver as it was at the versions that gold names."""
        purchases, changes = ([*self.ledgers[table].rows(position(commit.note, table))] for table in SIDES)
        gold, joined, frozen = self.changes_of_gold(commit.version), _joined(purchases, changes), _frozen(purchases)
        ended = {row["customer_id"] for row in changes[self.changes_seen :] if row["is_tombstone"]}
        for customer in frozen:
            # As it was when its total was last right, unless the profile has ended since.
            last_right = self.gold.get(customer)
            right = last_right if customer in joined and customer not in ended else None
            assert gold.get(customer) == right, "a row whose total is out of range is not as it was last right"
        assert without(gold, frozen) == without(joined, frozen), "gold is not the join of silver"
        self.gold, self.changes_seen = gold, len(changes)

    def _view_versions_grow(self) -> None:
        for customer, value in self.pipeline.view.records[self.view_seen :]:
            if value is not None:
                assert value["viewVersion"] > self.view_versions.get(customer, 0), "a view version did not grow"
                self.view_versions[customer] = value["viewVersion"]
        self.view_seen = len(self.pipeline.view.records)

    def prove(self) -> Expected:
        """See that all tables and the topic say what follows from the records; return that."""
        wanted = expected(self.landed)
        counted = {row["purchase_id"]: _place({"topic": PURCHASES, **row}) for row in self.rows(Table.PURCHASES)}
        others = {key[:20] for key, _ in counted.items() ^ wanted.purchases.items()}
        assert not others, f"other purchases count: {sorted(others)[:3]}"
        self.quarantine = self.rows(Table.QUARANTINE)
        refused = [row for row in self.quarantine if row["reason"] == Reason.CONFLICTING_DUPLICATE]
        told = {_place(row) for row in refused}
        assert told == wanted.conflicts, f"other repeats are in quarantine: {sorted(told ^ wanted.conflicts)[:3]}"
        assert len(refused) == len(wanted.conflicts), "a repeat is in quarantine twice"
        sums = self.rows(Table.SUMMARIES)
        assert {row["customer_id"]: (row["purchase_count"], row["total_amount"]) for row in sums} == {
            customer: (count, None if customer in wanted.frozen else total)
            for customer, (count, total) in wanted.summaries.items()
        }, "other summaries"
        current = self.rows(Table.PROFILES)
        assert {row["customer_id"]: row["address"] for row in current} == wanted.addresses, "other profiles"
        gold = self.changes_of_gold()
        for customer in wanted.frozen & gold.keys():
            is_of_this_life = gold[customer].address in wanted.lives.get(customer, set())
            assert is_of_this_life, "a row whose total is out of range outlived its profile"
        view = without(gold, wanted.frozen)
        assert view == wanted.view, f"other changes of gold: {_differing(view, wanted.view)}"
        assert {row["customer_id"]: _row(row) for row in self.rows(Table.ACTIVITY)} == gold, "other rows in gold"
        too_large = self.too_large()
        topic, gold = without(self._on_topic(), too_large), without(gold, too_large)
        assert topic == gold, f"other records on the topic: {_differing(topic, gold)}"
        traces = {customer: self.pipeline.view.headers[customer].get("traceparent", b"") for customer in topic}
        right = {customer: trace for customer, trace in wanted.traces.items() if customer in topic}
        assert traces.items() >= {item for item in right.items() if item[0] not in wanted.frozen}, "another trace"
        frozen = self._in_quarantine(TOTAL_OUT_OF_RANGE)
        assert frozen == dict.fromkeys(wanted.frozen, 1), "quarantine does not tell once of each total out of range"
        self._every_record_has_one_outcome()
        return wanted

    def too_large(self) -> set[str]:
        """Return the customers who have had a row that the topic does not take, when all was proven last."""
        return {*self._in_quarantine(Reason.TOO_LARGE_TO_PUBLISH)}

    def _in_quarantine(self, reason: str) -> Counter[str]:
        return Counter(row["key"].decode() for row in self.quarantine if row["reason"] == reason)

    def _on_topic(self) -> dict[str, Row]:
        exactly = json.JSONDecoder(parse_float=Decimal, parse_int=Decimal).decode
        sent = {key.decode(): exactly(value.decode()) for key, value in self.pipeline.view.values.items() if value}
        return {
            customer: Row(value["address"], int(value["purchaseCount"]), value["totalAmount"])
            for customer, value in sent.items()
        }

    def _every_record_has_one_outcome(self) -> None:
        """By topic, what the commits count as read is what was sent, and each of it ended in one way."""
        batches: dict[tuple[str, int, str], Counter[str]] = {}
        for table in (*BRONZE, *SIDES):
            for note in (commit.note for commit in self.ledgers[table].commits):
                for topic, counts in note.get("counts", {}).items():
                    batch = note["query"], note["batch_id"], topic
                    known = batches.get(batch, Counter[str]())
                    batches[batch] = known | Counter[str](counts)  # of a batch's commits the last counts most
        for topic in (PURCHASES, PROFILES):
            of_topic = {query: Counter[str]() for query in Query}
            for (query, _, counted), counts in batches.items():
                of_topic[Query(query)] += counts if counted == topic else Counter()
            bronze, silver = of_topic[Query.BRONZE], of_topic[Query.SILVER]
            assert bronze["read"] == sum(entry.topic == topic for entry in self.landed)
            assert bronze["read"] == bronze["quarantined"] + silver.total()

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """Return what a table has now, as delta-rs reads it."""
        rows: list[dict[str, Any]] = DeltaTable(table_path(self.lake, table)).to_pyarrow_table().to_pylist()
        return rows

    def changes_of_gold(self, upto: int | None = None) -> dict[str, Row]:
        """Return the newest change of each customer, of those up to a version."""
        newest = {change["customer_id"]: change for change in self.ledgers[Table.ACTIVITY_CHANGES].rows(upto)}
        return {customer: _row(change) for customer, change in newest.items() if not change["is_gone"]}


def position(note: dict[str, Any], table: Table) -> int:
    """Return the version of a table up to which gold had read when it wrote a note."""
    return int(note[table.label])


def _row(row: dict[str, Any]) -> Row:
    return Row(row["address"], row["purchase_count"], row["total_amount"])


def _place(row: dict[str, Any]) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def _of_bronze(table: Table, row: dict[str, Any]) -> bool:
    """Whether a row is where its record landed: silver and publish put rows into quarantine, too."""
    return table is not Table.QUARANTINE or row["reason"] not in LATER


def without(rows: dict[str, Row], customers: set[str]) -> dict[str, Row]:
    """Leave out the rows of some customers."""
    return {customer: row for customer, row in rows.items() if customer not in customers}


def _differing(found: dict[str, Row], wanted: dict[str, Row]) -> str:
    """Show the rows of customers that differ, and not too much of them."""
    keys = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    return "; ".join(f"{key[:20]}: {str(found.get(key))[:80]} and not {str(wanted.get(key))[:80]}" for key in keys[:3])


def _frozen(purchases: list[dict[str, Any]]) -> set[str]:
    totals: dict[str, Decimal] = defaultdict(Decimal)
    for row in purchases:
        totals[row["customer_id"]] += row["amount"]
    return {customer for customer, total in totals.items() if total > MOST}


def _joined(purchases: list[dict[str, Any]], changes: list[dict[str, Any]]) -> dict[str, Row]:
    bought: dict[str, list[Decimal]] = {}
    for row in purchases:
        bought.setdefault(row["customer_id"], []).append(row["amount"])
    current = {row["customer_id"]: row for row in changes}
    return {
        customer: Row(row["address"], len(bought.get(customer, [])), sum(bought.get(customer, []), Decimal(0)))
        for customer, row in current.items()
        if not row["is_tombstone"]
    }
