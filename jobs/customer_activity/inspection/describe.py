"""`activity describe`: the topology of this deployment, from specs and settings; logged at every start."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from customer_activity import catalog, topology
from customer_activity.catalog import table_path
from customer_activity.lake import change_feeds
from customer_activity.settings import Settings
from customer_activity.topology import End, Spec, Topic


def as_values(settings: Settings) -> dict[str, Any]:
    """Return the topology as plain values: what each query reads and writes, where, and what it promises."""
    return {
        "lake": settings.lake,
        "kafka": settings.kafka_bootstrap_servers,
        "currency": settings.currency,
        "queries": [
            {
                "query": spec.name,
                "reads": [_end(settings, end) for end in _reads(spec)],
                "writes": [_end(settings, end) for end in _writes(spec)],
                "checkpoint": catalog.checkpoint_path(settings.lake, spec.name),
                "guarantee": spec.promises,
            }
            for spec in topology.specs()
        ],
    }


def lines(settings: Settings) -> list[str]:
    """Return the topology as text, one line a fact."""
    described = [f"lake {settings.lake}, Kafka {settings.kafka_bootstrap_servers}, currency {settings.currency}"]
    for spec in topology.specs():
        described += [
            f"{spec.name}: {spec.promises}",
            *(f"  reads      {_text(settings, end)}" for end in _reads(spec)),
            *(f"  writes     {_text(settings, end)}" for end in _writes(spec)),
            f"  checkpoint {catalog.checkpoint_path(settings.lake, spec.name)}",
        ]
    return described


def mermaid(settings: Settings) -> str:
    """Return the topology as a Mermaid flow chart: topics round, tables as cylinders, queries as boxes."""
    ends = list(dict.fromkeys(end for spec in topology.specs() for end in (*_reads(spec), *_writes(spec))))
    chart = ["flowchart LR"]
    chart += [f"    {_node(end)}{_shape(settings, end)}" for end in ends]
    for spec in topology.specs():
        chart += [f'    {spec.name}["{spec.name}"]', *_arrows(spec)]
    return "\n".join(chart)


def _reads(spec: Spec) -> list[End]:
    """Return what a stream reads: its sources, and a topic that tells how far it is."""
    progress = [read.progress for read in spec.reads if isinstance(read.progress, Topic)]
    return list(dict.fromkeys([*(read.source for read in spec.reads), *progress]))


def _writes(spec: Spec) -> list[End]:
    return [write.target for write in spec.writes]


def _arrows(spec: Spec) -> list[str]:
    """Draw a stream's edges; what it both reads and writes gets one edge with two heads."""
    both = set(_reads(spec)) & set(_writes(spec))
    return [
        *(f"    {_node(end)} --> {spec.name}" for end in _reads(spec) if end not in both),
        *(f"    {spec.name} {'<-->' if end in both else '-->'} {_node(end)}" for end in _writes(spec)),
    ]


def _end(settings: Settings, end: End) -> dict[str, Any]:
    if isinstance(end, Topic):
        return {"topic": settings.topics[end.role]}
    described: dict[str, Any] = {"table": end.label, "path": table_path(settings.lake, end)}
    promised = change_feeds.promise(settings, end)
    return described | ({"change_feed_hours": promised / timedelta(hours=1)} if promised else {})


def _text(settings: Settings, end: End) -> str:
    if isinstance(end, Topic):
        return f"topic {settings.topics[end.role]}"
    promised = change_feeds.promise(settings, end)
    kept = f", change feed for {promised / timedelta(hours=1):g} h" if promised else ""
    return f"table {end.label} at {table_path(settings.lake, end)}{kept}"


def _node(end: End) -> str:
    return f"topic_{end.role}" if isinstance(end, Topic) else end.value.replace("/", "_")


def _shape(settings: Settings, end: End) -> str:
    return f'(["{settings.topics[end.role]}"])' if isinstance(end, Topic) else f'[("{end.label}")]'
