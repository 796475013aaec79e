"""Hold rebuilt tables against the live ones: every row, every column but `view_version`, which counts changes."""

from __future__ import annotations

from typing import NamedTuple

import duckdb

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.rebuild.basis import name_of

EXAMPLES = 5


class Side(NamedTuple):
    """How a table is compared.

    Attributes:
        table: whose rows.
        columns_of: the table that has just the columns that are compared.
        key: the column that names a row.
        rows: the condition that leaves a key's current row, in DuckDB's words; empty where every row is one.
        but: the clause that leaves out customers whose row depends on how batches were cut; it is told the schema.
    """

    table: Table
    columns_of: Table
    key: str
    rows: str = ""
    but: str = ""


def _newest(order: str, ended: str) -> str:
    return f"QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY {order}) = 1 AND NOT {ended}"


# A total that does not fit its type freezes the row as it was last right, which no other cut of batches has to come to.
FITTING = (
    "ANTI JOIN (SELECT customer_id FROM {schema}.purchases GROUP BY ALL HAVING sum(amount) > 9999999999999999.99) "
    "USING (customer_id)"
)

# Current rows follow from changes: how many steps led to one depends on how the batches were cut.
SIDES = (
    Side(Table.PURCHASES, Table.PURCHASES, "purchase_id"),
    Side(
        Table.PROFILE_CHANGES,
        Table.PROFILES,
        "customer_id",
        _newest('landing DESC NULLS LAST, "partition" DESC, "offset" DESC', "is_tombstone"),
    ),
    Side(Table.ACTIVITY_CHANGES, Table.ACTIVITY, "customer_id", _newest("view_version DESC", "is_gone"), FITTING),
)
NOT_COMPARED = ("view_version",)


class Compared(NamedTuple):
    """One table, live and rebuilt.

    Attributes:
        table: its label.
        live, rebuilt: current rows of either.
        only_live, only_rebuilt: rows whose key the other has not, and repeats of one that the other has less often.
        different: rows whose key both have, with other values.
        columns: in how many of these each column differs; none that is equal in all.
        examples: keys of some of all these.
    """

    table: str
    live: int
    rebuilt: int
    only_live: int
    only_rebuilt: int
    different: int
    columns: dict[str, int]
    examples: list[str]

    @property
    def differences(self) -> int:
        """Rows that are not the same on both sides."""
        return self.only_live + self.only_rebuilt + self.different


def compare(database: duckdb.DuckDBPyConnection, side: Side, *, is_everybody: bool) -> Compared:
    """Compare the rows in `live` with those in `rebuilt`: all there are, or those of who is `chosen`."""
    of_whom = "" if is_everybody else "SEMI JOIN chosen USING (customer_id)"
    columns = [name for name in arrow_schema(side.columns_of).names if name not in NOT_COMPARED]
    listed = ", ".join(f'"{column}"' for column in columns)
    counts = []
    for schema in ("live", "rebuilt"):
        database.execute(
            f"CREATE OR REPLACE TEMP TABLE {schema}_rows AS SELECT {listed} FROM "
            f"(SELECT * FROM {schema}.{name_of(side.table)} {of_whom} {side.but.format(schema=schema)} {side.rows})"
        )
        counts.append(_count(database, f"{schema}_rows"))
    for name, these, others in (("gone", "live", "rebuilt"), ("come", "rebuilt", "live")):
        database.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {these}_rows EXCEPT ALL FROM {others}_rows")
    both = f"gone JOIN come USING ({side.key})"
    keys = f"SELECT {side.key} FROM gone INTERSECT SELECT {side.key} FROM come"
    different = _count(database, f"({keys})")
    of_columns = ", ".join(
        f'count(DISTINCT {side.key}) FILTER (gone."{c}" IS DISTINCT FROM come."{c}")' for c in columns
    )
    (unequal,) = database.execute(f"SELECT {of_columns} FROM {both}").fetchall()
    examples = database.execute(
        f"SELECT DISTINCT {side.key} FROM (SELECT {side.key} FROM gone UNION ALL SELECT {side.key} FROM come) "
        f"ORDER BY {side.key} LIMIT {EXAMPLES}"
    ).fetchall()
    return Compared(
        table=side.table.label,
        live=counts[0],
        rebuilt=counts[1],
        only_live=_count(database, "gone") - different,
        only_rebuilt=_count(database, "come") - different,
        different=different,
        columns={column: count for column, count in zip(columns, unequal, strict=True) if count},
        examples=[str(key) for (key,) in examples],
    )


def _count(database: duckdb.DuckDBPyConnection, relation: str) -> int:
    return int(database.execute(f"SELECT count(*) FROM {relation}").fetchall()[0][0])
