"""Airflow's own metrics: with the settings of docker-compose.yml it sends them where Prometheus takes them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import yaml

COMPOSE = (Path(__file__).parents[2] / "docker-compose.yml").read_text(encoding="utf-8")
SETTINGS = yaml.safe_load(COMPOSE)["services"]["airflow-supervisor"]["environment"]  # type: ignore[no-untyped-call]
ENDPOINT = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
# What a scheduler does first, and then all the time.
BEATS = """
from airflow.configuration import conf
from airflow.observability import stats
from airflow.observability.metrics.stats_utils import get_stats_factory

stats.initialize(
    factory=get_stats_factory(), export_legacy_names=conf.getboolean("metrics", "legacy_names_on")
)
stats.incr("scheduler_heartbeat")
"""


def test_they_are_sent_to_prometheus() -> None:
    posted: list[tuple[str, str, bytes]] = []

    class Prometheus(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.path, self.headers["Content-Type"], body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    given = {name: str(value) for name, value in SETTINGS.items() if name.startswith(("OTEL_", "AIRFLOW__METRICS__"))}
    meant = urlsplit(given[ENDPOINT])
    assert meant.netloc == "prometheus:9090"
    with HTTPServer(("127.0.0.1", 0), Prometheus) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        given[ENDPOINT] = f"http://127.0.0.1:{server.server_port}{meant.path}"
        subprocess.run([sys.executable, "-c", BEATS], env={**os.environ, **given}, check=True, timeout=120)
        server.shutdown()
    paths, kinds, bodies = zip(*posted, strict=True)
    assert set(paths) == {"/api/v1/otlp/v1/metrics"}, "where Prometheus takes them"
    assert set(kinds) == {"application/x-protobuf"}
    assert b"airflow.scheduler_heartbeat" in b"".join(bodies)
