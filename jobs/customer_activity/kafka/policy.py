"""What a topic's settings, as Kafka describes them, mean for the pipeline, by the topic's role. Pure.

Topics may be shared, and as Kafka makes them. Refused is what would give wrong figures or stop the pipeline; what
only shortens how far back something reaches is told, and the pipeline goes on.

    purchases  refused when compacted: a repeat would remove the purchase that counts before it lands
    payments   refused when compacted, likewise: the first payment of a purchase counts
    profiles   compacted or not: what counts of a customer is its newest record
    view       compacted and never expired: a row that does not change has to stay
    progress   the same, and one partition: a marker that is gone, or older than another's, publishes twice
    others     of optional streams that publish: refused where nothing can be written; told where running figures expire
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from customer_activity.catalog import (
    PAYMENTS_ROLE,
    PROFILES_ROLE,
    PROGRESS_ROLE,
    PURCHASES_ROLE,
    VIEW_ROLE,
    WINDOW_ROLES,
)

FOR_EVER = "-1"
OUTAGE = timedelta(days=7)  # the longest that we plan for: deletions have to be on the topic for so long
LEAST_ROW_BYTES = 4_096  # an ordinary row has a few hundred
INPUTS, OUTPUTS = (PURCHASES_ROLE, PROFILES_ROLE, PAYMENTS_ROLE), (VIEW_ROLE, PROGRESS_ROLE)
RUNNING = tuple(role for role in WINDOW_ROLES if not role.endswith("_final"))  # the last record of a key counts
COUNTED_ONCE = {PURCHASES_ROLE: "purchase", PAYMENTS_ROLE: "payment"}  # the first record of a key counts


class Found(NamedTuple):
    """A topic as Kafka describes it."""

    name: str
    partitions: int
    replicas: int  # of each partition, the least
    config: Mapping[str, str]  # its own settings or the broker's; empty when we may not see them


class Judgement(NamedTuple):
    """What is wrong with a topic, and what is only to be known of it; each a sentence that names the topic."""

    refused: list[str]
    told: list[str]


def judge(role: str, topic: Found) -> Judgement:
    """Judge one topic by its role."""
    if not topic.config:
        words = f"topic {topic.name}: this client may not see its settings (right DescribeConfigs)"
        return Judgement([words], []) if role in OUTPUTS else Judgement([], [words])
    policies = set(topic.config.get("cleanup.policy", "delete").replace(" ", "").split(","))
    expires = _expiry(topic) if "delete" in policies else ""
    if role in OUTPUTS:
        return Judgement(_output(role, topic, policies, expires), _of_outputs(role, topic))
    if role not in INPUTS:
        told = _of_outputs(role, topic)
        if role in RUNNING and ("compact" not in policies or expires):
            told.append(_has(topic, "cleanup.policy", "figures that do not change for long are removed from it"))
        return Judgement(_unwritable(topic), told)
    is_compacted = "compact" in policies
    refused = (
        [_has(topic, "cleanup.policy", f"a repeat would remove the {COUNTED_ONCE[role]} that counts before it lands")]
        if is_compacted and role in COUNTED_ONCE
        else []
    )
    told = [f"topic {topic.name} keeps records for {expires}: `verify` takes older ones from the lake"] * bool(expires)
    if role == PROFILES_ROLE and is_compacted:
        told += _tombstones(topic, "a deletion may be gone before it lands when bronze is off for longer")
    return Judgement(refused, told)


def _output(role: str, topic: Found, policies: set[str], expires: str) -> list[str]:
    """Say what of a topic that we write would give wrong figures, or stand still."""
    refused = []
    kept = "rows that do not change" if role == VIEW_ROLE else "the publisher's markers"
    if "compact" not in policies:
        refused.append(_has(topic, "cleanup.policy", "it must be compact, to keep the last value of each key"))
    elif expires:
        refused.append(f"topic {topic.name} is compacted and keeps records for {expires}: {kept} would be removed")
    if role == PROGRESS_ROLE and topic.partitions != 1:
        refused.append(
            f"topic {topic.name} has {topic.partitions} partitions: its markers are in order in one partition only"
        )
    return refused + _unwritable(topic)


def _unwritable(topic: Found) -> list[str]:
    """Say why records cannot be written to a topic."""
    refused = []
    if (least := _number(topic, "min.insync.replicas")) > topic.replicas > 0:
        refused.append(
            f"topic {topic.name} has min.insync.replicas={least} and {topic.replicas} replicas: nothing can be written"
        )
    if 0 < _number(topic, "max.message.bytes") < LEAST_ROW_BYTES:
        refused.append(_has(topic, "max.message.bytes", f"a row may need {LEAST_ROW_BYTES:,} bytes"))
    return refused


def _of_outputs(role: str, topic: Found) -> list[str]:
    told = []
    if role == VIEW_ROLE:
        told += _tombstones(topic, "a consumer that is off for longer may miss a deletion")
    if topic.config.get("unclean.leader.election.enable") == "true":
        told.append(_has(topic, "unclean.leader.election.enable", "what was published may be lost when a broker fails"))
    return told


def _tombstones(topic: Found, why: str) -> list[str]:
    kept = timedelta(milliseconds=_number(topic, "delete.retention.ms"))
    return [f"topic {topic.name} keeps deletions for {_days(kept)}: {why}"] if kept < OUTAGE else []


def _expiry(topic: Found) -> str:
    """Say for how long, or how much of, records are kept; nothing when they stay."""
    limits = []
    if topic.config.get("retention.ms", FOR_EVER) != FOR_EVER:
        limits.append(_days(timedelta(milliseconds=_number(topic, "retention.ms"))))
    if topic.config.get("retention.bytes", FOR_EVER) != FOR_EVER:
        limits.append(f"{_number(topic, 'retention.bytes'):,} bytes a partition")
    return " or ".join(limits)


def _days(kept: timedelta) -> str:
    return f"{kept.days:,} days" if kept.days > 1 else f"{kept.total_seconds() / 3600:,.1f} h"


def _number(topic: Found, name: str) -> int:
    return int(topic.config.get(name) or 0)


def _has(topic: Found, name: str, why: str) -> str:
    return f"topic {topic.name} has {name}={topic.config.get(name)}: {why}"
