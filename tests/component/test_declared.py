"""A table whose stream says what it must hold is compared with that; and a part of the checks can be chosen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.contracts.columns import TRACE, names
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import TerminalError
from customer_activity.verification import declared
from customer_activity.verification.checking import ALL, KNOWN
from customer_activity.verification.comparison import Check
from customer_activity.verification.declared import Declared
from customer_activity.verification.oracle import Expected
from customer_activity.verification.records import Payment
from customer_activity.verification.verify import Report
from support.world import World, expect, failing
from support.world_rows import NOW, profile, purchase

PER_DAY = Declared(
    Table.SUMMARIES,  # any: its label alone is used
    ("product_id", "day"),
    """
    SELECT product_id, occurred_at::DATE AS day, count(*) AS units, sum(amount) AS turnover
    FROM purchases GROUP BY ALL
    """,
)
SCHEMA = pa.schema(
    {"product_id": pa.string(), "day": pa.date32(), "units": pa.int64(), "turnover": pa.decimal128(38, 2)}
)
DAY = 86_400_000
TODAY, BEFORE = (datetime.fromtimestamp(at / 1000, UTC).date() for at in (NOW, NOW - DAY))
RIGHT: list[dict[str, Any]] = [
    {"product_id": "X", "day": TODAY, "units": 2, "turnover": Decimal("3.75")},
    {"product_id": "X", "day": BEFORE, "units": 1, "turnover": Decimal("9999999999999999.99")},
    {"product_id": None, "day": TODAY, "units": 1, "turnover": Decimal("0.00")},
]


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    bought: list[tuple[str, dict[str, Any]]] = [
        ("P1", {"amount": b"1.25", "productId": "X"}),
        ("P2", {"amount": b"2.50", "productId": "X"}),
        ("P2", {"amount": b"2.50", "productId": "X"}),  # a duplicate
        ("P3", {"amount": b"9999999999999999.99", "productId": "X", "occurredAtEpochMillis": NOW - DAY}),
        ("P4", {"amount": b"0", "productId": None}),
        ("P5", {"amount": b"-1"}),  # refused
    ]
    purchases = [
        (key, purchase(**{"purchaseId": key, "occurredAtEpochMillis": NOW} | values)) for key, values in bought
    ]
    with declared.opened(expect(purchases, [("C1", profile())]), {}) as opened:
        yield opened


@pytest.fixture
def check(database: duckdb.DuckDBPyConnection, tmp_path: Path) -> Callable[..., Check]:
    """Return what compares a table with these rows."""

    def compare(rows: list[dict[str, Any]], like: Declared = PER_DAY) -> Check:
        write_deltalake(str(tmp_path), pa.Table.from_pylist(rows, SCHEMA))
        return declared.compare(database, like, DeltaTable(str(tmp_path)))

    return compare


@pytest.mark.parametrize(
    ("rows", "examples"),
    [
        pytest.param(RIGHT, [], id="right"),
        pytest.param(RIGHT[::-1], [], id="in any order"),
        pytest.param(RIGHT[1:], [f"X {TODAY} is missing"], id="a row is missing"),
        pytest.param([*RIGHT, RIGHT[0]], [f"X {TODAY} is there more than once"], id="a row is there twice"),
        pytest.param([*RIGHT, RIGHT[0] | {"product_id": "Y"}], [f"Y {TODAY} should not be there"], id="a row too many"),
        pytest.param([RIGHT[0] | {"units": 3}, *RIGHT[1:]], [f"X {TODAY} differs: units"], id="a count differs"),
        pytest.param(
            [*RIGHT[:2], RIGHT[2] | {"turnover": None}],
            [f"None {TODAY} differs: turnover"],
            id="null beside a key of null",
        ),
        pytest.param([], [f"None {TODAY} is missing", f"X {BEFORE} is missing", f"X {TODAY} is missing"], id="nothing"),
    ],
)
def test_each_difference_is_found(rows: list[dict[str, Any]], examples: list[str], check: Callable[..., Check]) -> None:
    found = check(rows)
    assert (found.expected, found.observed, found.differences) == (3, len(rows), len(examples))
    assert sorted(found.examples) == sorted(examples)
    assert found.name == PER_DAY.table.label


def test_without_a_key_rows_are_compared_whole_and_not_shown(check: Callable[..., Check]) -> None:
    found = check([*RIGHT[1:], RIGHT[0] | {"units": 3}], PER_DAY._replace(key=()))
    assert (found.differences, set(found.examples)) == (2, {"a row is missing", "a row should not be there"})


def test_a_key_that_can_identify_a_person_is_not_shown(database: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"name": pa.array(["Grace"]), "customers": pa.array([1], pa.int64())}))
    query = "SELECT name, count(*) AS customers FROM profiles GROUP BY ALL"
    found = declared.compare(database, Declared(Table.SUMMARIES, ("name",), query), DeltaTable(str(tmp_path)))
    assert set(found.examples) == {"a row is missing", "a row should not be there"}


def test_all_differences_are_counted_and_a_few_are_shown(check: Callable[..., Check]) -> None:
    found = check([*RIGHT, *(RIGHT[0] | {"product_id": f"Y{number}"} for number in range(9))])
    assert (found.differences, len(found.examples)) == (9, 5)


BY_DEFINITION = PER_DAY._replace(query=PER_DAY.query.replace("FROM purchases", "FROM purchases, definition"))
BY_PAYMENTS = PER_DAY._replace(
    query="""
    SELECT payment_id AS product_id, confirmed_at::DATE AS day, count(*) AS units, sum(payments.amount) AS turnover
    FROM purchases RIGHT JOIN payments USING (purchase_id), definition GROUP BY ALL
    """
)
NOTHING, REFUSED = expect([], [("C1", profile())]), expect([("P1", purchase(amount=b"-1"))])
ONE = expect([("P1", purchase(productId="X"))])
PAID = dataclasses.replace(NOTHING, payments={(0, 0): Payment("P1", "A", None, 125, "EUR", NOW, 0, 0, NOW, 1, 0)})
NOTHING_COMPUTED = "nothing has been computed: no commit notes a definition"


@pytest.mark.parametrize(
    ("arrived", "like", "notes", "examples"),
    [
        pytest.param(NOTHING, BY_DEFINITION, [], [], id="no purchase has arrived"),
        pytest.param(REFUSED, BY_DEFINITION, [], [], id="all that arrived was refused"),
        pytest.param(ONE, BY_DEFINITION, [], [NOTHING_COMPUTED], id="a purchase has arrived"),
        pytest.param(ONE, BY_DEFINITION, [{"query": "daily"}], [NOTHING_COMPUTED], id="a commit notes something else"),
        pytest.param(ONE, BY_DEFINITION, [{"definition": {}}], [f"X {TODAY} is missing"], id="computed, and lost"),
        pytest.param(PAID, BY_DEFINITION, [], [], id="a payment has arrived, which the table is not of"),
        pytest.param(PAID, BY_PAYMENTS, [], [NOTHING_COMPUTED], id="a payment has arrived, which the table is of"),
        pytest.param(NOTHING, BY_PAYMENTS, [], [], id="no payment has arrived"),
        pytest.param(ONE, PER_DAY, [], [f"X {TODAY} is missing"], id="the table goes by no definition"),
    ],
)
def test_a_table_of_which_nothing_was_computed_is_equal_only_where_nothing_has_arrived(
    arrived: Expected, like: Declared, notes: list[dict[str, Any]], examples: list[str], tmp_path: Path
) -> None:
    write_deltalake(str(tmp_path), SCHEMA.empty_table())
    with declared.opened(arrived, {}) as opened:
        found = declared.compare(opened, like, DeltaTable(str(tmp_path)), notes)
    assert (found.differences, list(found.examples)) == (len(examples), examples)


@pytest.mark.parametrize(
    ("query", "why"),
    [
        pytest.param("SELECT product_id FROM purchases", '"day" not found', id="a column is missing"),
        pytest.param("SELECT product_id FROM orders", "orders", id="no such relation"),
        pytest.param("SELECT FROM WHERE", "syntax error", id="no query"),
        pytest.param(
            "SELECT product_id, purchase_id::DATE AS day, 1 AS units, amount AS turnover FROM purchases",
            "ConversionException",
            id="it fails on a value, which is not told",
        ),
        pytest.param(
            "SELECT product_id, strptime(purchase_id, '%Y')::DATE AS day, 1 AS units, amount AS turnover "
            "FROM purchases",
            "InvalidInputException",
            id="likewise by a function",
        ),
        pytest.param(
            "SELECT product_id, occurred_at::DATE AS day, 1 AS units, sum(amount) / 1 AS turnover FROM purchases "
            "GROUP BY ALL",
            "DOUBLE in column turnover",
            id="amounts as floating-point numbers",
        ),
        pytest.param(
            "SELECT product_id, occurred_at AS day, 1 AS units, amount AS turnover FROM purchases",
            "TIMESTAMP WITH TIME ZONE in column day",
            id="another kind",
        ),
    ],
)
def test_a_query_that_does_not_run_is_told(query: str, why: str, check: Callable[..., Check]) -> None:
    with pytest.raises(TerminalError, match="the query for what it must hold") as told:
        check(RIGHT, PER_DAY._replace(query=query))
    assert why in str(told.value)
    assert "P1" not in str(told.value)


def test_the_relations_have_silvers_columns(database: duckdb.DuckDBPyConnection) -> None:
    bought = database.sql("FROM purchases WHERE purchase_id = 'P1'").to_arrow_table()
    known = database.sql("FROM profiles").to_arrow_table()
    for relation, table, rows in ((bought, Table.PURCHASES, 1), (known, Table.PROFILES, 1)):
        assert relation.num_rows == rows
        assert set(relation.column_names) == set(arrow_schema(table).names).difference(names(TRACE))
    assert bought.column("amount").to_pylist() == [Decimal("1.25")]
    assert bought.column("occurred_at").to_pylist() == [datetime.fromtimestamp(NOW / 1000, UTC)]


def test_a_key_may_be_a_time(database: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    starts = [datetime.fromtimestamp(at / 1000, UTC) for at in (NOW, NOW - DAY)]
    write_deltalake(str(tmp_path), pa.table({"at": pa.array(starts, pa.timestamp("us", "UTC")), "units": [4, 1]}))
    query = "SELECT occurred_at AS at, count(*) AS units FROM purchases GROUP BY ALL"
    found = declared.compare(database, Declared(Table.SUMMARIES, ("at",), query), DeltaTable(str(tmp_path)))
    assert found.examples == (f"{starts[0]} differs: units",)


@pytest.mark.parametrize(
    ("only", "names"),
    [
        pytest.param(ALL, 18, id="everything"),
        pytest.param(frozenset({"gold.customer_activity"}), {"gold.customer_activity"}, id="a table"),
        pytest.param(
            frozenset({"view", "silver.purchases"}),
            {"silver.purchases", "view: last values", "view: contract", "view: versions grow", "view: nothing twice"},
            id="a table and the view",
        ),
        pytest.param(
            frozenset({"bronze.quarantine"}), {"bronze.quarantine", "bronze.quarantine: reasons"}, id="quarantine"
        ),
    ],
)
def test_a_part_of_the_checks(only: frozenset[str], names: int | set[str], verify_world: Callable[..., Report]) -> None:
    checks = verify_world(World(), only=only).checks
    assert len(checks) == names if isinstance(names, int) else {check.name for check in checks} == names
    assert all(check.ok for check in checks)


@pytest.mark.parametrize(
    ("only", "found"), [(Table.SUMMARIES, {Table.SUMMARIES.label}), (Table.PROFILES, set())], ids=["it", "another"]
)
def test_a_part_finds_what_is_wrong_in_it_and_nothing_else(
    only: Table, found: set[str], verify_world: Callable[..., Report]
) -> None:
    world = World()
    world.row(Table.SUMMARIES)["purchase_count"] += 1
    assert failing(verify_world(world, only=frozenset({only.label}))) == found


def test_of_a_table_that_nobody_knows_that_is_said(verify_world: Callable[..., Report]) -> None:
    unknown = Declared(Table.SUMMARIES, ("customer_id",), "")
    (found,) = (check for check in verify_world(World(), others=[unknown]).checks if check.impossible and not check.ok)
    assert found.impossible == "its stream does not say what it must hold"


def test_a_sample_leaves_declared_tables_out(verify_world: Callable[..., Report]) -> None:
    report = verify_world(World(), others=[PER_DAY], sample=1)
    assert [check.impossible[:8] for check in report.checks if check.impossible] == ["a sample"]


def test_the_verifier_knows_every_table_or_is_told_what_it_must_hold() -> None:
    told = {table for spec in topology.specs() for table in spec.tables if spec.how(table).expected}
    assert set(topology.tables()) == KNOWN | told
