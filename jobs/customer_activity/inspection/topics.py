"""The topics as they are now: offsets and the newest timestamp of each partition, without reading a record."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from customer_activity.errors import BrokerUnavailable
from customer_activity.kafka import clients
from customer_activity.settings import Settings

ANSWER_SECONDS = 1.5  # a broker that does not accept a connection by then is down for somebody who looks at a screen
REQUEST_SECONDS = 5.0  # one round trip to a broker that does answer
FIRST_BYTES = 16_384  # a broker hands out a whole batch of records, however large, and no more than this besides

EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]
MAX_TIMESTAMP = OffsetSpec.max_timestamp()  # type: ignore[no-untyped-call]

SETTLING = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.UNKNOWN_TOPIC_OR_PART)


class Topic(NamedTuple):
    """A topic as it is now."""

    name: str
    offsets: dict[int, tuple[int, int]]  # begin and end offset (end exclusive, committed records only), by partition
    newest: datetime | None  # the greatest Kafka timestamp on the topic; None when it is empty
    ends: Mapping[int, int] = MappingProxyType({})  # end by partition with what open transactions hold back

    @property
    def records(self) -> int:
        """Offsets between begin and end; compaction and transaction markers leave fewer records than that."""
        return sum(end - begin for begin, end in self.offsets.values())

    def behind(self, read: Mapping[int, int]) -> int:
        """Count the offsets that come after what was read, given as next offset by partition."""
        return sum(self.offsets[partition][1] - first for partition, first in self.unread(read).items())

    def unread(self, read: Mapping[int, int]) -> dict[int, int]:
        """Return the first offset that was not read of each partition that has one."""
        firsts = {partition: max(read.get(partition, begin), begin) for partition, (begin, _) in self.offsets.items()}
        return {partition: first for partition, first in firsts.items() if first < self.offsets[partition][1]}

    def held_back(self) -> dict[int, int]:
        """Return the last stable offset of each partition with an open transaction: what follows is not handed out."""
        committed = {partition: end for partition, (_, end) in self.offsets.items()}
        return {partition: end for partition, end in committed.items() if self.ends.get(partition, end) > end}

    def is_shorter(self, read: Mapping[int, int]) -> bool:
        """Whether it ends before what was read: it was recreated, or its log was truncated."""
        return any(self.offsets.get(partition, (0, 0))[1] < offset for partition, offset in read.items())


def is_reachable(settings: Settings) -> bool:
    """Whether any of the brokers accepts a connection."""
    return any(_accepts(server.strip()) for server in settings.kafka_bootstrap_servers.split(","))


def answers(settings: Settings) -> bool:
    """Whether it is Kafka that accepts the connection."""
    try:
        topics(settings, [])
    except BrokerUnavailable:
        return False
    return True


def topics(settings: Settings, names: list[str]) -> dict[str, Topic]:
    """Return those of the named topics that exist.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        KafkaRefused: it refuses this client, or what it asks for.
    """
    if not is_reachable(settings):
        raise BrokerUnavailable(
            f"no answer from Kafka at {settings.kafka_bootstrap_servers}",
            remedy="start it (`activity broker start`) or correct ACTIVITY_KAFKA_BOOTSTRAP_SERVERS",
        )
    with clients.explained(settings):
        return _described(settings, names)


def oldest(settings: Settings, places: Mapping[str, Mapping[int, int]], *, held_back: bool = False) -> datetime | None:
    """Return the earliest Kafka timestamp of the records at some places, or the first behind each.

    None where that is not known: a partition does not answer in time, or this client may not read it.

    Args:
        settings: which broker.
        places: an offset of each partition, by topic.
        held_back: they are those that a transaction holds back.
    """
    left = {(topic, partition) for topic, partitions in places.items() for partition in partitions}
    times: list[datetime | None] = []
    deadline = time.monotonic() + REQUEST_SECONDS
    reader = (clients.uncommitted_reader if held_back else clients.reader)(
        settings,
        fetch_wait_max_ms=clients.END_WAIT_MS,
        fetch_message_max_bytes=FIRST_BYTES,
        queued_min_messages=1,
    )
    with closing(reader) as consumer:
        consumer.assign([TopicPartition(topic, *place) for topic, found in places.items() for place in found.items()])
        while left:
            message = consumer.poll(max(0.0, deadline - time.monotonic()))
            error = None if message is None else message.error()
            if message is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):  # noqa: SLF001
                return None
            if (place := (message.topic() or "", message.partition() or 0)) in left:
                left.remove(place)
                times += [] if error else [_time(message.timestamp()[1])]  # at the end there are markers alone
    return min((at for at in times if at is not None), default=None)


def _is_settling(error: BaseException) -> bool:
    """Whether a partition has no known leader: so it is for a moment after a topic is made or a leader goes."""
    fault = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return isinstance(fault, KafkaError) and fault.code() in SETTLING


@retry(
    retry=retry_if_exception(_is_settling), stop=stop_after_delay(REQUEST_SECONDS), wait=wait_fixed(0.2), reraise=True
)
def _described(settings: Settings, names: list[str]) -> dict[str, Topic]:
    client = clients.admin(settings)
    known = clients.metadata(settings, seconds=REQUEST_SECONDS).topics
    partitions = [TopicPartition(name, p) for name in names if name in known for p in known[name].partitions]
    begins, ends, newest = (_listed(client, partitions, spec) for spec in (EARLIEST, LATEST, MAX_TIMESTAMP))
    last = _listed(client, partitions, LATEST, IsolationLevel.READ_UNCOMMITTED)  # after the others: it is not less
    return {
        name: Topic(
            name,
            {p: (begins[name, p].offset, ends[name, p].offset) for p in sorted(known[name].partitions)},
            max(
                (t for p in known[name].partitions if (t := _time(newest[name, p].timestamp)) is not None), default=None
            ),
            {p: last[name, p].offset for p in known[name].partitions},
        )
        for name in names
        if name in known
    }


def _accepts(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def _listed(
    client: AdminClient,
    partitions: list[TopicPartition],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[tuple[str, int], ListOffsetsResultInfo]:
    """Ask for one offset of every partition; the partitions are asked at once."""
    if not partitions:
        return {}
    asked: dict[TopicPartition, Future[ListOffsetsResultInfo]] = client.list_offsets(
        dict.fromkeys(partitions, spec), isolation_level=isolation, request_timeout=REQUEST_SECONDS
    )
    return {(partition.topic, partition.partition): future.result() for partition, future in asked.items()}


def _time(millis: int) -> datetime | None:
    return datetime.fromtimestamp(millis / 1000, UTC) if millis >= 0 else None
