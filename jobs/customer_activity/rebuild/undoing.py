"""`activity rebuild --undo`: have silver's rows as they were before a correction; gold and the view follow.

Silver's rows come from what the correction has kept, but for keys whose rows have changed since: those stay, and are
counted. Gold is computed from silver by the code that is installed, for the customers concerned. It is a correction
itself, which is kept and can be undone in its turn.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import duckdb
from deltalake import DeltaTable
from pyarrow import dataset
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import SettingsError
from customer_activity.kafka import settled
from customer_activity.lake import corrections, delta
from customer_activity.lake.corrections import Change, Correction, Rows
from customer_activity.lake.datafiles import whole
from customer_activity.lake.microbatch import ACCEPTED
from customer_activity.operations import differences
from customer_activity.operations.differences import listed, of_keys
from customer_activity.quality import snapshot
from customer_activity.rebuild import building, comparison, planning, run
from customer_activity.rebuild.basis import name_of
from customer_activity.rebuild.comparison import Side
from customer_activity.rebuild.repair import (
    Applied,
    Counted,
    OnStep,
    Read,
    at_rest,
    carry_out,
    counted,
    generations,
    with_spark,
)
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import filesystem


def undo(settings: Settings, name: str, on_step: OnStep = lambda _: None) -> Applied:
    """Undo a correction.

    Raises:
        SettingsError: there is no lake, no correction of that name is kept, or another came after it.
        QueryAlreadyRunning: a driver runs.
        BrokerUnavailable: Kafka does not answer.
        TransientError: the live queries have not read all.
        ActivityError: a query failed.
    """
    if corrections.at_work(settings.lake) is None:
        newest(settings.lake, name)
    return with_spark(settings, on_step, lambda spark: undo_in(spark, settings, name, on_step))


def undo_in(
    spark: SparkSession,
    settings: Settings,
    name: str,
    on_step: OnStep = lambda _: None,
    read: Read | None = None,
) -> Applied:
    """Do it in a session that runs; see `undo`. `read` tells the last values of the view topic."""
    lake = settings.lake
    former = newest(lake, name)
    with (
        at_rest(spark, settings, on_step, even_if_refused=False) as rest,
        run.beside(settings) as shadow,
        run.opened(rest.found) as database,
    ):
        on_topic = (read or settled.last_values)(settings, settings.view_topic)
        now = datetime.now(UTC)
        own = corrections.new_run(lake, now)
        corrections.sweep(lake)
        on_step("looking for what has changed since")
        passed_over = sum(turn_back(database, lake, former, side) for side in kept())
        on_step("computing gold")
        choose(database)
        compute(spark, database, shadow)
        refused = turned(lake, own, Table.QUARANTINE, former.changes[Table.QUARANTINE.label])
        now_counted, purchases = counted(lake), differences.count(database, f"rebuilt.{name_of(Table.PURCHASES)}")
        correction = Correction(
            run=own,
            at=now,
            reason=f"rebuild --undo {name}",
            undoes=name,
            changes=planning.changes(database, lake, own, refused, on_topic),
            generations=generations(),
            landed=planning.newest_landings(database, rest.found.landed),
            counted=undone(now_counted, former, settings.purchase_topic, purchases),
            counted_before=now_counted,
        )
        carry_out(settings, rest, correction, on_step)
        return Applied(None, correction, passed_over)


def newest(lake: str, name: str) -> Correction:
    """Return a correction that nothing was corrected after.

    Raises:
        SettingsError: none of that name is kept, or another came after it.
    """
    found, last = corrections.find(lake, name), corrections.made(lake)[-1]
    if found.run != last.run:
        raise SettingsError(
            f"correction {last.run} came after {name}: what that one left is not there any more",
            remedy=("" if last.is_dropped else f"`activity rebuild --undo {last.run}` first; or ")
            + "`activity rebuild --apply` with the release whose rows you want",
        )
    return found


def kept() -> list[Side]:
    """Return how tables are compared whose rows a correction has kept; what is published is computed."""
    return [side for side in comparison.sides() if not side.is_published]


def turn_back(database: duckdb.DuckDBPyConnection, lake: str, former: Correction, side: Side) -> int:
    """Make `rebuilt` what a table of silver's is to be, and `<name>_keys` the keys whose rows differ.

    Returns:
        Keys whose rows are not as the correction left them.
    """
    change, key = former.changes[side.table.label], listed(side.key)
    schema = arrow_schema(side.table)
    for what, rows in (("retracted", change.retracted), ("added", change.added)):
        snapshot.add(database, {f"{what}.{side.name}": kept_rows(lake, side.table, rows)})
    known = f"{side.name}_known"
    both = (f"SELECT {key} FROM {what}.{side.name}" for what in ("retracted", "added"))
    database.execute(f"CREATE TEMP TABLE {known} AS {' UNION '.join(both)}")
    columns = listed(schema.names)
    present = f"(SELECT {columns} FROM ({of_keys(f'live.{side.name}', known, side.key)}))"
    differences.find(database, side.name, side.key, present, f"(SELECT {columns} FROM added.{side.name})")
    changed = differences.count(database, f"{side.name}_keys")
    database.execute(f"CREATE OR REPLACE TEMP TABLE {side.name}_keys AS FROM {known} EXCEPT FROM {side.name}_keys")
    database.execute("CREATE SCHEMA IF NOT EXISTS rebuilt")
    database.execute(
        f"CREATE VIEW rebuilt.{side.name} AS SELECT {columns} FROM live.{side.name} AS r "
        f"ANTI JOIN {side.name}_keys AS k ON {differences.is_same(side.key)} UNION ALL BY NAME "
        f"SELECT {columns} FROM ({of_keys(f'retracted.{side.name}', f'{side.name}_keys', side.key)})"
    )
    return changed


def kept_rows(lake: str, table: Table, rows: Rows) -> snapshot.Relation:
    """Return rows that a correction has kept."""
    if not rows.rows:
        return arrow_schema(table).empty_table()
    files, folder = filesystem(table_path(lake, table))
    # Columns that have come to the table since are null.
    return dataset.dataset(f"{folder}/{rows.path}", schema=arrow_schema(table), filesystem=files, format="parquet")


def choose(database: duckdb.DuckDBPyConnection) -> None:
    """Make the table `chosen` of the customers whose rows of silver's change."""
    sides = [
        f"SELECT customer_id FROM ({of_keys(f'{schema}.{side.name}', f'{side.name}_keys', side.key)})"
        for side in kept()
        for schema in ("live", "rebuilt")
    ]
    database.execute(f"CREATE TABLE chosen AS {' UNION '.join(sides)}")


def compute(spark: SparkSession, database: duckdb.DuckDBPyConnection, shadow: Settings) -> None:
    """Make `rebuilt` and compare what is published of what silver is to be, for the customers that are `chosen`."""
    delta.ensure_tables(shadow.lake)
    for side in kept():
        found = database.sql(f"FROM rebuilt.{side.name} SEMI JOIN chosen USING (customer_id)")
        rows = whole(found.to_arrow_reader(building.ROWS_AT_A_TIME), arrow_schema(side.table))
        building.add(shadow.lake, side.table, rows)
    building.run(spark, shadow, topology.upstream(topology.publishing()))
    for side in comparison.sides():
        if side.is_published:
            made = DeltaTable(table_path(shadow.lake, side.table))
            snapshot.add(database, {f"rebuilt.{side.name}": snapshot.relation(made)})
            comparison.compare(database, side, is_everybody=False)


def turned(lake: str, own: str, table: Table, change: Change) -> Change:
    """Keep a change the other way round."""
    retracted = corrections.keep(lake, table, own, "retracted", corrections.read(lake, table, change.added))
    added = corrections.keep(lake, table, own, "added", corrections.read(lake, table, change.retracted))
    return Change(change.key, retracted, added)


def undone(now: Counted, former: Correction, purchase_topic: str, purchases: int) -> Counted:
    """Return what silver's batches have counted, less what a correction told, and with what they had told before it.

    Purchases count as often as they are there: keys that were passed over are counted by what has come since.
    """
    found: Counted = {}
    for label, topics in now.items():
        after, before = former.counted.get(label), former.counted_before.get(label)
        if topics is None or after is None or before is None:
            found[label] = None
            continue
        of_table: dict[str, dict[str, int]] = {}
        for topic in {*topics, *before}:
            total = Counter(topics.get(topic, {}))
            total.subtract(after.get(topic, {}))
            total.update(before.get(topic, {}))
            of_table[topic] = {outcome: records for outcome, records in total.items() if records > 0}
        if label == Table.PURCHASES.label:
            of_table.setdefault(purchase_topic, {})[ACCEPTED] = purchases
        found[label] = of_table
    return found
