"""What batches do, counted as they end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, product
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from customer_activity import topology
from customer_activity.catalog import Reason, Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.stream import AS_OF, KAFKA
from customer_activity.lake.microbatch import (
    ACCEPTED,
    DUPLICATE,
    QUARANTINED,
    READ,
    STALE,
    MicroBatch,
    Place,
)
from customer_activity.lake.tally import FRESHNESS_SECONDS, Tally
from customer_activity.metrics.listed import named
from customer_activity.settings import Settings
from customer_activity.topology import Spec

MILLIS = 1000


class Freshness(Collector):
    """Ages of rows: batches bring them by bucket already, so that many of them cost no more than one."""

    def __init__(self, streams: Iterable[str]) -> None:
        """Begin without a row."""
        self.lock = Lock()
        self.by_stream = {stream: Tally() for stream in streams}

    def add(self, stream: str, tally: Tally) -> None:
        """Take in what a batch made visible."""
        with self.lock:
            if stream in self.by_stream or tally.fresh.any():
                total = self.by_stream.setdefault(stream, Tally())
                total.fresh += tally.fresh
                total.fresh_seconds += tally.fresh_seconds

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram."""
        found = named("activity_freshness_seconds").counted_elsewhere()
        with self.lock:
            for stream, total in self.by_stream.items():
                bounds = [*map(str, FRESHNESS_SECONDS), "+Inf"]
                counts = [float(rows) for rows in accumulate(total.fresh.tolist())]
                found.add_metric([stream], list(zip(bounds, counts, strict=True)), total.fresh_seconds)
        yield found


class Counts:
    """Counters and histograms of the streams that a driver runs."""

    def __init__(self, registry: CollectorRegistry, settings: Settings, streams: Sequence[str]) -> None:
        """Begin at 0, also for what has not happened yet: Prometheus sees a first time only where it saw none before.

        Args:
            registry: which exports them.
            settings: the topics' names.
            streams: names of the streams.
        """
        self.read = named("activity_rows_read_total").counter(registry)
        self.written = named("activity_rows_written_total").counter(registry)
        self.records = named("activity_records_total").counter(registry)
        self.quarantined = named("activity_quarantined_total").counter(registry)
        self.late = named("activity_late_events_total").counter(registry)
        self.transactions = named("activity_transactions_total").counter(registry)
        self.seconds = named("activity_batch_seconds").histogram(registry)
        self.phases = named("activity_batch_phase_seconds").histogram(registry)
        specs = [topology.spec(stream) for stream in streams]
        self.freshness = Freshness(spec.name for spec in specs if _shows_age(spec))
        registry.register(self.freshness)
        for spec in specs:
            self._begin(spec, settings)

    def _begin(self, spec: Spec, settings: Settings) -> None:
        name = spec.name
        topics = [settings.topics[role] for role in spec.topics]
        for source in [*topics, *(table.label for table in spec.sources)]:
            self.read.labels(name, source)
        for target in [table.label for table in spec.tables] + [KAFKA] * spec.is_publisher:
            self.written.labels(name, target)
        for reason in Reason if Table.QUARANTINE in spec.tables else ():
            self.quarantined.labels(name, reason.value)
        if Table.LATE_EVENTS in spec.tables:
            self.late.labels(name)
        if spec.is_publisher:
            self.transactions.labels(name)
        for topic, outcome in product(topics, (READ, ACCEPTED, QUARANTINED)):
            self.records.labels(name, topic, outcome)
        if name in {edge.stream for edge in topology.judging()}:
            landed = [settings.topics[role] for role in topology.landing().topics]
            for topic, outcome in product(landed, (ACCEPTED, QUARANTINED, DUPLICATE, STALE)):
                self.records.labels(name, topic, outcome)

    def observe(self, batch: MicroBatch, seconds: float) -> None:
        """Count a batch that has ended, and the seconds that it took."""
        stream, tally = batch.query, batch.tally
        place = (Place.DRIVER if batch.placement is None else batch.placement.place).value
        self.seconds.labels(stream, place).observe(seconds)
        for phase, millis in batch.phases.items():
            self.phases.labels(stream, phase, place).observe(millis / MILLIS)
        for source, rows in tally.read.items():
            self.read.labels(stream, source).inc(rows)
        for target, rows in tally.written.items():
            self.written.labels(stream, target).inc(rows)
        for topic, outcomes in batch.counts.items():
            for outcome, records in outcomes.items():
                self.records.labels(stream, topic, outcome).inc(records)
        for reason, records in tally.quarantined.items():
            self.quarantined.labels(stream, reason).inc(records)
        if late := tally.written[Table.LATE_EVENTS.label]:
            self.late.labels(stream).inc(late)
        if tally.transactions:
            self.transactions.labels(stream).inc(tally.transactions)
        self.freshness.add(stream, tally)


def _shows_age(spec: Spec) -> bool:
    """Whether a stream tells how old rows are that become visible: at the view, and at a table of current rows."""
    merges = spec.is_behind and any(AS_OF in arrow_schema(table).names for table in spec.tables)
    return spec == topology.publishing() or merges
