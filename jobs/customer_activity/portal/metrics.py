"""The portal's own metrics, in the format that Prometheus scrapes; no label has anything of a customer."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from customer_activity.portal.following import Follower
from customer_activity.portal.freshness import State, Watch

PREFIX = "activity_portal"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class Metrics:
    """What is counted and measured."""

    def __init__(self) -> None:
        """Begin at nothing."""
        self.registry = CollectorRegistry()
        self._requests = Counter(
            f"{PREFIX}_requests", "Requests that were answered.", ["route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            f"{PREFIX}_request_seconds", "Seconds to an answer.", ["route"], buckets=BUCKETS, registry=self.registry
        )
        self._streams = Gauge(f"{PREFIX}_event_streams", "Event streams that are open.", registry=self.registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def listening(self, streams: int) -> None:
        """Say how many event streams are open."""
        self._streams.set(streams)

    def watch(self, watch: Watch, follower: Follower) -> None:
        """Have what these know among the metrics, as it is when they are scraped."""
        self.registry.register(_Found(watch, follower))

    def text(self) -> bytes:
        """Return all of them as Prometheus reads them."""
        return generate_latest(self.registry)


class _Found(Collector):
    """How fresh the store is, and what it has."""

    def __init__(self, watch: Watch, follower: Follower) -> None:
        self._watch, self._follower = watch, follower

    def collect(self) -> Iterator[Metric]:
        """Yield what is known; of what is not, there is no sample."""
        now, follower = self._watch.now(), self._follower
        figures: dict[str, tuple[str, float | None]] = {
            "customers": ("Rows that are served.", follower.customers),
            "lag_records": ("Offsets of the view topic that are not served yet.", now.lag_records),
            "behind_seconds": ("Seconds since everything that was committed by then is served.", now.behind_seconds),
            "heard_seconds": ("Seconds since the broker last said where the topic ends.", now.heard_seconds_ago),
            "restored_ratio": ("Share of the topic that has been read into the store, from 0 to 1.", now.restored),
            "restore_seconds": ("Seconds that the last restore from the topic took.", follower.restore_seconds),
        }
        for name, (meaning, figure) in figures.items():
            family = GaugeMetricFamily(f"{PREFIX}_{name}", meaning)
            if figure is not None:
                family.add_metric([], figure)
            yield family
        states = GaugeMetricFamily(f"{PREFIX}_state", "1 for the state that it is in.", labels=["state"])
        for state in State:
            states.add_metric([state.value], float(now.state is state))
        yield states
        counts: dict[str, tuple[str, int]] = {
            "rebuilds": ("Stores that were made again from the topic.", follower.rebuilt),
            "ignored_records": ("Records of the view topic that are not the publisher's.", follower.ignored),
        }
        for name, (meaning, count) in counts.items():
            family_of_counts = CounterMetricFamily(f"{PREFIX}_{name}", meaning)
            family_of_counts.add_metric([], count)
            yield family_of_counts
