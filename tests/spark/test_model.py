"""Whatever is sent, in whatever order the hops take it, and wherever they crash: what is in the tables is right.

Hypothesis sends records, lets hops take batches, ends batches at fail points and repeats them as Spark would, and looks
at the tables after every step. The hops, their commits and the Delta tables are the real ones; Kafka is a list.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from pyspark.sql import SparkSession

from customer_activity.catalog import Query, Table, table_path
from customer_activity.failpoints import FailPoint
from customer_activity.microbatch import metadata_of
from customer_activity.settings import Settings
from support.quick_pipeline import QuickPipeline
from support.records import PROFILES, PURCHASES, Record, profile, purchase, tombstone

EXAMPLES, STEPS = 200, 12
CUSTOMERS, PURCHASE_IDS = ("C-1", "C-2", "C-3"), ("P-1", "P-2", "P-3", "P-4", "P-5")
BRONZE = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.QUARANTINE)

purchases = st.builds(
    purchase, st.sampled_from(PURCHASE_IDS), st.sampled_from(CUSTOMERS), st.sampled_from(("1.10", "2.20"))
)
profiles = st.builds(profile, st.sampled_from(CUSTOMERS), st.integers(1, 4), address=st.sampled_from(("Old", "New")))
bad = st.sampled_from((Record(PURCHASES, b"P-9", b"{"), Record(PROFILES, b"C-9", b"[]")))
records = st.one_of(purchases, purchases, profiles, st.builds(tombstone, st.sampled_from(CUSTOMERS)), bad)


class Crash(Exception):
    """Raised at a fail point, as if the process had ended there."""


class Row(NamedTuple):
    """What the view says of a customer."""

    address: str
    purchase_count: int
    total: Decimal


# Where a query's batch can end. The others of the fail points are Spark's and upkeep's.
POINTS = dict.fromkeys(Query, (FailPoint.STAGED, FailPoint.COMMITTED))
POINTS[Query.PUBLISH] = (FailPoint.SENDING, FailPoint.PUBLISHED)
WRITES = {Query.BRONZE: 3, Query.SILVER: 3}  # tables that a batch may write to; of the other queries one
places = st.sampled_from(Query).flatmap(
    lambda query: st.tuples(st.just(query), st.sampled_from(POINTS[query]), st.integers(1, WRITES.get(query, 1)))
)


class Expected(NamedTuple):
    """What follows from records, told from the contracts' rules alone."""

    purchases: set[str]
    summaries: dict[str, tuple[int, Decimal]]
    view: dict[str, Row]


def expected(sent: Iterable[tuple[str, int, int, Record]]) -> Expected:
    """Recompute the view: a purchase counts by its first record, a profile by the newest update since a tombstone."""
    counted: dict[str, dict[str, Any]] = {}
    current: dict[str, tuple[int, str]] = {}
    for _, _, _, record in sorted(sent, key=lambda entry: entry[:3]):
        key = (record.key or b"").decode()
        if record.topic == PROFILES and record.value is None:
            current.pop(key, None)
        elif key not in ("P-9", "C-9"):
            fields = record.fields()
            if record.topic == PURCHASES:
                counted.setdefault(key, fields)
            elif key not in current or fields["updatedAtEpochMillis"] >= current[key][0]:
                current[key] = (fields["updatedAtEpochMillis"], fields["address"])
    bought: dict[str, list[Decimal]] = {}
    for fields in counted.values():
        bought.setdefault(fields["customerId"], []).append(fields["amount"])
    summaries = {customer: (len(amounts), sum(amounts, Decimal(0))) for customer, amounts in bought.items()}
    view = {
        customer: Row(address, *summaries.get(customer, (0, Decimal(0)))) for customer, (_, address) in current.items()
    }
    return Expected(set(counted), summaries, view)


class Life(RuleBasedStateMachine):
    """A pipeline's life: records come, hops take them, drivers crash and come back."""

    spark: ClassVar[SparkSession]
    empty_lake: ClassVar[Path]

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="life-"))
        shutil.copytree(self.empty_lake, self.folder / "lake")
        lake = Settings(lake=str(self.folder / "lake"), run_dir=self.folder / "run")
        self.pipeline = QuickPipeline(self.spark, lake)
        self.sent: list[tuple[str, int, int, Record]] = []
        self.unfinished: set[Query] = set()
        self.view_versions: dict[str, int] = {}
        self.seen = 0

    @rule(batch=st.lists(records, min_size=1, max_size=6))
    def send(self, batch: list[Record]) -> None:
        self._send(batch)

    def _send(self, batch: list[Record]) -> None:
        before = len(self.pipeline.sent)
        self.pipeline.send(*batch)
        self.sent += self.pipeline.sent[before:]

    @rule(query=st.sampled_from(Query))
    def take(self, query: Query) -> None:
        self._finish(query)
        self.pipeline.hop(query)

    @rule(place=places, news=st.lists(records, max_size=6))
    def crash(self, place: tuple[Query, FailPoint, int], news: list[Record]) -> None:
        """Take a batch and end where it comes to a fail point for the nth time; one that does not come there ends well.

        The later a query is on the way, the rarer it has anything to take: those before it bring it the news.
        """
        query, point, left = place
        self._send(news)
        for before in list(Query)[: list(Query).index(query)] if news else ():
            self.take(before)
        self._finish(query)

        def reach(at: FailPoint) -> None:
            nonlocal left
            left -= at is point
            if at is point and left == 0:
                raise Crash

        try:
            self.pipeline.hop(query, reach)
        except Crash:
            self.unfinished.add(query)

    @rule(loses_indexes=st.booleans())
    def restart(self, loses_indexes: bool) -> None:
        self.pipeline.restart(loses_indexes=loses_indexes)

    def _finish(self, query: Query) -> None:
        """A new driver begins with the batch that the last one did not end; its indexes are read anew."""
        if query in self.unfinished:
            self.pipeline.repeat(query)
            self.unfinished.discard(query)

    @invariant()
    def every_record_lands_once_and_in_order(self) -> None:
        """I1, I2: coordinates are unique; those of a finished bronze are all that were sent and taken."""
        landed = [at for table in BRONZE for at in self._rows(table, "topic", "partition", "offset")]
        conflicts = self._conflicts()
        assert len(landed) - conflicts == len({*landed})
        if Query.BRONZE not in self.unfinished:
            taken = {entry[:3] for entry in self.sent} - {entry[:3] for entry in self.pipeline.sent}
            assert {*landed} == taken

    @invariant()
    def a_purchase_counts_once(self) -> None:
        """I3: no purchase id is in silver twice."""
        counted = Counter(self._rows(Table.PURCHASES, "purchase_id"))
        assert not [key for key, times in counted.items() if times > 1]

    @invariant()
    def gold_is_that_of_one_pair_of_silver_versions(self) -> None:
        """I4, I8: every state of gold is the join of silver as it was at the versions that gold names."""
        log = DeltaTable(self._path(Table.ACTIVITY_CHANGES))
        if log.version() == 0:
            return
        note = metadata_of(log.history(1)[0].get("userMetadata"))
        at = {table: note[table.label] for table in (Table.PURCHASES, Table.PROFILE_CHANGES)}
        assert self._gold() == self._joined(at)

    @invariant()
    def view_versions_grow(self) -> None:
        """I6: on the topic a customer's versions grow."""
        for customer, value in self.pipeline.view.records[self.seen :]:
            if value is not None:
                assert value["viewVersion"] > self.view_versions.get(customer, 0)
                self.view_versions[customer] = value["viewVersion"]
        self.seen = len(self.pipeline.view.records)

    def teardown(self) -> None:
        """Let everything through: all tables and the topic say what follows from the records."""
        if not hasattr(self, "pipeline"):
            return
        for query in Query:
            self._finish(query)
            self.pipeline.hop(query)
        wanted = expected(self.sent)
        assert {key for (key,) in self._rows(Table.PURCHASES, "purchase_id")} == wanted.purchases
        self._current_rows_follow(wanted)
        gold = {
            customer: Row(address, count, total)
            for customer, address, count, total in self._rows(
                Table.ACTIVITY, "customer_id", "address", "purchase_count", "total_amount"
            )
        }
        assert gold == wanted.view
        view = {
            customer: Row(value["address"], value["purchaseCount"], Decimal(str(value["totalAmount"])))
            for customer, value in self.pipeline.view.latest().items()
        }
        assert view == wanted.view
        self._either_side_changes_the_view(view)
        self._every_record_has_one_outcome()
        self.pipeline.index.close()
        self.pipeline.state.close()
        shutil.rmtree(self.folder)

    def _current_rows_follow(self, wanted: Expected) -> None:
        """I3: what was merged is there once: sums that are added to would show it first."""
        sums = self._rows(Table.SUMMARIES, "customer_id", "purchase_count", "total_amount")
        assert {customer: (count, total) for customer, count, total in sums} == wanted.summaries
        addresses = {customer: row.address for customer, row in wanted.view.items()}
        assert dict(self._rows(Table.PROFILES, "customer_id", "address")) == addresses

    def _either_side_changes_the_view(self, view: dict[str, Row]) -> None:
        """I5: a profile alone changes a customer's row and sends one record, and so does a purchase alone."""
        concerned = sorted(view)[:2]
        alone = [profile(customer, 9, address="Elsewhere") for customer in concerned[:1]]
        self._send(alone + [purchase("P-new", customer) for customer in concerned[1:]])
        before = len(self.pipeline.view.records)
        for query in (Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH):
            self.pipeline.hop(query)
        after = expected(self.sent).view
        assert self._gold() == after
        assert sorted(customer for customer, _ in self.pipeline.view.records[before:]) == concerned
        assert all(after[customer] != view[customer] for customer in concerned)

    def _every_record_has_one_outcome(self) -> None:
        """I7: by topic, what the commits count as read is what was sent, and each of it ended in one way."""
        batches: dict[tuple[str, int, str], Counter[str]] = {}
        for table in (*BRONZE, Table.PURCHASES, Table.PROFILE_CHANGES):
            for entry in DeltaTable(self._path(table)).history():
                note = metadata_of(entry.get("userMetadata"))
                for topic, counts in note.get("counts", {}).items():
                    batch = note["query"], note["batch_id"], topic
                    known = batches.get(batch, Counter[str]())
                    batches[batch] = known | Counter[str](counts)  # of a batch's commits the last counts most
        for topic in (PURCHASES, PROFILES):
            of_topic = {query: Counter[str]() for query in Query}
            for (query, _, counted), counts in batches.items():
                of_topic[Query(query)] += counts if counted == topic else Counter()
            bronze, silver = of_topic[Query.BRONZE], of_topic[Query.SILVER]
            assert bronze["read"] == sum(record.topic == topic for *_, record in self.sent)
            assert bronze["read"] == bronze["quarantined"] + silver.total()

    def _path(self, table: Table) -> str:
        return table_path(self.pipeline.settings.lake, table)

    def _rows(self, table: Table, *columns: str, version: int | None = None) -> list[tuple[Any, ...]]:
        if version is not None and version < 0:  # gold had seen nothing of it yet
            return []
        rows = DeltaTable(self._path(table), version=version).to_pyarrow_table(columns=list(columns))
        return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))

    def _conflicts(self) -> int:
        """Records that bronze accepted and silver quarantined: they are in two tables."""
        return sum(reason == "conflicting_duplicate" for (reason,) in self._rows(Table.QUARANTINE, "reason"))

    def _gold(self) -> dict[str, Row]:
        """The newest change of each customer."""
        newest: dict[str, tuple[Any, ...]] = {}
        for change in sorted(
            self._rows(
                Table.ACTIVITY_CHANGES,
                *("view_version", "customer_id", "is_gone", "address", "purchase_count", "total_amount"),
            )
        ):
            newest[change[1]] = change
        return {customer: Row(*change[3:]) for customer, change in newest.items() if not change[2]}

    def _joined(self, at: dict[Table, int]) -> dict[str, Row]:
        bought: dict[str, list[Decimal]] = {}
        for customer, amount in self._rows(Table.PURCHASES, "customer_id", "amount", version=at[Table.PURCHASES]):
            bought.setdefault(customer, []).append(amount)
        current: dict[str, tuple[Any, ...]] = {}
        for change in sorted(
            self._rows(
                Table.PROFILE_CHANGES,
                *("partition", "offset", "customer_id", "is_tombstone", "address"),
                version=at[Table.PROFILE_CHANGES],
            ),
            key=lambda change: change[:2],
        ):
            current[change[2]] = change
        return {
            customer: Row(change[4], len(bought.get(customer, [])), sum(bought.get(customer, []), Decimal(0)))
            for customer, change in current.items()
            if not change[3]
        }


@pytest.mark.timeout(1200)
def test_every_life_ends_in_the_right_view(spark: SparkSession, empty_lake: Path) -> None:
    Life.spark, Life.empty_lake = spark, empty_lake
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        ),
    )
