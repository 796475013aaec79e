"""`activity rebuild --apply`: have silver and gold say what they should, row by row, as a correction.

1. The live silver and gold take what waits, and drivers are kept out from there on. Where they cannot go on, because
   layers were restored from backups or a table was changed by hand, it is done without that.
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
from customer_activity.errors import (
    ChangeFeedLost,
    CheckpointMismatch,
    ForeignCommit,
    QueryAlreadyRunning,
)
from customer_activity.kafka import settled
from customer_activity.lake import conflicts, corrections, delta, deltalog, feeds
from customer_activity.lake.corrections import Correction
from customer_activity.lease import lease
from customer_activity.quality import accounting
from customer_activity.rebuild import basis, building, comparison, planning, run
from customer_activity.rebuild.basis import Basis
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.finishing import FencingEpoch, begin, finish
from customer_activity.rebuild.run import Rebuilt
from customer_activity.settings import Settings
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
            delta.complete_tables(settings.lake)  # of streams that were switched on since
            finish(settings, fencing_epoch)
        return Applied(None, interrupted)
    delta.require_tables(settings.lake)
    with streams_kept_out(settings):  # rather than start Spark for nothing
        pass
    with run.own_spark(settings, on_step) as spark:
        return work(spark)


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
        on_topic = (read or settled.last_values)(settings, settings.view_topic)
        rebuilt = run.built(spark, database, shadow, rest.found, Choice(), started=started, on_step=on_step)
        now = datetime.now(UTC)
        name = corrections.new_run(lake, now)
        corrections.sweep(lake)
        refused = planning.of_quarantine(lake, name, conflicts.held(shadow.lake, conflicts.PLACE))
        (view,) = (side for side in comparison.sides() if side.is_published)
        if older := planning.older_than_topic(database, view, on_topic):
            on_step(f"{older:,} records of the view topic have a newer version than their rows, which are sent again")
        is_equal = not rebuilt.differences and not refused.added.rows and not refused.retracted.rows
        if rest.is_sound and is_equal and not older:
            return Applied(rebuilt, None)
        on_step("writing down what differs")
        correction = Correction(
            run=name,
            at=now,
            reason=APPLY,
            undoes="",
            changes=planning.changes(database, lake, name, refused, on_topic),
            generations=generations(),
            landed=planning.newest_landings(database, rest.found.landed),
            counted=counted(shadow.lake),
            counted_before=counted(lake),
        )
        carry_out(settings, rest, correction, on_step)
        return Applied(rebuilt, correction)


def carry_out(settings: Settings, rest: Rest, correction: Correction, on_step: OnStep) -> None:
    """Begin a correction whose rows are kept, and bring it to its end.

    Raises:
        LeaseLost: another driver has taken over.
    """
    begin(settings.lake, correction, rest.fencing_epoch)
    on_step("correcting")
    finish(settings, rest.fencing_epoch)


def generations() -> dict[str, str]:
    """Return new ones for the checkpoints of the streams that are rebuilt."""
    return {spec.name: str(uuid.uuid4()) for spec in topology.rebuilt()}


def counted(lake: str) -> Counted:
    """Return what silver's batches have counted, by label of a table, topic and outcome; None where it is not known."""
    return {edge.made.label: accounting.counted(lake, edge.made) for edge in topology.judging()}


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
            building.run(spark, settings, topology.rebuilt())
        except (CheckpointMismatch, ChangeFeedLost, ForeignCommit) as fault:
            if not even_if_refused:
                raise
            is_sound = False
            on_step(f"going on without the live ones: {fault.what}")
    is_sound = is_sound and all(_can_go_on(settings.lake, spec) for spec in topology.following())
    with streams_kept_out(settings) as fencing_epoch:
        yield Rest(basis.at_rest(settings.lake) if is_sound else basis.newest(settings.lake), fencing_epoch, is_sound)


def _can_go_on(lake: str, behind: Spec) -> bool:
    """Whether a stream behind the hot path can read what its sources have had since it last did."""
    for source, read in basis.read_upto(lake, behind).items():
        newest = deltalog.newest_version(lake, source)
        try:
            feeds.read(lake, {source: []}, {source: (min(read, newest), newest)})
        except (ChangeFeedLost, ForeignCommit):
            return False
        if read > newest:
            return False
    return True


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
            remedy=f"stop the driver (`activity driver stop`; in Airflow pause {settings.airflow_prefix}_stream) "
            f"or {lease.WAIT_FOR_IT}, then try again",
        ) from None
