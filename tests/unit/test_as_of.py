"""What was known at a moment is what a fold over everything up to that moment comes to."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.decisions import BEFORE_ALL, Decisions, landings_of
from customer_activity.state import profile_records
from customer_activity.streams.enrichment import profiles
from customer_activity.streams.enrichment.as_of import newest_by
from customer_activity.streams.enrichment.products import Catalogue

KEY = st.sampled_from(["a", "b", "c"])
MOMENT = st.integers(-1, 6)
RECORD = st.fixed_dictionaries(
    {
        "customer_id": KEY,
        "landing": st.one_of(st.none(), st.integers(0, 5)),
        "updated_at": st.integers(0, 3),
        "address": st.sampled_from(["1 Old Street", "2 New Street", None]),
        "is_tombstone": st.booleans(),
    }
)


@given(asked=st.lists(st.tuples(st.one_of(KEY, st.none()), MOMENT)), changes=st.lists(st.tuples(KEY, MOMENT)))
@example(asked=[("c", 0)], changes=[("a", 0)])  # what comes before it is another key's
@example(asked=[("a", 0)], changes=[("a", 1)])
def test_the_newest_change_by_a_moment(asked: list[tuple[str | None, int]], changes: list[tuple[str, int]]) -> None:
    found = newest_by(
        pa.chunked_array([[key for key, _ in asked]], pa.string()),
        np.array([moment for _, moment in asked], np.int64),
        changed=pa.chunked_array([[key for key, _ in changes]], pa.string()),
        changed_at=np.array([moment for _, moment in changes], np.int64),
    )

    def newest(key: str | None, moment: int) -> int | None:
        earlier = [(at, number) for number, (changed, at) in enumerate(changes) if changed == key and at <= moment]
        return max(earlier, default=(0, None))[1]

    assert found.to_pylist() == [newest(*each) for each in asked]


def folded(records: list[dict[str, Any]], customer: str, landing: int) -> dict[str, Any] | None:
    """Return a customer's profile after a landing: the newest update since the last tombstone, the first of repeats."""
    held = None
    for record in sorted(records, key=lambda each: (place(each), each["partition"], each["offset"])):
        if record["customer_id"] != customer or place(record) > landing:
            continue
        is_older = held is not None and record["updated_at"] < held["updated_at"]
        is_repeat = held is not None and says(record) == says(held)
        if record["is_tombstone"]:
            held = None
        elif not is_older and not is_repeat:
            held = record
    return held


def says(record: dict[str, Any]) -> tuple[Any, ...]:
    return record["updated_at"], record["address"]


def place(record: dict[str, Any]) -> int:
    return -1 if record["landing"] is None else record["landing"]


@given(st.lists(RECORD, max_size=12), st.randoms())
def test_a_profile_as_it_was_known_when_something_landed(records: list[dict[str, Any]], chance: Any) -> None:
    records = [
        {**record, "name": "Ada", "partition": number % 2, "offset": number} for number, record in enumerate(records)
    ]
    rows = pa.Table.from_pylist(chance.sample(records, len(records)), arrow_schema(Table.PROFILE_CHANGES))
    asked = [(customer, landing) for customer in ("a", "b", "z") for landing in range(-1, 7)]
    customers = pa.chunked_array([[customer for customer, _ in asked]])
    found = profiles.known_at(
        np.array([landing for _, landing in asked], np.int64), customers, profiles.changes_among(rows)
    )
    for number, each in enumerate(asked):
        wanted = folded(records, *each)
        said = {name: column[number].as_py() for name, column in found.items()}
        assert said["address"] == ("UNKNOWN" if wanted is None else wanted["address"])
        assert said["profile_offset"] == (None if wanted is None else wanted["offset"])
        assert said["profile_landing"] == (None if wanted is None else wanted["landing"])


def update(landing: int, updated: int = 0, address: str = "", *, ended: bool = False) -> dict[str, Any]:
    return {"landing": landing, "updated_at": updated, "address": address, "is_tombstone": ended}


@given(st.lists(RECORD, max_size=14), st.data())
@example([update(0, 1, "old"), update(1, 1, "new"), update(1, 1, "old")], None)  # it says again what was said before
@example(  # they are older than what has ended
    [update(0, 3, "old"), update(1, ended=True), update(1, 1, "new"), update(1, 1, "newer")], None
)
def test_without_needless_records_the_same_is_known(records: list[dict[str, Any]], data: st.DataObject | None) -> None:
    """Also from a landing on that is told by what is left of it, and of some records before all are read."""
    records = [
        {**record, "customer_id": "a", "name": "Ada", "partition": 0, "offset": number}
        for number, record in enumerate(sorted(records, key=place))
    ]
    rows = pa.Table.from_pylist(records, arrow_schema(Table.PROFILE_CHANGES))
    cut = len(records) if data is None else data.draw(st.integers(0, len(records)))
    left = without_needless(without_needless(rows.slice(0, cut)), rows.slice(cut))
    assert all(count <= 3 for count in Counter(landings_of(left).tolist()).values())
    for first in {BEFORE_ALL, *landings_of(left).tolist()}:
        since = left.filter(pa.array(landings_of(left) >= first))
        assert known(since, first) == known(rows, first)


def without_needless(*rows: pa.Table) -> pa.Table:
    together = pa.concat_tables(rows)
    gone = [record.offset for record in profiles.needless(profile_records.records(together))]
    return together.filter(pc.invert(pc.is_in(together.column("offset"), value_set=pa.array(gone, pa.int64()))))


def known(rows: pa.Table, first: int) -> list[Any]:
    """Return what the landings from the first on have left of the profile."""
    landings = np.arange(first, 7)
    found = profiles.known_at(landings, pa.chunked_array([["a"] * len(landings)]), profiles.changes_among(rows))
    return [column.to_pylist() for column in found.values()]


@pytest.mark.parametrize(
    ("product", "version", "department"),
    [
        pytest.param("X", 0, "UNKNOWN", id="before it was loaded"),
        pytest.param("X", 1, "DRINKS", id="as it began"),
        pytest.param("X", 2, "DRINKS", id="a version that leaves it as it is"),
        pytest.param("X", 3, "UNKNOWN", id="a version that ends it"),
        pytest.param("X", 9, "FOOD", id="a version that has it again"),
        pytest.param("Y", 9, None, id="known to be missing"),
        pytest.param("Z", 9, "UNKNOWN", id="never heard of"),
        pytest.param(None, 9, "UNKNOWN", id="a purchase without a product"),
    ],
)
def test_a_product_by_the_version_that_was_in_force(product: str | None, version: int, department: str | None) -> None:
    rows = [
        {"product_id": "X", "department": "DRINKS", "is_gone": False, "version": 1},
        {"product_id": "Y", "department": None, "is_gone": False, "version": 2},
        {"product_id": "X", "department": None, "is_gone": True, "version": 3},
        {"product_id": "X", "department": "FOOD", "is_gone": False, "version": 4},
    ]
    catalogue = Catalogue(changes=pa.Table.from_pylist(rows, arrow_schema(Table.PRODUCTS)))
    found = catalogue.known_at(np.array([version]), pa.chunked_array([[product]], pa.string()))
    assert found["department"].to_pylist() == [department]


def test_an_empty_catalogue_knows_nothing() -> None:
    found = Catalogue().known_at(np.array([0]), pa.chunked_array([["X"]]))
    assert (Catalogue().version, found["brand"].to_pylist()) == (0, ["UNKNOWN"])


@given(st.lists(st.tuples(st.integers(-1, 20), st.integers(0, 3)), max_size=12))
def test_a_landing_that_is_decided_stays_so(batches: list[tuple[int, int]]) -> None:
    decisions, told = Decisions.none(Table.CATALOGUE_VERSIONS), dict[int, int]()
    for newest, version in batches:  # some go back: they are repeated
        if newest > decisions.newest:
            decisions = decisions.with_rows(decisions.decide(newest, {"catalogue_version": version}))
        upto = np.arange(-1, newest + 1)
        for landing, row in zip(upto.tolist(), decisions.at(upto).to_pylist(), strict=True):
            assert told.setdefault(landing, row["catalogue_version"]) == row["catalogue_version"]
    versions = decisions.rows.column("catalogue_version").to_pylist()
    assert all(one != after for one, after in pairwise(versions))
    assert decisions.newest == max((newest for newest, _ in batches), default=BEFORE_ALL)
