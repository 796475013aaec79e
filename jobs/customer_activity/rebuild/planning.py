"""What a correction changes: the rows that the comparison has found to differ, and what is right in their place.

- silver.purchases: all rows of a purchase id that differs, by those that were rebuilt.
- silver.profile_changes: all changes of a customer whose current profile differs, by those that were rebuilt.
- gold.activity_changes: the right row of a customer that differs is added. It has a greater `view_version` than any
  before, so that whoever reads the view takes it for the newer. Where the view topic has the right row already, it has
  the version that it has there, and rows go that would be newer: they never were on the topic.
- bronze.quarantine: repeats with other content that silver refuses now, or does no longer.

The tables of current rows follow from those, so nothing is kept of theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import duckdb
import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.contracts.view import as_on_topic, version_of
from customer_activity.lake import conflicts, corrections
from customer_activity.lake.conflicts import PLACE
from customer_activity.lake.corrections import Change, Rows
from customer_activity.lake.datafiles import in_parts, whole
from customer_activity.lake.view_clock import ViewClock
from customer_activity.operations.differences import of_keys
from customer_activity.rebuild import comparison
from customer_activity.rebuild.basis import name_of
from customer_activity.rebuild.building import ROWS_AT_A_TIME
from customer_activity.rebuild.comparison import Side

OnTopic = Mapping[bytes, bytes | None]


def changes(
    database: duckdb.DuckDBPyConnection, lake: str, run: str, refused: Change, on_topic: OnTopic
) -> dict[str, Change]:
    """Keep the rows that go and those that come; return them by label of a table, with those of quarantine."""
    found = {Table.QUARANTINE.label: refused}
    for side in comparison.sides():
        found[side.table.label] = (
            published(database, lake, run, side, on_topic) if side.is_published else replaced(database, lake, run, side)
        )
    return found


def older_than_topic(database: duckdb.DuckDBPyConnection, side: Side, on_topic: OnTopic) -> int:
    """Add customers whose record on the topic has a greater version than their row to those that differ.

    Another producer wrote that record, or a former lake did. Consumers take it for the newer one until the right row
    has a version that is greater still.

    Returns:
        How many they are.
    """
    there = [(key, version) for key, value in on_topic.items() if (version := version_of(value))]
    keys = pa.array([key.decode(errors="replace") for key, _ in there], pa.string())
    versions = pa.array([version for _, version in there], pa.int64())
    database.register("on_topic", pa.table({"customer_id": keys, "view_version": versions}))
    older = f"""
        SELECT customer_id FROM on_topic JOIN (
            SELECT customer_id, max(view_version) AS view_version, arg_max(is_gone, view_version) AS is_gone
            FROM live.{side.name} GROUP BY customer_id
        ) AS newest USING (customer_id)
        WHERE on_topic.view_version > newest.view_version AND NOT newest.is_gone
    """
    ((found,),) = database.execute(f"SELECT count(*) FROM ({older})").fetchall()
    database.execute(f"INSERT INTO {side.name}_keys {older} EXCEPT FROM {side.name}_keys")
    database.unregister("on_topic")
    return int(found)


def replaced(database: duckdb.DuckDBPyConnection, lake: str, run: str, side: Side) -> Change:
    """Keep all rows of the keys that differ, as they are and as they were rebuilt."""
    rows = {
        what: _kept(
            database, lake, run, side.table, what, of_keys(f"{schema}.{side.name}", f"{side.name}_keys", side.key)
        )
        for what, schema in (("retracted", "live"), ("added", "rebuilt"))
    }
    return Change(side.key, **rows)


def published(database: duckdb.DuckDBPyConnection, lake: str, run: str, side: Side, on_topic: OnTopic) -> Change:
    """Keep the changes that go, and those that come; who is in one of both alone begins or ends."""
    version = ViewClock(max(ViewClock.of(lake).newest, *map(version_of, on_topic.values()), 0)).next()
    for schema in ("live", "rebuilt"):
        database.execute(
            f"CREATE OR REPLACE TEMP TABLE {schema}_newest AS FROM {schema}.{side.name} "
            f"SEMI JOIN {side.name}_keys USING (customer_id) "
            "QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY view_version DESC) = 1"
        )
    columns = side.columns
    built = ", ".join(f"built.{name}" for name in columns)
    nothing = {
        "purchase_count": "0",
        "total_amount": "0",
        "currency": "known.currency",
        "customer_id": "known.customer_id",
    }
    ended = ", ".join(nothing.get(name, "NULL") for name in columns)
    right = database.sql(
        f"""
        SELECT {built}, coalesce(NOT known.is_gone, false) AS existed, false AS is_gone, {version} AS view_version
        FROM rebuilt_newest AS built LEFT JOIN live_newest AS known USING (customer_id) WHERE NOT built.is_gone
        UNION ALL
        SELECT {ended}, true, true, {version}
        FROM live_newest AS known ANTI JOIN (FROM rebuilt_newest WHERE NOT is_gone) USING (customer_id)
        WHERE NOT known.is_gone
        """
    )
    schema = arrow_schema(side.table)
    with database.cursor() as beside:  # the rows are read meanwhile
        beside.register("part", schema.empty_table())
        beside.execute("CREATE OR REPLACE TABLE coming AS FROM part")
        for part in in_parts(whole(right.to_arrow_reader(ROWS_AT_A_TIME), schema), ROWS_AT_A_TIME):
            beside.register("part", as_on_topic(part, on_topic))
            beside.execute("INSERT INTO coming FROM part")
    same = " AND ".join(f"live.{name} IS NOT DISTINCT FROM coming.{name}" for name in columns)
    database.execute(
        f"CREATE OR REPLACE TEMP TABLE there AS SELECT customer_id, view_version FROM live.{side.name} AS live "
        f"JOIN coming USING (customer_id, view_version) GROUP BY ALL HAVING bool_and({same})"
    )
    # Beside a newer row the right one would not be the newest.
    going = f"""
        SELECT live.* FROM live.{side.name} AS live LEFT JOIN coming USING (customer_id)
        WHERE live.view_version > coming.view_version
           OR live.view_version = coming.view_version AND NOT EXISTS (FROM there WHERE customer_id = live.customer_id)
           OR live.customer_id IS NULL AND EXISTS (FROM {side.name}_keys WHERE customer_id IS NULL)
    """
    retracted = _kept(database, lake, run, side.table, "retracted", going)
    added = _kept(database, lake, run, side.table, "added", "FROM coming ANTI JOIN there USING (customer_id)")
    return Change((*side.key, "view_version"), retracted, added)


def of_quarantine(lake: str, run: str, wanted: pa.Table) -> Change:
    """Keep what makes quarantine's conflicting repeats those at some coordinates (partition, offset)."""
    held = conflicts.held(lake, PLACE)
    surplus, missing = _without(held, wanted), _without(wanted, held)
    going = conflicts.held_at(lake, surplus)
    coming = conflicts.landed(lake, missing) if missing.num_rows else iter(())
    retracted = corrections.keep(lake, Table.QUARANTINE, run, "retracted", _as_quarantine(going))
    added = corrections.keep(lake, Table.QUARANTINE, run, "added", _as_quarantine(coming))
    return Change((*PLACE, "reason"), retracted, added)


def _as_quarantine(found: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(Table.QUARANTINE)
    return (batch for rows in found for batch in rows.select(schema.names).cast(schema).to_batches())


def newest_landings(database: duckdb.DuckDBPyConnection, tables: Iterable[Table]) -> dict[str, int]:
    """Return the newest landing of tables of events, by label; none of a table whose landings are not numbered."""
    found = {}
    for table in tables:
        ((newest,),) = database.execute(f"SELECT max(landing) FROM landed.{name_of(table)}").fetchall()
        if newest is not None:
            found[table.label] = int(newest)
    return found


def _kept(database: duckdb.DuckDBPyConnection, lake: str, run: str, table: Table, what: str, query: str) -> Rows:
    found = database.sql(query).to_arrow_reader(ROWS_AT_A_TIME)
    return corrections.keep(lake, table, run, what, whole(found, arrow_schema(table)))


def _without(places: pa.Table, others: pa.Table) -> pa.Table:
    return places.join(others, list(PLACE), join_type="left anti")
