"""`activity describe`: the topology of this deployment, from `catalog.FLOWS` and settings; logged at every start."""

from __future__ import annotations

from typing import Any

from customer_activity import catalog
from customer_activity.catalog import FLOWS, Flow, Table
from customer_activity.settings import Settings

TOPIC_PREFIX = "topic:"


def topology(settings: Settings) -> dict[str, Any]:
    """Return the topology as plain values: what each query reads and writes, where, and what it promises."""
    return {
        "lake": settings.lake,
        "kafka": settings.kafka_bootstrap_servers,
        "currency": settings.currency,
        "queries": [
            {
                "query": flow.query.value,
                "reads": [_end(settings, name) for name in flow.reads],
                "writes": [_end(settings, name) for name in flow.writes],
                "checkpoint": catalog.checkpoint_path(settings.lake, flow.query),
                "guarantee": flow.guarantee,
            }
            for flow in FLOWS
        ],
    }


def lines(settings: Settings) -> list[str]:
    """Return the topology as text, one line a fact."""
    described = [f"lake {settings.lake}, Kafka {settings.kafka_bootstrap_servers}, currency {settings.currency}"]
    for flow in FLOWS:
        described += [
            f"{flow.query}: {flow.guarantee}",
            *(f"  reads      {_text(settings, name)}" for name in flow.reads),
            *(f"  writes     {_text(settings, name)}" for name in flow.writes),
            f"  checkpoint {catalog.checkpoint_path(settings.lake, flow.query)}",
        ]
    return described


def mermaid(settings: Settings) -> str:
    """Return the topology as a Mermaid flow chart: topics round, tables as cylinders, queries as boxes."""
    names = list(dict.fromkeys(name for flow in FLOWS for name in (*flow.reads, *flow.writes)))
    chart = ["flowchart LR"]
    chart += [f"    {_node(name)}{_shape(settings, name)}" for name in names]
    for flow in FLOWS:
        chart += [f'    {flow.query}["{flow.query}"]', *_arrows(flow)]
    return "\n".join(chart)


def _arrows(flow: Flow) -> list[str]:
    """Draw a flow's edges; what it both reads and writes gets one edge with two heads."""
    both = set(flow.reads) & set(flow.writes)
    return [
        *(f"    {_node(name)} --> {flow.query}" for name in flow.reads if name not in both),
        *(f"    {flow.query} {'<-->' if name in both else '-->'} {_node(name)}" for name in flow.writes),
    ]


def _topic(settings: Settings, name: str) -> str | None:
    """Return the deployment's name of a topic, or None when `name` is a table."""
    return settings.topics[name.removeprefix(TOPIC_PREFIX)] if name.startswith(TOPIC_PREFIX) else None


def _end(settings: Settings, name: str) -> dict[str, str]:
    topic = _topic(settings, name)
    if topic is not None:
        return {"topic": topic}
    return {"table": Table(name).label, "path": catalog.table_path(settings.lake, Table(name))}


def _text(settings: Settings, name: str) -> str:
    topic = _topic(settings, name)
    return (
        f"topic {topic}"
        if topic is not None
        else f"table {Table(name).label} at {catalog.table_path(settings.lake, Table(name))}"
    )


def _node(name: str) -> str:
    return name.replace(":", "_").replace("/", "_")


def _shape(settings: Settings, name: str) -> str:
    topic = _topic(settings, name)
    return f'(["{topic}"])' if topic is not None else f'[("{Table(name).label}")]'
