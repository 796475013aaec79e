"""`activity rebuild --swap` and `--back`: another generation of silver and gold in the place of the live one.

1. The live queries silver and gold take what waits, and drivers are kept out from there on: both sides have read the
   same. Where they cannot go on, because layers were put back from backups, a swap that does not depend on the
   comparison is made without that.
2. The other generation is built beside from all of bronze, or is a kept one that takes what has landed since.
3. It is compared with the live one. Where that is to decide, nothing happens unless both are equal.
4. It is completed, and both change places (`moving`). The view follows when the streams run again: publish sends the
   rows that the topic has otherwise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import duckdb
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import REPLAY, table_path
from customer_activity.engine import session
from customer_activity.errors import (
    ChangeFeedLost,
    CheckpointMismatch,
    ForeignCommit,
    QueryAlreadyRunning,
    SettingsError,
)
from customer_activity.kafka import clients
from customer_activity.lake import delta, generations, history
from customer_activity.lake.generations import Kept
from customer_activity.lake.microbatch import metadata_of
from customer_activity.lease import lease
from customer_activity.rebuild import basis, building, candidate, moving, run
from customer_activity.rebuild.basis import Basis
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.run import Rebuilt
from customer_activity.settings import Settings

OnStep = Callable[[str], None]
Read = Callable[[Settings, str], Mapping[bytes, bytes | None]]


class When(StrEnum):
    """When what was rebuilt takes the place of what is live."""

    NEVER = "never"
    IF_EQUAL = "if-equal"
    ALWAYS = "always"


class Swapped(NamedTuple):
    """What came of a swap.

    Attributes:
        rebuilt: the comparison; None where an interrupted swap was finished, and nothing else done.
        kept: the name under which the old generation is kept; empty when nothing was swapped.
    """

    rebuilt: Rebuilt | None
    kept: str


def swap(settings: Settings, when: When, on_step: OnStep = lambda _: None) -> Swapped:
    """Rebuild everybody's silver and gold, compare, and put them in the place of the live ones when told to.

    Raises:
        SettingsError: there is no lake, or it is not a folder.
        QueryAlreadyRunning: a driver runs.
        BrokerUnavailable: Kafka does not answer.
        TransientError: the live queries have not read all.
        ActivityError: a query failed.
    """
    require_folder(settings)
    return _with_spark(settings, on_step, lambda spark: swap_in(spark, settings, when, on_step))


def back(settings: Settings, name: str, on_step: OnStep = lambda _: None) -> Swapped:
    """Put a kept generation in the place of the live one, after it has read what has landed since.

    Raises:
        SettingsError: there is no lake, it is not a folder, or none of that name is kept.
        QueryAlreadyRunning: a driver runs.
        BrokerUnavailable: Kafka does not answer.
        TransientError: the live queries have not read all.
        ActivityError: a query failed.
    """
    require_folder(settings)
    if generations.at_work(settings.lake) is None:
        generations.find(settings.lake, name)
    return _with_spark(settings, on_step, lambda spark: back_in(spark, settings, name, on_step))


def require_folder(settings: Settings) -> None:
    """Make sure that generations can be moved.

    Raises:
        SettingsError: the lake is on an object store.
    """
    if not settings.is_local_lake:
        raise SettingsError(
            f"{settings.lake}: generations are swapped by moving folders, which object stores cannot",
            remedy="leave --swap out: it compares; a new lake beside, built from Kafka, can take this one's place",
        )


def _with_spark(settings: Settings, on_step: OnStep, work: Callable[[SparkSession], Swapped]) -> Swapped:
    if generations.at_work(settings.lake) is not None:
        on_step("finishing the swap that was interrupted")
        with streams_kept_out(settings):
            return Swapped(None, moving.finish(settings))
    delta.require_tables(settings.lake)
    with streams_kept_out(settings):  # rather than start Spark for nothing
        pass
    on_step("starting Spark")
    spark = session.start(settings, f"{settings.pipeline}-rebuild")
    try:
        return work(spark)
    finally:
        spark.stop()


def swap_in(
    spark: SparkSession,
    settings: Settings,
    when: When,
    on_step: OnStep = lambda _: None,
    read: Read = clients.last_values,
) -> Swapped:
    """Rebuild, compare and swap in a session that runs; see `swap`. `read` tells the last values of the view topic."""
    started = time.monotonic()
    is_forced = when is When.ALWAYS
    with (
        at_rest(spark, settings, on_step, even_if_refused=is_forced) as found,
        run.beside(settings) as shadow,
        run.opened(found) as database,
    ):
        on_topic = read(settings, settings.view_topic)  # first of all: without Kafka nothing is built in vain
        on_step("building silver and gold")
        candidate.under_lease(settings.lake, shadow.lake)
        customers = building.choose(database, Choice())
        taken = building.build(spark, database, shadow, Choice())
        on_step("comparing")
        rebuilt = run.compared(database, shadow, found, customers, taken, started)
        if when is When.IF_EQUAL and rebuilt.differences:
            return Swapped(rebuilt, "")
        on_step("completing it")
        candidate.complete(spark, database, shadow, settings, on_topic)
        kept = _kept(settings, found, database, f"--swap {when}")
        return Swapped(rebuilt, _exchange(spark, shadow, settings, kept))


def back_in(
    spark: SparkSession,
    settings: Settings,
    name: str,
    on_step: OnStep = lambda _: None,
    read: Read = clients.last_values,
) -> Swapped:
    """Go back in a session that runs; see `back`. `read` tells the last values of the view topic."""
    started = time.monotonic()
    former = generations.find(settings.lake, name)
    with at_rest(spark, settings, on_step) as found, run.beside(settings) as shadow, run.opened(found) as database:
        _refuse_replays(settings.lake, former)
        on_topic = read(settings, settings.view_topic)
        on_step("reading what has landed since")
        candidate.under_lease(settings.lake, shadow.lake)
        customers = building.choose(database, Choice())
        candidate.take_up(settings.lake, former, shadow.lake)
        taken = candidate.catch_up(spark, database, shadow, former)
        on_step("comparing")
        rebuilt = run.compared(database, shadow, found, customers, taken, started)
        on_step("completing it")
        candidate.complete(spark, database, shadow, settings, on_topic, former)
        kept = _kept(settings, found, database, f"--back {name}")
        return Swapped(rebuilt, _exchange(spark, shadow, settings, kept, name))


@contextmanager
def at_rest(
    spark: SparkSession, settings: Settings, on_step: OnStep, *, even_if_refused: bool = False
) -> Iterator[Basis]:
    """Let the live silver and gold take what waits, keep drivers out from then on, and open what there is.

    With `even_if_refused` it goes on where they cannot, for a reason that trying again does not mend.

    Raises:
        QueryAlreadyRunning: a driver runs.
        TransientError: it has run in between.
        ActivityError: a query failed.
    """
    on_step("reading what waits")
    delta.require_tables(settings.lake)
    can_go_on = True
    with _said_to_stop(settings):
        try:
            building.run(spark, settings, building.BUILT)
        except (CheckpointMismatch, ChangeFeedLost, ForeignCommit) as fault:
            if not even_if_refused:
                raise
            can_go_on = False
            on_step(f"going on without the live ones: {fault.what}")
    with streams_kept_out(settings):
        yield basis.at_rest(settings.lake) if can_go_on else basis.newest(settings.lake)


@contextmanager
def streams_kept_out(settings: Settings) -> Iterator[None]:
    """Keep drivers from all queries.

    Raises:
        QueryAlreadyRunning: one runs.
    """
    with ExitStack() as held:
        with _said_to_stop(settings):
            held.enter_context(lease.kept_out(settings.lake, topology.names()))
        yield


@contextmanager
def _said_to_stop(settings: Settings) -> Iterator[None]:
    try:
        yield
    except QueryAlreadyRunning as error:
        raise QueryAlreadyRunning(
            f"{error.what}: generations are swapped while no stream runs",
            remedy=f"stop the driver (`activity stop`; in Airflow pause {settings.airflow_prefix}_stream), "
            "then try again",
        ) from None


def _kept(settings: Settings, found: Basis, database: duckdb.DuckDBPyConnection, reason: str) -> Kept:
    """Put together what is to be known of the generation that is live, should somebody want it back."""
    landed: dict[str, dict[int, int]] = {}
    for table in found.landed:
        ends = f'SELECT "partition", max("offset") + 1 FROM landed.{basis.name_of(table)} GROUP BY ALL'
        landed[table.label] = dict(database.execute(ends).fetchall())
    versions = {table.label: 0 if opened is None else opened.version() for table, opened in found.landed.items()}
    now = datetime.now(UTC)
    return Kept(generations.new_name(settings.lake, now), now, reason, versions, landed)


def _exchange(spark: SparkSession, shadow: Settings, settings: Settings, kept: Kept, back: str = "") -> str:
    moving.begin(settings.lake, Path(shadow.lake), kept, back)
    name = moving.finish(settings)
    candidate.forget_tables(spark)
    return name


def _refuse_replays(lake: str, former: Kept) -> None:
    """Make sure that what has landed since can be told by its offsets.

    Raises:
        SettingsError: records of before were let in.
    """
    for table in basis.LANDED_OF.values():
        since = former.versions.get(table.label, 0)
        newest = DeltaTable(table_path(lake, table)).version()
        for said in (*history.log_entries(lake, table, newest), *history.archived_entries(lake, table)):
            if said["version"] > since and metadata_of(said.get("userMetadata")).get("query") == REPLAY:
                raise SettingsError(
                    f"generation {former.name} lacks records that were let out of quarantine since it was taken out",
                    remedy="rebuild instead, with the release whose rows you want: `activity rebuild --swap always`",
                )
