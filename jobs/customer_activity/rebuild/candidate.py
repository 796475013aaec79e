"""Make of a lake beside the live one what can take the place of the live silver and gold.

- Silver goes on from the live bronze: its checkpoint, and a commit to each of its tables, say that it has read it up
  to the version that it was built from.
- Gold is made anew of one row a customer. A row that the view topic has keeps the `view_version` that it has there, and
  one that is as the live one its own; any other gets a greater one than any before, so that whoever reads the view
  takes it for the newer.
- The tables of current rows follow by their own queries.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Reason, Table, checkpoint_path, history_path, lock_path, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.checkpoints.checkpoint import OffsetRange
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import delta, generations
from customer_activity.lake.datafiles import FileWriter, in_parts
from customer_activity.lake.generations import Kept
from customer_activity.lake.jvm import jvm
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.named_operations import REBUILD
from customer_activity.lease.lease import newest_epoch
from customer_activity.rebuild import building
from customer_activity.rebuild.basis import LANDED_OF
from customer_activity.rebuild.comparison import NOT_COMPARED
from customer_activity.settings import Settings
from customer_activity.streams.gold.state import NAME as GOLD
from customer_activity.streams.gold.stream import ViewClock
from customer_activity.streams.publish.records import as_on_topic, version_of
from customer_activity.streams.silver.index import NAME as SILVER
from customer_activity.streams.silver.stream import SIDES

PLACE = ["partition", "offset"]


def under_lease(lake: str, shadow: str) -> None:
    """Let what runs on a lake beside commit with the epochs that this process holds on the live one."""
    for query in topology.names():
        epoch = newest_epoch(lake, query)
        if epoch is not None and epoch > 1:
            before = Path(lock_path(shadow, query)).with_name(f"{query}.{epoch - 1}")
            before.parent.mkdir(parents=True, exist_ok=True)
            before.touch()


def take_up(lake: str, kept: Kept, shadow: str) -> None:
    """Put a copy of a kept generation on a lake beside the live one; data files, which never change, are linked."""
    place = generations.folder(lake, kept.name)
    for part in generations.parts():
        if (place / part).exists():
            shutil.copytree(place / part, Path(shadow) / part, copy_function=_copied)


def _copied(source: str, target: str) -> None:
    if source.endswith(".parquet") and "_delta_log" not in source:
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def catch_up(
    spark: SparkSession, database: duckdb.DuckDBPyConnection, shadow: Settings, kept: Kept
) -> dict[Table, int]:
    """Let a generation that was taken up read what has landed since it was taken out; return how many events that is.

    Raises:
        ActivityError: a query failed.
    """
    delta.ensure_tables(shadow.lake)
    go_on_from(shadow.lake, shadow.lake)
    taken = {}
    for table in SIDES:
        ends = kept.landed.get(table.label, {})
        cases = " ".join(f"WHEN {partition} THEN {end}" for partition, end in ends.items())
        since = f'WHERE "offset" >= CASE "partition" {cases} ELSE 0 END' if cases else ""
        taken[table] = building.land(database, shadow.lake, table, since)
    building.run(spark, shadow, building.BUILT)
    return taken


def go_on_from(lake: str, bronze: str) -> None:
    """Let silver on a lake go on after what another lake's bronze has by now, as if its last batch had read that."""
    state = checkpoint.state(lake, SILVER)
    if state is None:
        raise RuntimeError(f"{lake}: silver has no checkpoint")  # whoever made the lake has run it
    number = 1 if state.planned is None else state.planned + 1
    end = [
        checkpoint.after(delta.table_id(bronze, table), DeltaTable(table_path(bronze, table)).version())
        for table in SIDES
    ]
    batch = MicroBatch(SILVER, state.generation, number, cut=OffsetRange(end, end)._asdict())
    for table in LANDED_OF:
        building.add(lake, table, [], _properties(batch, table))
    shutil.rmtree(checkpoint_path(lake, SILVER))
    checkpoint.write(lake, SILVER, state.generation, number, OffsetRange(end, end), is_committed=True)


def _properties(batch: MicroBatch, table: Table) -> CommitProperties:
    return CommitProperties(
        app_transactions=[Transaction(*batch.transaction(table))],
        custom_metadata={"userMetadata": batch.metadata()},
    )


def complete(
    spark: SparkSession,
    database: duckdb.DuckDBPyConnection,
    shadow: Settings,
    settings: Settings,
    on_topic: Mapping[bytes, bytes | None],
    former: Kept | None = None,
) -> None:
    """Make a lake beside with silver and gold in it, which have read all, fit to take the live one's place.

    Args:
        spark: runs the queries behind the path.
        database: has gold's changes as `live.activity_changes` and `rebuilt.activity_changes`.
        shadow: the lake beside.
        settings: the live one.
        on_topic: last value by key of the view topic.
        former: the kept generation that it was, if it was one.

    Raises:
        ActivityError: a query failed.
    """
    refused = conflicts(shadow.lake)
    if former is not None:
        before = pq.read_table(generations.folder(settings.lake, former.name) / generations.CONFLICTS)
        refused = pa.concat_tables([before, refused])
    go_on_from(shadow.lake, settings.lake)
    make_gold(database, shadow.lake, settings.lake, on_topic)
    forget_tables(spark)
    building.run(spark, shadow, [spec.name for spec in topology.behind()])
    needed = {Path(part).parts[0] for part in generations.parts()}
    for path in Path(shadow.lake).iterdir():
        if path.name not in needed:
            shutil.rmtree(path)
    pq.write_table(refused, Path(shadow.lake) / generations.CONFLICTS)


def forget_tables(spark: SparkSession) -> None:
    """Have Delta read logs anew: at the same paths there are other tables now."""
    jvm(spark).org.apache.spark.sql.delta.DeltaLog.clearCache()


def conflicts(lake: str) -> pa.Table:
    """Return partition and offset of the purchases that a lake has in quarantine as conflicting repeats."""
    table = DeltaTable(table_path(lake, Table.QUARANTINE)).to_pyarrow_dataset()
    return table.to_table(columns=PLACE, filter=pc.field("reason") == Reason.CONFLICTING_DUPLICATE.value)


def make_gold(
    database: duckdb.DuckDBPyConnection, shadow: str, live: str, on_topic: Mapping[bytes, bytes | None]
) -> None:
    """Replace gold's tables on a lake by new ones; their rows are one batch of gold's, the last that it made."""
    beside = f"{shadow}/_gold"
    before = [*delta.instead_of(live, Table.ACTIVITY_CHANGES), delta.table_id(live, Table.ACTIVITY_CHANGES)]
    delta.create(beside, Table.ACTIVITY_CHANGES, instead_of=before)
    delta.create(beside, Table.ACTIVITY)
    newest = max(ViewClock.of(live).newest, *map(version_of, on_topic.values()), 0)
    files = []
    for part in in_parts(_rows(database, ViewClock(newest).next()), building.FILE_ROWS):
        writer = FileWriter(beside, Table.ACTIVITY_CHANGES)
        writer.write(as_on_topic(part, on_topic))
        files.append(writer.close())
    written = [file for file in files if file is not None]
    building.add(beside, Table.ACTIVITY_CHANGES, written, _as_last_batch(shadow))
    shutil.rmtree(f"{shadow}/gold")
    Path(beside, "gold").rename(f"{shadow}/gold")
    former = {table for table in Table if table.value.startswith("gold/")}
    for spec in topology.specs():
        if former & {*spec.sources, *spec.tables} and spec.name != GOLD:  # it read or wrote the former ones
            shutil.rmtree(checkpoint_path(shadow, spec.name), ignore_errors=True)
    for table in former:
        shutil.rmtree(history_path(shadow, table), ignore_errors=True)


def _as_last_batch(lake: str) -> CommitProperties:
    """Return what a commit tells for gold to go on after it: it has read all that silver has."""
    state, done = checkpoint.state(lake, GOLD), checkpoint.progress(lake, GOLD)
    if state is None or done is None:  # nothing has come to gold yet
        return CommitProperties(custom_metadata={"userMetadata": json.dumps({"query": REBUILD})})
    pair = {table.label: DeltaTable(table_path(lake, table)).version() for table in LANDED_OF}
    batch = MicroBatch(GOLD, state.generation, done.batch_id, extra=dict(pair))
    if (cut := checkpoint.cut(lake, GOLD, done.batch_id)) is not None:
        batch.cut = cut._asdict()
    return _properties(batch, Table.ACTIVITY_CHANGES)


def _rows(database: duckdb.DuckDBPyConnection, version: int) -> Iterator[pa.RecordBatch]:
    """Yield gold's new rows; who is in one of both alone begins or ends."""
    newest = "QUALIFY row_number() OVER (PARTITION BY customer_id ORDER BY view_version DESC) = 1"
    for schema in ("live", "rebuilt"):
        database.execute(
            f"CREATE OR REPLACE TEMP TABLE {schema}_newest AS FROM {schema}.activity_changes "
            f"WHERE customer_id IS NOT NULL {newest}"
        )
    names = [name for name in arrow_schema(Table.ACTIVITY).names if name not in NOT_COMPARED]
    built, known = (", ".join(f"{side}.{name}" for name in names) for side in ("built", "known"))
    nothing = {"purchase_count": "0", "total_amount": "0", "currency": "known.currency", "customer_id": "customer_id"}
    ended = ", ".join(f"CASE WHEN known.is_gone THEN known.{n} ELSE {nothing.get(n, 'NULL')} END" for n in names)
    found = database.sql(
        f"""
        SELECT {built}, coalesce(NOT known.is_gone, false) AS existed, false AS is_gone,
               CASE WHEN NOT known.is_gone AND ({built}) IS NOT DISTINCT FROM ({known}) THEN known.view_version
                    ELSE {version} END AS view_version
        FROM rebuilt_newest AS built LEFT JOIN live_newest AS known USING (customer_id) WHERE NOT built.is_gone
        UNION ALL
        SELECT {ended}, true, true, CASE WHEN known.is_gone THEN known.view_version ELSE {version} END
        FROM live_newest AS known ANTI JOIN (FROM rebuilt_newest WHERE NOT is_gone) USING (customer_id)
        """
    )
    return building.whole(found.to_arrow_reader(building.ROWS_AT_A_TIME), Table.ACTIVITY_CHANGES)
