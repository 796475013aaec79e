"""A query's life from start to end: its batches, the gate before it, and whether it has ended."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial

import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.listener import StreamingQueryProgress

from customer_activity import topology, unforeseen
from customer_activity.catalog import checkpoint_path
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.engine import batch_events, gate, pace
from customer_activity.engine.failures import explain
from customer_activity.engine.logs import log
from customer_activity.engine.observability import HELD, QueryStatus
from customer_activity.engine.stream import Opened
from customer_activity.engine.turns import TELL_SECONDS, Turn, Turns
from customer_activity.errors import ActivityError, CheckpointMismatch, JvmGone, Stopping, exit_code_of
from customer_activity.kafka import clients
from customer_activity.lake import failpoints, jvm
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.microbatch import SMALL_BATCH_ROWS, MicroBatch
from customer_activity.settings import Settings

STOP_SECONDS = 25.0  # a batch in progress may finish; the rest of the 30 s promised is for closing the session
HELD_SECONDS = 0.5  # a query that is at work for longer is not paused now
GATE_SECONDS = 1.0  # how often a publisher that is held looks whether the gate is open


class RunningQuery:
    """One query: its Spark handle, its status, and whether a batch of it is at work."""

    def __init__(
        self,
        query: str,
        open_stream: Callable[[], Opened],
        settings: Settings,
        stopping: threading.Event,
        turn: Turn | None = None,
        turns: Turns | None = None,
        *,
        fencing_epoch: Callable[[], int | None] = lambda: None,
        observe: Callable[[MicroBatch, float], None] = lambda *_: None,
    ) -> None:
        """Bind a query to what opens its stream, when it starts. Its batches wait for `turn` when there is one.

        With `turns` a batch ends when the next one may be cut. `fencing_epoch` tells the epoch of the driver's lease.
        `observe` is told each batch that has ended, and the seconds that it took.
        """
        self.query = query
        self.spec = topology.spec(query)
        self.open_stream = open_stream
        self.settings = settings
        self.turn = turn
        self.turns = turns
        self.fencing_epoch = fencing_epoch
        self.observe = observe
        self.stopping = stopping
        self.status = QueryStatus(query)
        self.failure: BaseException | None = None
        self.at_work = threading.Lock()
        self.handle: StreamingQuery | None = None
        self.is_draining = False
        self.began = -math.inf  # of its newest batch, by the monotonic clock
        self.began_at = -math.inf  # the same by the wall clock
        self.refresh: Callable[[], None] = lambda: None

    def start(self, *, available_now: bool) -> None:
        """Start the query on its checkpoint; where its stream cannot be opened, its status says why."""
        self.is_draining = available_now
        try:
            stream = self.open_stream()
        except ActivityError as error:
            self.status.failed(str(error), error.exit_code)
            raise
        except (DeltaError, FileNotFoundError) as error:  # it looks at its tables' files
            fault = explain(self.query, error, error, self.settings, self.fencing_epoch)
            self.status.failed(str(fault), fault.exit_code)
            raise fault from error
        self.refresh = stream.refresh
        writer = (
            stream.source()
            .writeStream.queryName(self.spec.name)
            .foreachBatch(partial(self._batch, stream))
            .option("checkpointLocation", checkpoint_path(self.settings.lake, self.query))
        )
        look = f"{pace.look(self.settings, self.query)} seconds"
        writer = writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime=look)
        self.handle = writer.start()
        log.info("%s started", self.query, extra={"query": self.query})
        self.status.state = "running"

    def _batch(self, stream: Opened, frame: DataFrame, batch_id: int) -> None:
        self.status.moved("begins")
        if self.spec.is_gated:
            self._pass_gate()
        through = self.turns.begin(self.query, self.status.moved) if self.turns is not None else 0
        with self._in_turn(), self.at_work:
            if self.stopping.is_set():
                raise Stopping
            generation = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
            failpoint = failpoints.of(self.settings, self.query)
            batch = MicroBatch(
                self.query,
                str(generation),
                batch_id,
                fencing_epoch=self.fencing_epoch,
                failpoint=failpoint,
                progress=self.status.moved,
            )
            batch.failpoint(FailPoint.PLANNED)
            started = time.monotonic()
            before, self.began, self.began_at = self.began, started, time.time()
            try:
                self._read_cut(batch, stream)
                stream.work(frame, batch)
                batch.failpoint(FailPoint.WRITTEN)
            except BaseException as error:  # kept as it is: Spark would hand back only its text
                self.failure = error
                raise
            seconds = time.monotonic() - started
            self.status.finished(batch_id, batch.rows, seconds, batch.phases, batch.placement)
            batch_events.tell(batch, seconds)
            self.observe(batch, seconds)
            if batch.rows > SMALL_BATCH_ROWS:
                pa.default_memory_pool().release_unused()  # Arrow would keep what a large batch took
        if self.turns is not None:
            ended = time.monotonic()
            self.turns.finish(self.query, through, self.status.moved)
            self._wait(pace.period(self.settings, self.query, seconds, batch.rows, started - before))
            waited = round((time.monotonic() - ended) * 1000, 1)
            self.status.phases = {**self.status.phases, "turn": waited}

    def _read_cut(self, batch: MicroBatch, stream: Opened) -> None:
        """Take from the checkpoint what a batch reads.

        Raises:
            CheckpointMismatch: it does not tell.
            BrokerUnavailable: Kafka does not answer.
        """
        cut = checkpoint.cut(self.settings.lake, self.query, batch.batch_id)
        if cut is None:
            raise CheckpointMismatch(
                f"checkpoint of {self.query}: the offsets of batch {batch.batch_id} cannot be read",
                remedy=f"`activity recover {self.query} --reason …` writes it again from what its tables say",
            )
        batch.cut = cut._asdict()
        if self.spec.topics:
            batch.ranges = cut.ranges(partial(_begins, self.settings, self.query))
        else:
            batch.versions = cut.versions(stream.begins)

    def _wait(self, period: float) -> None:
        """Wait until so long after the batch's begin: the next one then takes more with it."""
        while (left := self.began + period - time.monotonic()) > 0 and not self.stopping.wait(min(left, TELL_SECONDS)):
            self.status.moved("waits for more to come")

    def _in_turn(self) -> AbstractContextManager[None]:
        return nullcontext() if self.turn is None else self.turn.taken(self.status.moved)

    def _pass_gate(self) -> None:
        """Wait while quality holds publishing; a drain does not wait. The other queries go on meanwhile.

        Raises:
            PublishingHeld: this is a drain.
            Stopping: the application was told to stop.
        """
        while rules := gate.holding(self.settings.lake):
            if self.is_draining:
                self.failure = gate.held(rules)
                raise self.failure
            if self.status.state != HELD:
                words = ", ".join(sorted(rules))
                log.warning("%s is held by quality: %s", self.query, words, extra={"query": self.query})
            self.status.state, self.status.message = HELD, str(gate.held(rules))
            if self.stopping.wait(GATE_SECONDS):
                raise Stopping
        if self.status.state == HELD:
            log.info("%s is held no more", self.query, extra={"query": self.query})
            self.status.state, self.status.message = "running", ""
            self.status.moved("begins")  # what it was held for is no silence of its own

    def seconds_at_work(self) -> float:
        """Return how old files of the batch at work may be; 0 where none is.

        Files carry times of the wall clock, which may be set. The monotonic clock stops while the machine is suspended.
        """
        return max(time.monotonic() - self.began, time.time() - self.began_at) if self.at_work.locked() else 0.0

    def last_progress(self) -> StreamingQueryProgress | None:
        """Return what Spark says of its last batch; None before there is one, and without a JVM."""
        with jvm.unless_gone():
            return self.handle.lastProgress if self.handle is not None else None
        return None

    def stop(self) -> None:
        """Stop it; without a JVM it has ended."""
        with jvm.unless_gone():
            if self.handle is not None and self.handle.isActive:
                self.handle.stop()

    def ended(self) -> bool:
        """Whether the query has ended.

        Raises:
            ActivityError: it ended because of an error.
            JvmGone: the JVM has died, and the query with it.
        """
        if self.handle is None:
            return False
        try:
            with jvm.answering():
                if self.handle.isActive:
                    return False
                error = self.handle.exception()
        except JvmGone:
            if not self.stopping.is_set():  # a signal to the whole process group ends the JVM, too
                raise
            error = None
        if error is None or self.stopping.is_set():
            self.status.state = "stopped"
            return True
        fault = explain(self.query, error, self.failure, self.settings, self.fencing_epoch)
        self.status.failed(str(fault), fault.exit_code)
        raise fault


@contextmanager
def paused(queries: Sequence[RunningQuery]) -> Iterator[bool]:
    """Keep queries from beginning a batch; yield whether they are, which they are not when one is busy for longer."""
    with ExitStack() as held:
        for query in queries:
            if not query.at_work.acquire(timeout=HELD_SECONDS):
                yield False
                return
            held.callback(query.at_work.release)
        yield True


def stop_gracefully(running: Sequence[RunningQuery], fault: Exception | None = None) -> None:
    """Let batches at work finish, turn new ones away, then stop the queries.

    What ends them all, and came up in none of them, is each one's `fault`: to supervision they would be stopped on
    request.
    """
    if any(query.status.state == "failed" for query in running):
        fault = None
    deadline = time.monotonic() + STOP_SECONDS
    for query in running:
        if query.at_work.acquire(timeout=max(0.0, deadline - time.monotonic())):
            query.at_work.release()
        query.stop()
        if query.status.state not in ("starting", "running", HELD):
            continue
        if fault is None:
            query.status.state, query.status.message = "stopped", ""
        else:
            query.status.failed(unforeseen.brief(fault), exit_code_of(fault))


def _begins(settings: Settings, query: str, topic: str) -> dict[int, int]:
    """Return where a query's first batch begins, by partition: where Spark has noted, else where Kafka begins."""
    if noted := offsets.topic_offsets([checkpoint.first(settings.lake, query)]).get(topic):
        return noted
    return {partition: low for partition, (low, _) in clients.offset_range(settings, topic).items()}
