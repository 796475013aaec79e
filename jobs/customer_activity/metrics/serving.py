"""Metrics and health over HTTP: `/metrics`, `/livez`, `/readyz`.

/livez    200 unless the driver is stalled, as supervision judges it: then a restart would help
/readyz   200 where every stream is at work and not far behind; else 503, and the body says which is not, and why
"""

from __future__ import annotations

import errno
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from ipaddress import ip_address
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from prometheus_client import CollectorRegistry, disable_created_metrics, make_wsgi_app
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from customer_activity.errors import SettingsError
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.metrics.counted import Counts
from customer_activity.metrics.families import families
from customer_activity.metrics.looks import Look, Looking
from customer_activity.metrics.metric import PIPELINE
from customer_activity.metrics.pacing import Paced, old_after
from customer_activity.settings import Settings
from customer_activity.supervision import endpoint

METRICS, ALIVE, READY = "/metrics", "/livez", "/readyz"
POLL_SECONDS = 0.5  # between two looks whether to end
SILENT_SECONDS = 10.0  # a client that says nothing for so long is hung up on

log = logging.getLogger("customer_activity")

Observe = Callable[[MicroBatch, float], None]


class Read(Collector):
    """What is read when somebody asks."""

    def __init__(self, paced: Paced) -> None:
        """Export looks."""
        self.paced = paced

    def collect(self) -> Iterator[Metric]:
        """Yield the newest look's metrics; nothing as long as there is none."""
        look = self.paced.look()
        if look is not None:
            yield from families(look)

    def describe(self) -> Sequence[Metric]:
        """Return nothing: a registry would look for the names otherwise."""
        return ()


class OfPipeline(Collector):
    """All that is exported, each sample with the pipeline's name: however it is scraped, two are told apart."""

    def __init__(self, registry: CollectorRegistry, pipeline: str) -> None:
        """Export what a registry has."""
        self.registry = registry
        self.pipeline = pipeline

    def collect(self) -> Iterator[Metric]:
        """Yield the registry's metrics with the label."""
        for metric in self.registry.collect():
            metric.samples = [
                sample._replace(labels={PIPELINE: self.pipeline, **sample.labels}) for sample in metric.samples
            ]
            yield metric


class Server(ThreadingMixIn, WSGIServer):
    """A thread for each request, which does not keep the driver from ending."""

    daemon_threads = True


class Server6(Server):
    """The same for an address of IPv6."""

    address_family = socket.AF_INET6


class Handler(WSGIRequestHandler):
    """Answers without a line in the log."""

    timeout = SILENT_SECONDS

    def log_message(self, *_: object) -> None:
        """Log nothing: Prometheus asks all the time."""


@contextmanager
def served(settings: Settings, epochs: Mapping[str, int]) -> Iterator[Observe]:
    """Serve metrics and health while a driver runs; yield what counts its batches.

    Args:
        settings: where to serve, and of which lake.
        epochs: the fencing epoch of each stream that the driver runs; without any nothing is served.

    Raises:
        SettingsError: it cannot be served at that address.
    """
    if not (settings.metrics and epochs):
        yield _ignore
        return
    with exported(settings, epochs, Paced(Looking(settings, epochs).take)) as observe:
        yield observe


@contextmanager
def exported(settings: Settings, epochs: Mapping[str, int], paced: Paced) -> Iterator[Observe]:
    """Serve what batches count and what `paced` looks at; yield what counts batches.

    Raises:
        SettingsError: it cannot be served at that address.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    registry = CollectorRegistry()
    counts = Counts(registry, settings, list(epochs))
    registry.register(Read(paced))
    try:
        with listening(settings, application(paced, OfPipeline(registry, settings.pipeline))):
            yield counts.observe
    finally:
        paced.close()


def _ignore(_batch: MicroBatch, _seconds: float) -> None:
    """Count nothing."""


@contextmanager
def listening(settings: Settings, app: WSGIApplication) -> Iterator[int]:
    """Serve an application, and tell where; yield the port. It is told for good: a driver that is down is missed there.

    Raises:
        SettingsError: it cannot be served at that address.
    """
    server = _bound(settings, app)
    host, port = server.server_address[:2]
    shown = socket.gethostname() if ip_address(settings.metrics_address).is_unspecified else str(host)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), name="metrics-http", daemon=True)
    thread.start()
    endpoint.tell(settings, shown, int(port))
    log.info("metrics are at http://%s:%d%s", shown, port, METRICS)
    try:
        yield int(port)
    finally:
        server.shutdown()
        server.server_close()


def _bound(settings: Settings, app: WSGIApplication) -> WSGIServer:
    """Take the port, or a free one where another process has it: another pipeline's driver, as a rule."""
    address, port = settings.metrics_address, settings.metrics_port
    kind = Server6 if ip_address(address).version == 6 else Server  # noqa: PLR2004 - IPv6
    try:
        return make_server(address, port, app, kind, Handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise SettingsError(
                f"metrics cannot be served at {address}, port {port}: {error.strerror}",
                remedy="set ACTIVITY_METRICS_ADDRESS to an address of this machine and ACTIVITY_METRICS_PORT to a "
                "port that it may listen on; or switch metrics off (ACTIVITY_METRICS=false)",
            ) from None
    log.warning("port %d is taken by another process: metrics are at one that is free", port)
    return make_server(address, 0, app, kind, Handler)


def application(paced: Paced, exports: Collector) -> WSGIApplication:
    """Return what answers requests."""
    metrics = make_wsgi_app(exports)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Any:
        path = environ["PATH_INFO"]
        if path == METRICS:
            return metrics({**environ, "QUERY_STRING": ""}, start_response)  # it is always all of them
        if path not in (ALIVE, READY):
            return _as_json(start_response, HTTPStatus.NOT_FOUND, {"paths": [METRICS, ALIVE, READY]})
        look = paced.look()
        is_good, body = alive(look) if path == ALIVE else ready(look, datetime.now(UTC), paced.trouble())
        return _as_json(start_response, HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE, body)

    return answer


def _as_json(start_response: StartResponse, status: HTTPStatus, body: Mapping[str, Any]) -> list[bytes]:
    headers = [("Content-Type", "application/json"), ("Cache-Control", "no-store")]
    start_response(f"{status.value} {status.phrase}", headers)
    return [json.dumps(body).encode()]


def alive(look: Look | None) -> tuple[bool, dict[str, Any]]:
    """Return whether the driver is alive, and what to answer. Before a first look it is starting.

    How old the look is does not matter: of what holds up reading logs a restart is no cure.
    """
    if look is None:
        return True, {"alive": True, "state": "starting", "message": ""}
    is_well = look.driver.state.is_well
    return is_well, {"alive": is_well, "state": look.driver.state.value, "message": look.driver.message}


def ready(look: Look | None, now: datetime, trouble: str = "") -> tuple[bool, dict[str, Any]]:
    """Return whether all streams are ready, and what to answer.

    A look is old by its own pace: those at a large lake take long, and are seldom. One that is old because nobody has
    asked is what there is; `trouble` says what keeps newer ones from being taken.
    """
    if look is None:
        return False, {"ready": False, "not_ready": {}, "message": "nothing has been looked at yet"}
    age = (now - look.at).total_seconds()
    is_old = bool(trouble) and age > old_after(look.seconds)
    message = f"nothing could be read for {age:,.0f} s: {trouble}" if is_old else ""
    is_ready = not look.not_ready and look.driver.state.is_well and not message
    streams = {
        query.query: {
            "ready": query.query not in look.not_ready,
            "state": query.state,
            "lag": query.lag,
            "last_batch_at": (query.batch or {}).get("at"),
            "behind_input_seconds": query.freshness_seconds,
        }
        for query in look.report.queries
        if query.query in look.epochs
    }
    return is_ready, {
        "ready": is_ready,
        "not_ready": dict(look.not_ready),
        "message": message or look.driver.message,
        "at": look.at.isoformat(timespec="milliseconds"),
        "streams": streams,
        "driver": look.driver.as_json(),
    }
