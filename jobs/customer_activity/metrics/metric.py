"""What a metric is, and how one is made for Prometheus: by its name in the list, and no other way."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

PIPELINE = "pipeline"  # the label that each has besides its own
TOTAL = "_total"  # how the name of a counter ends


class Kind(StrEnum):
    """What Prometheus takes it for."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Source(StrEnum):
    """Where it comes from, which says how old it may be."""

    BATCH = "counted as batches end, from 0 at each start of the driver"
    LOOK = "read from logs, checkpoints and Kafka when somebody asks, every 10 s at most"
    QUALITY = "of the newest run of `activity quality`, read when somebody asks"


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: with its unit, as Prometheus has it.
        unit: what is counted or measured; 1 where it says yes or no.
        named_by: the names of its labels, with spaces between them; never of a customer.
        source: where it comes from.
        help: what it is.
        bounds: of a histogram, the upper bounds of its buckets.
    """

    name: str
    unit: str
    named_by: str
    source: Source
    help: str
    bounds: tuple[float, ...] = ()

    @property
    def kind(self) -> Kind:
        """How it is to be read."""
        if self.bounds:
            return Kind.HISTOGRAM
        return Kind.COUNTER if self.name.endswith(TOTAL) else Kind.GAUGE

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its labels, in their order."""
        return tuple(self.named_by.split())

    @property
    def family(self) -> str:
        """Its name in Prometheus's text format, which leaves a counter's end out."""
        return self.name.removesuffix(TOTAL)

    def counter(self, registry: CollectorRegistry) -> Counter:
        """Make the counter."""
        return Counter(self.family, self.help, self.labels, registry=registry)

    def histogram(self, registry: CollectorRegistry) -> Histogram:
        """Make the histogram."""
        return Histogram(self.name, self.help, self.labels, registry=registry, buckets=self.bounds)

    def counted_elsewhere(self) -> HistogramMetricFamily:
        """Make the histogram for samples that are counted elsewhere."""
        return HistogramMetricFamily(self.name, self.help, labels=self.labels)

    def read(self) -> GaugeMetricFamily | CounterMetricFamily:
        """Make the gauge or counter for samples that are read when somebody asks."""
        kind = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        return kind(self.family, self.help, labels=self.labels)
