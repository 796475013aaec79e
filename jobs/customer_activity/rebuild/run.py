"""`activity rebuild`: from bronze as gold has seen it, beside the streams; nothing live is touched.

The tables of current rows are compared with what the tables that they follow come to, as far as they have read those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple
from uuid import uuid4

import duckdb
from deltalake import DeltaTable
from pyarrow import fs
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import session
from customer_activity.errors import QueryAlreadyRunning, SettingsError, TransientError
from customer_activity.lake import delta
from customer_activity.lease import lease
from customer_activity.operations import current_rows
from customer_activity.quality import snapshot
from customer_activity.rebuild import basis, building, comparison
from customer_activity.rebuild.basis import Basis, Current
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.comparison import Compared
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import filesystem

BESIDE = "_rebuild-"  # what lakes beside a live one are called, and a name


class Rebuilt(NamedTuple):
    """What came out.

    Attributes:
        versions: of the live tables that were rebuilt from and compared with.
        customers: how many were rebuilt.
        records: events that went in, by table.
        tables: the comparisons.
        seconds: how long it took.
    """

    versions: dict[str, int]
    customers: int
    records: dict[str, int]
    tables: list[Compared]
    seconds: float

    @property
    def differences(self) -> int:
        """Rows that are not the same, of all tables."""
        return sum(table.differences for table in self.tables)


def rebuild(settings: Settings, choice: Choice, on_step: Callable[[str], None] = lambda _: None) -> Rebuilt:
    """Build silver and gold once more, in a session of its own; see `rebuild_in`."""
    delta.require_tables(settings.lake)  # rather than start Spark for nothing
    with own_spark(settings, on_step) as spark:
        return rebuild_in(spark, settings, choice, on_step)


@contextmanager
def own_spark(settings: Settings, on_step: Callable[[str], None]) -> Iterator[SparkSession]:
    """Give a session of its own."""
    on_step("starting Spark")
    spark = session.start(settings, f"{settings.pipeline}-rebuild")
    try:
        yield spark
    finally:
        spark.stop()


def rebuild_in(
    spark: SparkSession, settings: Settings, choice: Choice, on_step: Callable[[str], None] = lambda _: None
) -> Rebuilt:
    """Build silver and gold once more and compare them with the live ones, at versions that belong together.

    Args:
        spark: runs the queries.
        settings: whose lake.
        choice: whose rows.
        on_step: told what is being done.

    Raises:
        SettingsError: there is no lake, or nobody is chosen.
        TransientError: the live tables moved on too far meanwhile.
        ActivityError: a query failed on what bronze has.
    """
    started = time.monotonic()
    found = basis.find(settings.lake)
    with beside(settings) as shadow, opened(found) as database:
        on_step("reading bronze")
        return built(spark, database, shadow, found, choice, started=started, on_step=on_step)


def built(
    spark: SparkSession,
    database: duckdb.DuckDBPyConnection,
    shadow: Settings,
    found: Basis,
    choice: Choice,
    *,
    started: float,
    on_step: Callable[[str], None],
) -> Rebuilt:
    """Build on a lake beside what is chosen of `landed`, and compare it with `live`; it is `rebuilt` from then on.

    Args:
        spark: runs the queries.
        database: has the live rows.
        shadow: the lake beside.
        found: the versions that are live.
        choice: whose rows.
        started: when that began, on the monotonic clock.
        on_step: told what is being done.
    """
    customers = building.choose(database, choice)
    if not customers and not choice.is_everybody:
        raise SettingsError(
            "no such customer has a record in bronze", remedy="`activity show CUSTOMER` tells what there is of one"
        )
    on_step("building silver and gold")
    records = {table.label: count for table, count in building.build(spark, database, shadow, choice).items()}
    on_step("comparing")
    snapshot.add(database, {f"rebuilt.{basis.name_of(table)}": _rows(shadow, table) for table in found.live})
    is_everybody = choice.is_everybody
    tables = [comparison.compare(database, side, is_everybody=is_everybody) for side in comparison.sides()]
    for current in found.current:
        tables += _compared_current(database, current, is_everybody=is_everybody)
    return Rebuilt(found.versions, customers, records, tables, time.monotonic() - started)


def _compared_current(
    database: duckdb.DuckDBPyConnection, current: Current, *, is_everybody: bool
) -> Iterator[Compared]:
    """Compare the tables of a stream behind the hot path with what its sources come to."""
    made = {table: arrow_schema(table).empty_table() for table in current.tables}
    if any(opened is not None for opened in current.sources.values()):
        made |= current_rows.computed_at(current.stream, current.sources).tables
    for table, opened in current.tables.items():
        side = comparison.side_of(current.stream.spec, table)
        if not is_everybody and "customer_id" not in side.columns:  # its rows are of nobody, so of nobody chosen
            yield Compared(side.table.label, 0, 0, 0, 0, 0, {}, [])
            continue
        snapshot.add(database, {f"live.{side.name}": snapshot.relation(opened), f"rebuilt.{side.name}": made[table]})
        yield comparison.compare(database, side, is_everybody=is_everybody)


@contextmanager
def beside(settings: Settings) -> Iterator[Settings]:
    """Give a lake of its own beside the live one, which is gone afterwards; what a killed one has left goes first."""
    for name in _left_behind(settings.lake):
        _remove(_shadow(settings, name))
    shadow = _shadow(settings, uuid4().hex[:12])
    try:
        # No driver takes this lease: it shows that a rebuild is running.
        with lease.kept_out(shadow.lake, [topology.landing().name]):
            yield shadow
    finally:
        _remove(shadow)


def _shadow(settings: Settings, name: str) -> Settings:
    places = {"lake": f"{settings.lake}/{BESIDE}{name}", "run_dir": settings.run_dir / f"rebuild-{name}"}
    return settings.model_copy(update=places)


def _left_behind(lake: str) -> Iterator[str]:
    """Yield the names of copies whose rebuild no longer runs: they have names and addresses, too."""
    files, place = filesystem(lake)
    for info in files.get_file_info(fs.FileSelector(place, allow_not_found=True)):
        if info.type == fs.FileType.Directory and info.base_name.startswith(BESIDE):
            with suppress(QueryAlreadyRunning):
                lease.refuse_running(f"{lake}/{info.base_name}", topology.landing().name)
                yield info.base_name.removeprefix(BESIDE)


def _remove(shadow: Settings) -> None:
    for place in (shadow.lake, str(shadow.run_dir)):
        files, path = filesystem(place)
        # Removed already: by another rebuild, or it was listed by S3 while Hadoop was still removing it.
        with suppress(FileNotFoundError):
            files.delete_dir(path)


@contextmanager
def opened(found: Basis) -> Iterator[duckdb.DuckDBPyConnection]:
    """Give a database with bronze as `landed` and silver and gold as `live`.

    Raises:
        TransientError: files of these versions are gone.
    """
    try:
        with snapshot.database_of({**found.landed_relations(), **found.live_relations()}) as database:
            yield database
    except duckdb.IOException as error:
        raise TransientError(
            "files of the versions that were compared are gone: compacted and expired meanwhile",
            remedy="rebuild again; with fewer customers it takes less time",
        ) from error


def _rows(shadow: Settings, table: Table) -> snapshot.Relation:
    return snapshot.relation(DeltaTable(table_path(shadow.lake, table)))
