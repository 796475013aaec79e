"""Hold rebuilt tables against the live ones: every row, every column that does not depend on how batches were cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.operations import differences
from customer_activity.operations.differences import listed
from customer_activity.rebuild.basis import name_of
from customer_activity.topology import Spec

EXAMPLES = 5


class Side(NamedTuple):
    """How a table is compared.

    Attributes:
        table: whose rows.
        columns: that are compared.
        key: the columns that name a row.
        rows: the condition that leaves a key's current row, in DuckDB's words; empty where every row is one.
        but: the clause that leaves out keys whose row depends on how batches were cut.
    """

    table: Table
    columns: Sequence[str]
    key: tuple[str, ...]
    rows: str = ""
    but: str = ""

    @property
    def name(self) -> str:
        """What its tables in the database begin with."""
        return name_of(self.table)

    @property
    def is_published(self) -> bool:
        """Whether its rows are published: who reads the view has to take those that are corrected for the newer."""
        return self.table in topology.publishing().sources


def sides() -> list[Side]:
    """Return how the tables that a rebuild makes are compared: sources first."""
    return [side_of(spec, table) for spec in topology.rebuilt() for table in spec.telling]


def side_of(spec: Spec, table: Table) -> Side:
    """Return how a table is compared, as its stream declares it.

    Current rows follow from changes: how many steps led to one depends on how the batches were cut.
    """
    how = spec.how(table)
    columns = [name for name in arrow_schema(table).names if name not in (*how.uneven, how.ended)]
    rows = but = ""
    if how.order:
        newest_first = ", ".join(f'"{name}" DESC NULLS LAST' for name in how.order)
        rows = f"QUALIFY row_number() OVER (PARTITION BY {listed(how.key)} ORDER BY {newest_first}) = 1"
        rows += f" AND NOT {how.ended}" if how.ended else ""
    if how.frozen:  # be it on one side alone
        frozen = " UNION ".join(how.frozen.format(tables=schema) for schema in ("live", "rebuilt"))
        but = f"ANTI JOIN ({frozen}) USING ({listed(how.key)})"
    return Side(table, columns, how.key, rows, but)


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
    """Compare the rows in `live` with those in `rebuilt`: all there are, or those of who is `chosen`.

    What differs is in tables of the database afterwards, as `differences.find` makes them.
    """
    of_whom = "" if is_everybody else "SEMI JOIN chosen USING (customer_id)"
    counts = []
    for schema in ("live", "rebuilt"):
        database.execute(
            f"CREATE OR REPLACE TEMP TABLE {schema}_rows AS SELECT {listed(side.columns)} FROM "
            f"(SELECT * FROM {schema}.{side.name} {of_whom} {side.but} {side.rows})"
        )
        counts.append(differences.count(database, f"{schema}_rows"))
    differences.find(database, side.name, side.key, "live_rows", "rebuilt_rows")
    gone, come, key = f"{side.name}_gone", f"{side.name}_come", listed(side.key)
    both = f"SELECT {key} FROM {gone} INTERSECT SELECT {key} FROM {come}"
    different = differences.count(database, f"({both})")
    examples = database.execute(f"SELECT * FROM {side.name}_keys ORDER BY ALL LIMIT {EXAMPLES}").fetchall()
    return Compared(
        table=side.table.label,
        live=counts[0],
        rebuilt=counts[1],
        only_live=differences.count(database, gone) - different,
        only_rebuilt=differences.count(database, come) - different,
        different=different,
        columns=_unequal(database, side),
        examples=[" ".join(map(str, values)) for values in examples],
    )


def _unequal(database: duckdb.DuckDBPyConnection, side: Side) -> dict[str, int]:
    """Count by column the keys whose rows are on both sides and differ in it."""
    key = listed(side.key)
    of_columns = ", ".join(
        f'count(DISTINCT ({key})) FILTER (gone."{name}" IS DISTINCT FROM come."{name}") AS "{name}"'
        for name in side.columns
    )
    (counts,) = database.execute(
        f"SELECT {of_columns} FROM {side.name}_gone AS gone JOIN {side.name}_come AS come USING ({key})"
    ).fetchall()
    return {name: count for name, count in zip(side.columns, counts, strict=True) if count}
