"""A look, as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from customer_activity import topology
from customer_activity.engine.observability import HELD
from customer_activity.inspection.query_status import QueryReport
from customer_activity.inspection.switched_off import OFF
from customer_activity.metrics.listed import named
from customer_activity.metrics.looks import Look
from customer_activity.supervision import readiness

STATES = ("not started", "starting", "running", HELD, "stopped", "failed", "dead", "silent", OFF, "unknown")
DISTRIBUTION = "customer-activity"

Sample = tuple[tuple[str, ...], float | None]  # values of the labels, and the value; None: it is unknown, and left out


def families(look: Look) -> Iterator[Metric]:
    """Yield all metrics that are read, of the streams that this driver runs."""
    for name, samples in (
        *_of_streams(look),
        *_of_tables(look),
        *_of_quality(look),
        *_of_driver(look),
    ):
        yield _filled(named(name).read(), samples)


Named = Iterator[tuple[str, list[Sample]]]


def _filled(family: GaugeMetricFamily | CounterMetricFamily, samples: list[Sample]) -> Metric:
    for labels, value in samples:
        if value is not None:
            family.add_metric(list(labels), value)
    return family


def _of_streams(look: Look) -> Named:
    queries = [query for query in look.report.queries if query.query in look.epochs]
    together = [*queries, *look.report.off]
    specs = {query.query: topology.spec(query.query) for query in queries}
    yield (
        "activity_stream_info",
        [((name, "behind" if spec.is_behind else "hot"), 1.0) for name, spec in specs.items()],
    )
    yield (
        "activity_stream_state",
        [((query.query, state), float(query.state == state)) for query in together for state in STATES],
    )
    yield "activity_stream_ready", [((name,), float(name not in look.not_ready)) for name in specs]
    for kind, has_topics in (("records", True), ("versions", False)):
        yield (
            f"activity_lag_{kind}",
            [
                ((query.query, source), float(count))
                for query in queries
                if bool(specs[query.query].topics) is has_topics
                for source, count in query.lag.items()
            ],
        )
    yield "activity_lag_seconds", [((q.query,), readiness.lag_seconds(q, look.at)) for q in queries]
    yield "activity_behind_input_seconds", [((q.query,), q.freshness_seconds) for q in together]
    yield "activity_last_batch_timestamp_seconds", [((q.query,), _ended(q)) for q in queries]
    yield "activity_lease_epoch", [((name,), float(epoch)) for name, epoch in look.epochs.items()]
    yield "activity_stream_restarts_total", [((name,), float(epoch - 1)) for name, epoch in look.epochs.items()]


def _ended(query: QueryReport) -> float | None:
    at = (query.batch or {}).get("at")
    return None if at is None else datetime.fromisoformat(at).timestamp()


def _of_tables(look: Look) -> Named:
    tables = [((held.table.label,), held) for held in look.report.tables]
    yield "activity_table_rows", [(label, float(held.rows)) for label, held in tables]
    yield "activity_table_files", [(label, float(held.files)) for label, held in tables]
    yield "activity_table_bytes", [(label, float(held.size_bytes)) for label, held in tables]
    states = [((name,), state) for name, state in look.states.items()]
    yield (
        "activity_state_rows",
        [(label, None if state.rows is None else float(state.rows)) for label, state in states],
    )
    yield "activity_state_bytes", [(label, float(state.size_bytes)) for label, state in states]


def _of_quality(look: Look) -> Named:
    overridden = sum(failure.override_reason is not None for failure in look.gate.values())
    holding = len(look.gate) - overridden
    yield "activity_gate_held", [((), float(holding > 0))]
    yield "activity_gate_rules", [(("holding",), float(holding)), (("overridden",), float(overridden))]
    yield (
        "activity_quality_rule_failed",
        [((found.rule, found.suite, found.severity), float(found.failed)) for found in look.quality],
    )
    yield "activity_quality_rule_observed", [((found.rule, found.suite), found.observed) for found in look.quality]
    judged: dict[str, float] = {}
    for found in look.quality:
        judged[found.suite] = max(found.judged_at.timestamp(), judged.get(found.suite, 0.0))
    yield "activity_quality_judged_timestamp_seconds", [((suite,), at) for suite, at in judged.items()]
    yield "activity_match_rate", [((found.share,), found.observed) for found in look.quality if found.share]


def _of_driver(look: Look) -> Named:
    yield "activity_driver_info", [((release(),), 1.0)]
    yield "activity_driver_start_timestamp_seconds", [((), look.started_at)]
    yield "activity_driver_cpu_seconds_total", [((kind,), used.cpu_seconds) for kind, used in look.processes.items()]
    yield "activity_driver_memory_bytes", [((kind,), float(used.memory_bytes)) for kind, used in look.processes.items()]
    yield "activity_look_timestamp_seconds", [((), look.at.timestamp())]
    yield "activity_look_seconds", [((), look.seconds)]


def release() -> str:
    """Return which release this is; empty where the code runs without being installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return ""
