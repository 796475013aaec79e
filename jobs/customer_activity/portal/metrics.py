"""The portal's own metrics, in the format that Prometheus scrapes; no label has anything of a customer."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

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
        self._listeners = Gauge(f"{PREFIX}_event_streams", "Event streams that are open.", registry=self.registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def listening(self, streams: int) -> None:
        """Say how many event streams are open."""
        self._listeners.set(streams)

    def text(self) -> bytes:
        """Return all of them as Prometheus reads them."""
        return generate_latest(self.registry)
