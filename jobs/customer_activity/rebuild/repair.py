"""`activity rebuild --apply`: have silver and gold say what they should, row by row, as a correction.

1. The live silver and gold take what waits, and drivers are kept out from there on. Where they cannot go on, because
   layers were put back from backups or somebody changed a table, it is done without that.
2. What differs is found by a rebuild from all of bronze; `undoing.py` takes it from what a correction has kept.
3. It is written down in the lake (`lake/corrections.py`). From here on the correction is finished, whatever happens
   (`finishing.py`): each table gets one fenced commit, and no query looks at what was wrong.

The view follows when the streams run again: publish sends the rows that gold's correction has added.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.checkpoints.resumption import read_by
from customer_activity.engine import session
from customer_activity.errors import (
    ChangeFeedLost,
    CheckpointMismatch,
    ForeignCommit,
    QueryAlreadyRunning,
)
from customer_activity.kafka import clients
from customer_activity.lake import corrections, delta, deltalog, feeds, history
from customer_activity.lake.corrections import Correction
from customer_activity.lease import lease
from customer_activity.operations import current_rows
from customer_activity.quality import accounting
from customer_activity.rebuild import basis, building, comparison, planning, run
from customer_activity.rebuild.basis import Basis
from customer_activity.rebuild.building import BUILT, Choice
from customer_activity.rebuild.finishing import FencingEpoch, begin, finish
from customer_activity.rebuild.run import Rebuilt
from customer_activity.settings import Settings
from customer_activity.streams.publish import marker as markers
from customer_activity.topology import Spec

OnStep = Callable[[str], None]
Read = Callable[[Settings, str], Mapping[bytes, bytes | None]]
Counted = dict[str, dict[str, dict[str, int]] | None]
APPLY = "rebuild --apply"


class Applied(NamedTuple):
    """What came of it.

    Attributes:
        rebuilt: the comparison; None where an interrupted correction was finished, or one was undone.
        correction: what was done; None when there was nothing to do.
        passed_over: keys whose rows have changed since, which an undoing leaves as they are.
    """

    rebuilt: Rebuilt | None
    correction: Correction | None
    passed_over: int = 0


class Rest(NamedTuple):
    """A lake at rest.

    Attributes:
        found: the newest of everything.
        fencing_epoch: tells the epoch that is held of a query.
        is_sound: whether the live queries have read all; they could not go on where it is false.
    """

    found: Basis
    fencing_epoch: FencingEpoch
    is_sound: bool


def apply(settings: Settings, on_step: OnStep = lambda _: None) -> Applied:
    """Rebuild everybody's silver and gold, compare, and replace the rows that differ.

    Raises:
        SettingsError: there is no lake.
        QueryAlreadyRunning: a driver runs.
        BrokerUnavailable: Kafka does not answer.
        TransientError: the live queries have not read all.
        ActivityError: a query failed.
    """
    return with_spark(settings, on_step, lambda spark: apply_in(spark, settings, on_step))


def with_spark(settings: Settings, on_step: OnStep, work: Callable[[SparkSession], Applied]) -> Applied:
    """Finish a correction that was interrupted, or else do some work in a session of its own."""
    if (interrupted := corrections.at_work(settings.lake)) is not None:
        on_step("finishing the correction that was interrupted")
        with streams_kept_out(settings) as fencing_epoch:
            finish(settings, fencing_epoch)
        return Applied(None, interrupted)
    delta.require_tables(settings.lake)
    with streams_kept_out(settings):  # rather than start Spark for nothing
        pass
    on_step("starting Spark")
    spark = session.start(settings, f"{settings.pipeline}-rebuild")
    try:
        return work(spark)
    finally:
        spark.stop()


def apply_in(
    spark: SparkSession, settings: Settings, on_step: OnStep = lambda _: None, read: Read | None = None
) -> Applied:
    """Do it in a session that runs; see `apply`. `read` tells the last values of the view topic."""
    started = time.monotonic()
    lake = settings.lake
    with (
        at_rest(spark, settings, on_step, even_if_refused=True) as rest,
        run.beside(settings) as shadow,
        run.opened(rest.found) as database,
    ):
        # First of all: without Kafka nothing is built in vain.
        on_topic = (read or last_values)(settings, settings.view_topic)
        on_step("building silver and gold")
        customers = building.choose(database, Choice())
        taken = building.build(spark, database, shadow, Choice())
        on_step("comparing")
        rebuilt = run.compared(database, shadow, rest.found, customers, taken, started)
        now = datetime.now(UTC)
        name = corrections.new_run(now)
        corrections.sweep(lake, planning.TABLES)
        refused = planning.of_quarantine(lake, name, planning.conflicts(shadow.lake))
        if rest.is_sound and not rebuilt.differences and not refused.added.rows and not refused.retracted.rows:
            return Applied(rebuilt, None)
        on_step("writing down what differs")
        changes = {
            Table.QUARANTINE: refused,
            **{side.table: planning.of_silver(database, lake, name, side) for side in comparison.OF_SILVER},
            Table.ACTIVITY_CHANGES: planning.of_gold(database, lake, name, on_topic),
        }
        correction = Correction(
            run=name,
            at=now,
            reason=APPLY,
            undoes="",
            changes={table.label: change for table, change in changes.items()},
            generations={query: str(uuid.uuid4()) for query in BUILT},
            landed=planning.landed(database, rest.found.landed),
            counted=counted(shadow.lake),
            counted_before=counted(lake),
        )
        begin(lake, correction, rest.fencing_epoch)
        on_step("correcting")
        finish(settings, rest.fencing_epoch)
        return Applied(rebuilt, correction)


def last_values(settings: Settings, topic: str) -> Mapping[bytes, bytes | None]:
    """Return the last value of each key of a topic, when no transaction is open there that hides a newer one.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TransientError: one stays open.
    """
    markers.settle(settings, topic)
    return clients.last_values(settings, topic)


def counted(lake: str) -> Counted:
    """Return what silver's batches have counted, by label of a table, topic and outcome; None where it is not known."""
    return {table.label: accounting.counted(lake, table) for table in basis.LANDED_OF}


@contextmanager
def at_rest(spark: SparkSession, settings: Settings, on_step: OnStep, *, even_if_refused: bool) -> Iterator[Rest]:
    """Let the live silver and gold take what waits, keep drivers out from then on, and open what there is.

    With `even_if_refused` it goes on where they cannot, for a reason that trying again does not remove.

    Raises:
        QueryAlreadyRunning: a driver runs.
        TransientError: it has run in between.
        ActivityError: a query failed.
    """
    on_step("reading what waits")
    delta.require_tables(settings.lake)
    is_sound = True
    with _said_to_stop(settings):
        try:
            building.run(spark, settings, building.BUILT)
        except (CheckpointMismatch, ChangeFeedLost, ForeignCommit) as fault:
            if not even_if_refused:
                raise
            is_sound = False
            on_step(f"going on without the live ones: {fault.what}")
    is_sound = is_sound and all(_can_go_on(settings.lake, spec) for spec in topology.behind())
    with streams_kept_out(settings) as fencing_epoch:
        yield Rest(basis.at_rest(settings.lake) if is_sound else basis.newest(settings.lake), fencing_epoch, is_sound)


def _can_go_on(lake: str, behind: Spec) -> bool:
    """Whether a stream behind the hot path can read what its source has had since it last did."""
    source = current_rows.stream_of(behind.name).source
    note = history.latest_metadata(lake, behind.tables[0], behind.name)
    read = read_by(note, {source: delta.table_id(lake, source)}).get(source, -1)
    newest = deltalog.newest_version(lake, source)
    try:
        feeds.read(lake, {source: []}, {source: (min(read, newest), newest)})
    except (ChangeFeedLost, ForeignCommit):
        return False
    return read <= newest


@contextmanager
def streams_kept_out(settings: Settings) -> Iterator[FencingEpoch]:
    """Keep drivers from all queries, and yield what tells the epochs that are held of them.

    Raises:
        QueryAlreadyRunning: one runs.
    """
    with ExitStack() as stack:
        with _said_to_stop(settings):
            held = stack.enter_context(lease.kept_out(settings.lake, topology.names()))
        yield held.fencing_epoch


@contextmanager
def _said_to_stop(settings: Settings) -> Iterator[None]:
    try:
        yield
    except QueryAlreadyRunning as error:
        raise QueryAlreadyRunning(
            f"{error.what}: a lake is corrected while no stream runs",
            remedy=f"stop the driver (`activity stop`; in Airflow pause {settings.airflow_prefix}_stream), "
            "then try again",
        ) from None
