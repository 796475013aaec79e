"""Tables of added streams: each stream declares what its table must hold, as a query over what the oracle recomputed.

The query is DuckDB's, and shares no code with the stream. It reads two relations, with the columns of the tables of the
same names in silver, amounts as decimals and times as timestamps with time zone (UTC, milliseconds):

    purchases    the purchases that count, one row a purchase_id
    profiles     the current profiles, one row a customer_id
    profile_changes
                 every record that changed a profile, with `is_tombstone`
    payments     the valid payment records, with their coordinates; none where their streams are off
    activity     the rows of the view, but for `view_version`, one row a customer_id
    masks        the masked values of their customers; none without a key

and what was decided or set when the tables were computed, which the input does not tell:

    watermarks   the table of that name, where there is one
    reprocessed  the table ops.reprocessed_purchases, likewise
    products     the table reference.products, likewise
    activity_changes
                 the table gold.activity_changes, which alone knows versions of rows
    outdated_alerts
                 the table ops.outdated_alerts, which alone knows how alerts were told that are otherwise by now
    catalogue_versions, routing_rules
                 the tables of these names, likewise
    definition   one row, by which the table was computed, as its newest commit notes it: of windows and payments
                 `time_zone`, `grace_hours`, `session_gap_minutes` and `payment_minutes`, of alerts their limits; none
                 where nothing was computed, which is a difference once there are purchases or payments to be read
    days         the days of such a time zone around the purchases, by Python's zoneinfo: `day`, `begins`, `is_there`
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Table
from customer_activity.errors import TerminalError
from customer_activity.verification import masking
from customer_activity.verification.comparison import (
    EXAMPLES,
    MONEY,
    PAYMENT_COLUMNS,
    PROFILE_COLUMNS,
    PURCHASE_COLUMNS,
    Check,
    Differences,
    unlike,
)
from customer_activity.verification.oracle import Expected
from customer_activity.verification.records import Activity

TIMES = frozenset(
    {
        *("occurred_at", "updated_at", "confirmed_at", "kafka_timestamp"),
        *("profile_updated_at", "first_purchase_at", "last_purchase_at", "as_of"),
    }
)
KINDS = {
    "purchase_count": pa.int64(),
    "risk_score": pa.int64(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "landing": pa.int64(),
    "is_tombstone": pa.bool_(),
}
# Personal data stays out of reports; ids of customers and products may be shown.
PERSONAL = frozenset({"name", "email", "address"})
DECIDED = {
    "watermarks": Table.WATERMARKS,
    "reprocessed": Table.REPROCESSED,
    "products": Table.PRODUCTS,
    "catalogue_versions": Table.CATALOGUE_VERSIONS,
    "routing_rules": Table.ROUTING_RULES,
    "activity_changes": Table.ACTIVITY_CHANGES,
    "outdated_alerts": Table.OUTDATED_ALERTS,
}
# What commits note of windows and payments, and of alerts.
DEFINITION = pa.schema(
    [
        ("time_zone", pa.string()),
        *((name, pa.float64()) for name in ("grace_hours", "session_gap_minutes", "payment_minutes")),
        ("grace_minutes", pa.float64()),
        *((name, pa.int64()) for name in ("window_minutes", "window_purchases", "window_amount")),
        *((name, pa.int64()) for name in ("gap_minutes", "session_purchases", "session_amount", "session_risk")),
    ]
)
INPUTS = ("purchases", "payments")  # what of the input has tables computed that go by a definition
UNBOUND = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.SyntaxException)
UNLIKE = """
SELECT {key}, count_if(NOT is_found) AS missing, count_if(is_found) AS surplus
FROM (
    SELECT *, false AS is_found FROM (FROM wanted EXCEPT ALL FROM found)
    UNION ALL SELECT *, true FROM (FROM found EXCEPT ALL FROM wanted)
)
GROUP BY {key} ORDER BY {key}
"""


class Declared(NamedTuple):
    """A table of a stream, its key, and the query for what it must hold: all of its columns, by name."""

    table: Table
    key: tuple[str, ...]
    query: str


@contextmanager
def opened(
    expected: Expected, tables: Mapping[Table, DeltaTable], key_file: Path | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a database that has what the oracle recomputed; what does not fit into memory is on disk meanwhile."""
    relations = {
        "purchases": _relation(PURCHASE_COLUMNS, expected.purchases.values()),
        "profiles": _relation(PROFILE_COLUMNS, expected.profiles.values()),
        "profile_changes": _relation((*PROFILE_COLUMNS, "is_tombstone"), expected.profile_changes),
        "payments": _relation(PAYMENT_COLUMNS, expected.payments.values()),
        "activity": _relation(Activity._fields, expected.gold.values()),
        "masks": masking.masks(expected.gold.values(), key_file),
    }
    with tempfile.TemporaryDirectory(prefix="activity-") as spill, duckdb.connect(":memory:") as database:
        database.execute(f"SET temp_directory = '{spill}'")
        database.execute("SET TimeZone = 'UTC'")
        for name, rows in relations.items():
            database.register(name, rows)
        for name, table in DECIDED.items():
            if table in tables:
                database.register(name, tables[table].to_pyarrow_dataset())
        yield database


def compare(
    database: duckdb.DuckDBPyConnection, declared: Declared, table: DeltaTable, notes: Iterable[Mapping[str, Any]] = ()
) -> Check:
    """Compare a table with what its stream says that it must hold; `notes` are those of its commits, the newest first.

    Raises:
        TerminalError: the query does not run, or lacks a column.
    """
    label = declared.table.label
    columns = [field.name for field in table.schema().fields]
    database.register("stored", table.to_pyarrow_dataset())
    definition = _definition(notes)
    database.register("definition", definition)
    zones = definition.column("time_zone").drop_null().to_pylist()
    database.register("days", _days(database, zones))
    chosen = _names(columns)
    try:
        database.execute(f"CREATE OR REPLACE TEMP TABLE wanted AS SELECT {chosen} FROM ({declared.query})")  # noqa: S608 - the stream's
    except duckdb.Error as error:
        # What cannot be bound names columns; what fails on the way may tell a value.
        why = str(error).partition("\n")[0] if isinstance(error, UNBOUND) else type(error).__name__
        raise TerminalError(
            f"{label}: the query for what it must hold does not run: {why}",
            remedy="correct `expected` where the table's stream declares what it writes",
        ) from None
    database.execute(f"CREATE OR REPLACE TEMP TABLE found AS SELECT {chosen} FROM stored")  # noqa: S608
    _require_types(database, label)
    keys = declared.key or tuple(columns)  # without a key rows are compared whole
    hidden = PERSONAL.union(() if declared.key else columns)
    differences = Differences()
    # The query joins the definition: without one it wants no row, whatever there is to be computed.
    if not definition.num_rows and _should_note_one(database, declared.query):
        differences.add("nothing has been computed: no commit notes a definition")
    for *key, missing, surplus in _rows(database, UNLIKE.format(key=_names(keys))):
        shown = [str(value) for column, value in zip(keys, key, strict=True) if column not in hidden]
        name = " ".join(shown) or "a row"
        if differences.count >= EXAMPLES:
            differences.count += 1
        elif missing and surplus:
            wanted, there = (_row(database, source, keys, key) for source in ("wanted", "found"))
            differences.add(name, "differs:", unlike(columns, wanted, there))
        elif missing:
            differences.add(name, "is missing")
        else:
            is_wanted = _row(database, "wanted", keys, key) is not None
            differences.add(name, "is there more than once" if is_wanted else "should not be there")
    return differences.check(label, _count(database, "wanted"), _count(database, "found"))


def _definition(notes: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return by what a table was computed; empty where its commits do not tell."""
    found = next((note["definition"] for note in notes if "definition" in note), None)
    return pa.Table.from_pylist([] if found is None else [found], DEFINITION)


def _should_note_one(database: duckdb.DuckDBPyConnection, query: str) -> bool:
    """Whether commits should note a definition: the query reads one, and an input that has brought records."""
    read = set(re.findall(r"\w+", query))
    return "definition" in read and any(_rows(database, f"FROM {name} LIMIT 1") for name in read.intersection(INPUTS))


def _days(database: duckdb.DuckDBPyConnection, zones: Sequence[str]) -> pa.Table:
    """Return when each day begins, from a fortnight before the purchases on: DuckDB's own time zones may be others.

    Where midnight does not exist a day begins with the first moment after; of two midnights the first one counts. A day
    that a zone has skipped has no moment, so it is not there.
    """
    schema = pa.schema({"day": pa.date32(), "begins": pa.timestamp("ms", "UTC"), "is_there": pa.bool_()})
    ((first, last),) = _rows(database, "SELECT min(occurred_at), max(occurred_at) FROM purchases")
    if first is None or not zones:
        return schema.empty_table()
    days = [first.date() + timedelta(days=number) for number in range(-14, (last - first).days + 16)]
    begins = [datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zones[0])).astimezone(UTC) for day in days]
    is_there = [at != after for at, after in zip(begins, [*begins[1:], None], strict=True)]
    return pa.table([days, begins, is_there], schema)


def _require_types(database: duckdb.DuckDBPyConnection, label: str) -> None:
    """Make sure that both sides are of one kind: compared as floating-point numbers, amounts that differ may be equal.

    Raises:
        TerminalError: a column is of another kind.
    """
    for name, wanted, found in zip(
        database.table("found").columns, database.table("wanted").types, database.table("found").types, strict=True
    ):
        if _kind(str(wanted)) != _kind(str(found)):
            raise TerminalError(
                f"{label}: the query for what it must hold has {wanted} in column {name}, the table {found}",
                remedy="cast it in `expected` where the table's stream declares what it writes",
            )


def _kind(name: str) -> str:
    """Return what a type is, whatever its width."""
    if name.startswith("DECIMAL"):
        return "DECIMAL"
    return "INTEGER" if name.endswith(("INT", "INTEGER")) else name


def _row(database: duckdb.DuckDBPyConnection, source: str, names: Iterable[str], key: list[Any]) -> Any:
    condition = " AND ".join(f"{_names([name])} IS NOT DISTINCT FROM ?" for name in names)
    return next(iter(_rows(database, f"FROM {source} WHERE {condition} LIMIT 1", key)), None)


def _rows(database: duckdb.DuckDBPyConnection, query: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    # By Arrow: for times with a zone DuckDB's own way to Python needs another package.
    columns = database.sql(query, params=list(values) or None).to_arrow_table().columns
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def _count(database: duckdb.DuckDBPyConnection, source: str) -> int:
    return len(database.table(source))


def _names(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _relation(columns: tuple[str, ...], rows: Collection[tuple[Any, ...]]) -> pa.Table:
    """Return the oracle's rows as Arrow has them; its amounts are cents, its times milliseconds."""
    values = zip(*(row[: len(columns)] for row in rows), strict=True) if rows else ((),) * len(columns)
    return pa.table({name: _column(name, list(column)) for name, column in zip(columns, values, strict=True)})


def _column(name: str, values: list[Any]) -> pa.Array:
    if name in MONEY:
        cents = pa.array(values, pa.int64()).cast(pa.decimal128(19, 0))
        return pc.multiply(cents, pa.scalar("0.01").cast(pa.decimal128(3, 2))).cast(pa.decimal128(18, 2))
    return pa.array(values, pa.timestamp("ms", "UTC") if name in TIMES else KINDS.get(name, pa.string()))
