"""Gold's rule, against a model that looks at one customer at a time and at all records so far."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain, cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import executors
from customer_activity.lake.datafiles import ROW_GROUP_BYTES, ROW_GROUP_ROWS
from customer_activity.lake.pieces import Piece
from customer_activity.state import profile_records
from customer_activity.state.sorted_runs import BUCKETS, Run
from customer_activity.streams.gold import state, tasks
from customer_activity.streams.gold.rows import as_columns
from customer_activity.streams.gold.sums import summarised, totalled
from customer_activity.streams.silver import profile_tasks, profiles
from customer_activity.streams.silver.tasks import Work as SilverWork

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
CENT = Decimal("0.01")
MB = 1 << 20
LARGEST = Decimal("9999999999999999.99")
LEAST_OUT_OF_RANGE = LARGEST + CENT


class Bought(NamedTuple):
    """A purchase: its amount, and when it came about and was recorded, in seconds."""

    customer: str
    amount: Decimal = CENT
    seconds: int | None = 0
    recorded: float = 0


class Said(NamedTuple):
    """A profile record at its place in the order of records; one without a name is a tombstone."""

    customer: str
    name: str | None
    place: tuple[int, int, int] = (0, 0, 0)
    recorded: float = 0
    email: str | None = None


Record = Bought | Said


@dataclass
class Customer:
    """What the model knows of one.

    Attributes:
        purchases: all of them.
        latest: the last profile record, by its place.
        row: what gold has; None where it has none.
    """

    purchases: list[Bought] = field(default_factory=list)
    latest: Said | None = None
    row: dict[str, Any] | None = None

    def take(self, records: Iterable[Record]) -> dict[str, Any] | None:
        """Take a batch in; return the change of gold, if there is one."""
        has_ended = False
        for record in records:
            if isinstance(record, Bought):
                self.purchases.append(record)
                continue
            has_ended |= record.name is None
            if self.latest is None or record.place >= self.latest.place:
                self.latest = record
        total = sum((bought.amount for bought in self.purchases), Decimal())
        is_beyond = total >= LEAST_OUT_OF_RANGE
        existed = self.row is not None
        profile = self.latest
        if profile is None or profile.name is None or (is_beyond and has_ended):
            self.row = None
            return {"existed": True, "is_gone": True, **NO_ROW} if existed else None
        if is_beyond:
            return None
        times = [at(bought.seconds) for bought in self.purchases if bought.seconds is not None]
        row = {
            "name": profile.name,
            "email": profile.email,
            "purchase_count": len(self.purchases),
            "total_amount": total,
            "first_purchase_at": min(times, default=None),
            "last_purchase_at": max(times, default=None),
            "as_of": at(max([profile.recorded, *(bought.recorded for bought in self.purchases)])),
        }
        if row == self.row:
            return None
        self.row = row
        return {"existed": existed, "is_gone": False, **row}


NO_ROW = {
    "name": None,
    "email": None,
    "purchase_count": 0,
    "total_amount": Decimal(0),
    "first_purchase_at": None,
    "last_purchase_at": None,
    "as_of": None,
}


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


def purchases(records: Iterable[Record]) -> pa.Table:
    rows = [
        {
            "customer_id": record.customer,
            "amount": record.amount,
            "occurred_at": None if record.seconds is None else at(record.seconds),
            "kafka_timestamp": at(record.recorded),
        }
        for record in records
        if isinstance(record, Bought)
    ]
    return pa.Table.from_pylist(rows, arrow_schema(Table.PURCHASES))


def profile_changes(records: Iterable[Record]) -> pa.Table:
    rows = [
        {
            "customer_id": record.customer,
            "name": record.name,
            "email": record.email,
            "kafka_timestamp": at(record.recorded),
            **dict(zip(("landing", "partition", "offset"), record.place, strict=True)),
            "is_tombstone": record.name is None,
        }
        for record in records
        if isinstance(record, Said)
    ]
    return pa.Table.from_pylist(rows, arrow_schema(Table.PROFILE_CHANGES))


def expected(batches: Sequence[Sequence[Record]]) -> list[list[dict[str, Any]]]:
    """Return what the model says of each batch, in the order of customers."""
    customers: dict[str, Customer] = {}
    told = []
    for batch in batches:
        changes = []
        for customer in sorted({record.customer for record in batch}):
            known = customers.setdefault(customer, Customer())
            change = known.take(record for record in batch if record.customer == customer)
            changes += [] if change is None else [{"customer_id": customer, **change}]
        told.append(changes)
    return told


def in_driver(batches: Sequence[Sequence[Record]]) -> list[list[dict[str, Any]]]:
    """Return what changes of each batch by local state."""
    told: list[list[dict[str, Any]]] = []
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(state.NEEDS.tables)
        for batch in batches:
            said = profile_changes(batch)
            parts = state.take_in(
                connection,
                totalled([summarised(purchases(batch))]),
                profile_records.newest(said),
                state.with_an_end(said),
                partial(with_a_row, list(chain.from_iterable(told))),
            )
            changes = [as_columns(part.rows, "EUR", 1) for part in parts]
            told.append([row for rows in changes for row in compared(rows)])
    return told


def on_executors(batches: Sequence[Sequence[Record]], *, adds: Sequence[bool] = (True,)) -> list[list[dict[str, Any]]]:
    """Return what changes of each batch by sorted runs; those that add nothing to them are read again, as the past."""
    told: list[list[dict[str, Any]]] = []
    runs: dict[int, Sequence[Run]] = {}
    past: list[Record] = []
    with TemporaryDirectory() as lake:
        folder = Path(table_path(lake, Table.ACTIVITY_CHANGES))
        folder.mkdir(parents=True)
        for batch, is_added in zip(batches, cycle(adds), strict=False):
            work = tasks.Work(lake, f"{lake}/runs", [], 1, runs, "EUR", 1, adds=is_added)
            (report,) = tasks.change(work, parcels(batch, past)) if batch or past else [NOTHING]
            if frozen := report.get("frozen"):
                rows = with_a_row(list(chain.from_iterable(told)), frozen)
                work = work._replace(had_a_row={customer: customer in rows for customer in frozen})
                (report,) = tasks.change(work, parcels(batch, past))
            told.append(compared(pq.read_table(folder / report["file"].path)) if report["file"] else [])
            runs |= report["runs"]
            past = [] if is_added else [*past, *batch]
    return told


NOTHING: dict[str, Any] = {"file": None, "runs": {}}


def parcels(batch: Sequence[Record], past: Sequence[Record]) -> Iterator[bytes]:
    """Yield what tasks of the first stage pass on, where each has read a record."""
    for records, is_past in ((batch, False), (past, True)):
        for record in records:
            table = Table.PURCHASES if isinstance(record, Bought) else Table.PROFILE_CHANGES
            rows = summarised(purchases([record])) if table is Table.PURCHASES else profile_changes([record])
            yield executors.parcel(0, rows, tasks.KINDS.index((table, is_past))).rows


def with_a_row(changes: Sequence[Mapping[str, Any]], asked: Iterable[str]) -> list[str]:
    """Return who of some customers has a row in gold after some changes."""
    is_gone = {row["customer_id"]: row["is_gone"] for row in changes}
    return [customer for customer in asked if not is_gone.get(customer, True)]


def compared(rows: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rows.select(["customer_id", "existed", "is_gone", *NO_ROW]).to_pylist()
    return found


CUSTOMERS = st.sampled_from(["C-1", "C-2", "Ä", ""])
NO_TIMESTAMP = -0.001  # of a record, as bronze keeps it
RECORDED = st.sampled_from([NO_TIMESTAMP, 0, 1, 2])
BOUGHT = st.builds(
    Bought,
    CUSTOMERS,
    amount=st.sampled_from([CENT, Decimal(0), Decimal(20), LARGEST]),
    seconds=st.none() | st.integers(-2, 2),
    recorded=RECORDED,
)
SAID = st.builds(
    Said,
    CUSTOMERS,
    name=st.sampled_from([None, "Ada", "Bea"]),
    place=st.tuples(*[st.integers(0, 2)] * 3),
    recorded=RECORDED,
    email=st.sampled_from([None, "a@example.com"]),
)


def each_place_once(batches: Sequence[Sequence[Record]]) -> list[list[Record]]:
    """Leave out other records of a place that a customer has one of: there is one record at a place."""
    taken: set[tuple[str, tuple[int, int, int]]] = set()
    kept = []
    for batch in batches:
        records: list[Record] = []
        for record in batch:
            if isinstance(record, Said):
                if (record.customer, record.place) in taken:
                    continue
                taken.add((record.customer, record.place))
            records.append(record)
        kept.append(records)
    return kept


@pytest.fixture(params=[1, 2, 50_000], ids=["a customer at a time", "two at a time", "all at once"])
def at_a_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(state, "ROWS_AT_A_TIME", request.param)
    rows: int = request.param
    return rows


CASES = [
    pytest.param([[Said("C", "Ada")], [Bought("C")]], id="a purchase after the profile"),
    pytest.param([[Bought("C")], [Said("C", "Ada")]], id="a profile after the purchase"),
    pytest.param([[Said("C", "Ada")], [Said("C", None, (1, 0, 0))]], id="a tombstone ends it"),
    pytest.param([[Said("C", None)], [Bought("C")]], id="nobody has no row"),
    pytest.param([[Said("C", "Ada", (1, 0, 0))], [Said("C", "Bea")]], id="an older record comes later"),
    pytest.param([[Said("C", None, (1, 0, 0))], [Said("C", "Bea")]], id="an older one brings nobody back"),
    pytest.param([[Said("C", "Ada", (0, 0, 1))], [Said("C", "Bea", (0, 1, 0))]], id="partitions before offsets"),
    pytest.param([[Said("C", "Ada", (0, 1, 1))], [Said("C", "Bea", (1, 0, 0))]], id="landings before partitions"),
    pytest.param([[Said("C", "Ada")], [Said("C", "Ada", (1, 0, 0))]], id="it says the same"),
    pytest.param([[Said("C", "Ada")], [Said("C", "Ada", (1, 0, 0), email="a@b")]], id="an optional field begins"),
    pytest.param([[Said("C", "Ada", email="a@b")], [Said("C", "Ada", (1, 0, 0))]], id="an optional field ends"),
    pytest.param(
        [[Said("C", "Ada"), Bought("C")], [Bought("C", seconds=None)]], id="a purchase lacks an optional field"
    ),
    pytest.param([[Said("C", "Ada"), Bought("C", seconds=None)], [Bought("C")]], id="the first one lacked it"),
    pytest.param([[Said("C", "Ada", recorded=NO_TIMESTAMP)], [Bought("C", recorded=NO_TIMESTAMP)]], id="no timestamps"),
    pytest.param([[Said("C", "Ada"), Bought("C", LARGEST)]], id="the largest total"),
    pytest.param([[Said("C", "Ada"), Bought("C", LARGEST)], [Bought("C")]], id="the least total out of range"),
    pytest.param([[Said("C", "Ada")], *[[Bought("C", LARGEST)]] * 30, [Said("C", None, (1, 0, 0))]], id="far beyond"),
    pytest.param(
        [[Said("C", "Ada"), Bought("C", LARGEST)], [Bought("C"), Said("C", None, (1, 0, 0))]], id="both at once"
    ),
    pytest.param(
        [[Said("C", "Ada")], [Bought("C", LARGEST)] * 2, [Said("C", None, (1, 0, 0)), Said("C", "Bea", (2, 0, 0))]],
        id="frozen, ended and back",
    ),
    pytest.param(
        [[Bought("C", LARGEST)] * 2, [Said("C", "Ada")], [Said("C", None, (1, 0, 0))]], id="frozen without a row"
    ),
]


@pytest.mark.usefixtures("at_a_time")
@pytest.mark.parametrize("batches", CASES)
def test_rows_of_the_driver_are_those_of_the_model(batches: list[list[Record]]) -> None:
    assert in_driver(batches) == expected(batches)


@pytest.mark.parametrize("adds", [[True], [False], [True, False, False]], ids=["added", "not", "at times"])
@pytest.mark.parametrize("batches", CASES)
def test_rows_of_executors_are_those_of_the_model(batches: list[list[Record]], adds: list[bool]) -> None:
    assert on_executors(batches, adds=adds) == expected(batches)


ANY = st.lists(st.lists(BOUGHT | SAID, max_size=6), min_size=1, max_size=6).map(each_place_once)


@given(batches=ANY)
@example(batches=[[Said("C-1", "Ada"), Said("C-2", "Bea")], [Bought("C-2", LARGEST)] * 2, [Bought("C-1")]])
def test_rows_of_the_driver_are_those_of_the_model_whatever_comes(batches: list[list[Record]]) -> None:
    assert in_driver(batches) == expected(batches)


@given(batches=ANY, adds=st.lists(st.booleans(), min_size=1, max_size=3))
def test_rows_of_executors_are_those_of_the_model_whatever_comes(batches: list[list[Record]], adds: list[bool]) -> None:
    assert on_executors(batches, adds=adds) == expected(batches)


@pytest.mark.parametrize(
    ("customers", "email", "groups"),
    [(ROW_GROUP_ROWS + 1, "a@example.com", [ROW_GROUP_ROWS, 1]), (96, "a" * MB, [48, 48])],
    ids=["many", "large"],
)
def test_a_file_of_a_lane_has_small_row_groups(tmp_path: Path, customers: int, email: str, groups: list[int]) -> None:
    """A task reads a row group whole."""
    folder = Path(table_path(str(tmp_path), Table.ACTIVITY_CHANGES))
    folder.mkdir(parents=True)
    rows = profile_changes([Said(f"C-{number}", "Ada", email=email) for number in range(customers)])
    kind = tasks.KINDS.index((Table.PROFILE_CHANGES, False))
    work = tasks.Work(str(tmp_path), f"{tmp_path}/runs", [], 1, {}, "EUR", 1, adds=False)
    (report,) = tasks.change(work, [executors.parcel(0, rows, kind).rows])
    written = pq.ParquetFile(folder / report["file"].path).metadata
    assert [written.row_group(number).num_rows for number in range(written.num_row_groups)] == groups


@pytest.mark.nightly
@pytest.mark.parametrize("way", [in_driver, on_executors])
def test_texts_of_some_customers_may_come_to_more_than_two_gigabytes(
    way: Callable[[Sequence[Sequence[Record]]], list[list[dict[str, Any]]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column of Arrow's string holds 2 GB; a profile may have texts of a megabyte. It takes 6 GB of memory."""
    monkeypatch.setattr(
        sys.modules[__name__], "compared", lambda rows: rows.select(["customer_id", "existed"]).to_pylist()
    )
    customers = [f"C-{number:04}" for number in range(1_150)]
    batches = [
        [Said(customer, "Ada", (number, 0, 0), email=text * MB) for customer in customers]
        for number, text in enumerate("ab")
    ]
    assert way(batches) == [
        [{"customer_id": customer, "existed": existed} for customer in customers] for existed in (False, True)
    ]


@pytest.mark.parametrize("is_past", [False, True], ids=["new", "past"])
@pytest.mark.parametrize("of", [tasks, profile_tasks], ids=["gold", "silver's profiles"])
def test_records_are_packed_by_bytes_however_large_a_row_group_is(
    tmp_path: Path, of: ModuleType, is_past: bool
) -> None:
    """Of a row group of some gigabytes, as compaction makes them of long texts, Arrow could not hold the parcels."""
    lake, folder = str(tmp_path), Path(table_path(str(tmp_path), Table.PROFILE_CHANGES))
    folder.mkdir(parents=True)
    large = [Said(f"C-{number}", "Ada", email="x" * (ROW_GROUP_BYTES // 3)) for number in range(5)]
    pq.write_table(profile_changes(large), folder / "a.parquet")
    shares = [[Piece(Table.PROFILE_CHANGES, "a.parquet", is_past=is_past)]]
    works = {tasks: tasks.Work(lake, "", shares, 1, {}, "EUR", 1), profile_tasks: SilverWork(lake, "", shares, 1, {})}
    packed = [parcel.rows for parcel in of.pack(works[of], [0])]
    assert max(map(len, packed)) < 1.1 * ROW_GROUP_BYTES
    (rows,) = executors.unpacked(packed).values()
    assert sorted(rows.column("customer_id").to_pylist()) == [said.customer for said in large]


@pytest.mark.parametrize("number", [0, 3])
def test_last_records_have_room_for_texts_of_more_than_two_gigabytes(number: int) -> None:
    rows = profile_changes([Said(f"C-{which}", "Ada") for which in range(number)])
    assert profile_records.newest(rows).schema == profile_records.HELD
    assert profiles.without_repeats(rows).column("email").type == pa.large_string()


def test_a_share_of_a_file_may_have_no_row_group(tmp_path: Path) -> None:
    """A file that does not tell how many rows it has is divided by its size."""
    folder = Path(table_path(str(tmp_path), Table.PURCHASES))
    folder.mkdir(parents=True)
    pq.write_table(purchases([Bought("C")]), folder / "a.parquet")
    shares = [[Piece(Table.PURCHASES, "a.parquet", share, shares=2)] for share in range(2)]
    work = tasks.Work(str(tmp_path), f"{tmp_path}/runs", shares, 1, {}, "EUR", 1)
    assert [len(list(tasks.pack(work, [number]))) for number in range(2)] == [1, 0]


@pytest.mark.parametrize("of", ["gold", "silver's profiles"])
def test_a_bucket_is_one_lanes_alone(tmp_path: Path, of: str) -> None:
    """Of runs that two lanes had added to a bucket only one's would be noted."""
    for table in (Table.ACTIVITY_CHANGES, Table.PROFILE_CHANGES):
        Path(table_path(str(tmp_path), table)).mkdir(parents=True)
    said = profile_changes([Said(f"C-{number}", "Ada") for number in range(1_000)])
    pq.write_table(said, Path(table_path(str(tmp_path), Table.PROFILE_CHANGES)) / "a.parquet")
    shares = [[Piece(Table.PROFILE_CHANGES, "a.parquet", is_past=True)]]
    lake, runs = str(tmp_path), f"{tmp_path}/runs"
    if of == "gold":
        work = tasks.Work(lake, runs, shares, 5, {}, "EUR", 1)
        packed, do = tasks.pack(work, [0]), partial(tasks.change, work)
    else:
        silver = SilverWork(lake, runs, shares, 5, {})
        packed, do = profile_tasks.pack(silver, [0]), partial(profile_tasks.judge, silver)
    reports = [report for parcel in packed for report in do([parcel.rows])]
    assert len(reports) == 5
    assert sorted(bucket for report in reports for bucket in report["runs"]) == list(range(BUCKETS))
