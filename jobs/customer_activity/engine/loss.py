"""What Kafka no longer has although it never landed: a stream that lands does not start before somebody accepts it.

Spark's source has an option that skips what is gone. Here nobody is to learn of a gap from a sum that is too small: the
lost offsets are named, and going on without them is an explicit action, noted in the lake.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from customer_activity import topology
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.engine import regrown
from customer_activity.errors import OffsetsLost, SettingsError
from customer_activity.kafka import clients
from customer_activity.lake import audit, delta, history
from customer_activity.lease import lease
from customer_activity.settings import Settings
from customer_activity.topology import Spec


class Lost(NamedTuple):
    """Offsets of a partition that were never read, from the first to the last, and that Kafka has no longer."""

    topic: str
    partition: int
    first: int
    last: int

    @property
    def offsets(self) -> int:
        """How many."""
        return self.last - self.first + 1

    def __str__(self) -> str:
        """Return the range, both ends included."""
        return f"{self.topic}-{self.partition} {self.first} to {self.last}"


def check(settings: Settings, stream: Spec) -> None:
    """Refuse to start a stream that lands topics when Kafka lacks what comes next.

    Raises:
        OffsetsLost: offsets are gone, or a topic is not the one that was landed so far.
        BrokerUnavailable: Kafka does not answer.
    """
    if lost := find(settings, stream):
        count = sum(part.offsets for part in lost)
        raise OffsetsLost(
            f"Kafka no longer has {count} offsets that were never landed: {', '.join(map(str, lost))}",
            remedy=f"find out what removed them; `activity accept-loss {count} --reason …` goes on after them",
        )


def find(settings: Settings, stream: Spec) -> list[Lost]:
    """Return what Kafka no longer has of what a stream that lands topics reads next.

    Raises:
        OffsetsLost: a topic is not the one that was landed so far.
        BrokerUnavailable: Kafka does not answer.
    """
    lost = []
    positions = _next(settings, stream)
    noted = _noted_ids(settings.lake, stream) if positions else {}
    for topic, partitions in positions.items():
        ranges = clients.offset_range(settings, topic)
        if topic in noted and noted[topic] != clients.topic_ids(settings, [topic])[topic]:
            raise _another(topic, "its id is another one")
        # A partition that was added since is read from 0 on: what it no longer has was never landed.
        for partition, position in sorted((dict.fromkeys(ranges, 0) | partitions).items()):
            low, high = ranges.get(partition, (0, 0))
            if position > high:
                raise _another(topic, f"partition {partition} ends at offset {high}, and offset {position} is next")
            if position < low:
                lost.append(Lost(topic, partition, position, low - 1))
        begins = {partition: low for partition, (low, _) in ranges.items()}
        if place := regrown.unlike(settings, stream.tables, topic, partitions, begins):
            raise _another(topic, "partition {} has another record at offset {}".format(*place))
    return lost


def _next(settings: Settings, stream: Spec) -> dict[str, dict[int, int]]:
    """Return the next offset to read by topic and partition; nothing before the first batch is planned."""
    state = checkpoint.state(settings.lake, stream.name)
    if state is None or state.planned is None:
        return {}
    cut = checkpoint.cut(settings.lake, stream.name, state.planned)
    if cut is None:
        return {}
    if state.committed == state.planned:
        return offsets.topic_offsets(cut.end)
    return offsets.topic_offsets(cut.begin or [checkpoint.first(settings.lake, stream.name)])


def _noted_ids(lake: str, landing: Spec) -> dict[str, str]:
    """Return the ids that Kafka had given the topics when a stream last landed something."""
    newest = max(
        (history.latest_metadata(lake, table, landing.name) for table in landing.tables),
        key=lambda metadata: metadata.get("batch_id", -1),
    )
    return dict(newest.get("topic_ids", {}))


def _another(topic: str, why: str) -> OffsetsLost:
    return OffsetsLost(
        f"{topic} is not the topic that was landed so far: {why}",
        remedy="it was recreated, or its log was truncated, and the lake has its offsets already, with other records: "
        "restore the whole log, or land it into a lake of its own (ACTIVITY_LAKE); docs/OPERATIONS.md says how",
    )


def accept(settings: Settings, offsets: int, reason: str) -> list[Lost]:
    """Have the stream that lacks something go on after it, and note in the lake what it was and why.

    Args:
        settings: which lake, which broker.
        offsets: how many are lost, as the one who accepts it knows it.
        reason: why nobody can bring them back.

    Raises:
        SettingsError: there is no lake, or another number of offsets is lost.
        OffsetsLost: a topic is not the one that was landed so far.
        QueryAlreadyRunning: a stream runs that lands topics.
        BrokerUnavailable: Kafka does not answer.
    """
    delta.require_tables(settings.lake)
    streams = topology.landings()
    with lease.kept_out(settings.lake, [stream.name for stream in streams]):
        found = {stream.name: find(settings, stream) for stream in streams}
        lost = [part for of_stream in found.values() for part in of_stream]
        if (count := sum(part.offsets for part in lost)) != offsets or not count:
            listed = f": {', '.join(map(str, lost))}" if lost else ""
            raise SettingsError(
                f"{count} offsets are lost, not {offsets}{listed}", remedy="accept what is lost, no more"
            )
        for name, of_stream in found.items():
            if of_stream:
                _accept(settings.lake, name, of_stream, reason)
    return lost


def _accept(lake: str, landing: str, lost: list[Lost], reason: str) -> None:
    state = checkpoint.state(lake, landing)
    if state is None or state.planned is None:
        raise RuntimeError(f"the checkpoint of {landing} was there a moment ago")
    cut = checkpoint.cut(lake, landing, state.planned)
    if cut is None:
        raise RuntimeError(f"the offsets of batch {state.planned} were there a moment ago")
    least: dict[str, dict[int, int]] = {}
    for part in lost:
        least.setdefault(part.topic, {})[part.partition] = part.last + 1
    begin = None if cut.begin is None else offsets.raised(cut.begin, least)
    moved = offsets.OffsetRange(begin, offsets.raised(cut.end, least))
    first = checkpoint.first(lake, landing) if cut.begin is None else None
    (begins,) = (None,) if first is None else offsets.raised([first], least)
    now = datetime.now(UTC)
    ranges = [part._asdict() for part in lost]
    gone = sum(part.offsets for part in lost)
    aside = checkpoint.place_aside(lake, landing, now)
    # First: once the checkpoint is another one, nothing tells any more that offsets are lost.
    audit.append(lake, now, "accept-loss", landing, reason, lost=ranges, offsets=gone, set_aside=aside)
    checkpoint.set_aside(lake, landing, now)
    is_committed = state.committed == state.planned
    checkpoint.write(lake, landing, state.generation, state.planned, moved, is_committed=is_committed, begin=begins)
