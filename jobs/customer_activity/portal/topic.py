"""The view topic as Kafka knows it: which one it is, and where its committed records begin and end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from customer_activity.errors import TopicMismatch
from customer_activity.kafka import clients
from customer_activity.settings import Settings

ANSWER_SECONDS = 5.0


class Identity(NamedTuple):
    """Which topic it is. One that was deleted and made again is another, and so is one with more partitions."""

    cluster: str
    topic: str
    topic_id: str
    partitions: int

    @property
    def text(self) -> str:
        """Return it as a store notes it."""
        return json.dumps(self._asdict(), sort_keys=True)


class ViewTopic:
    """Asks for the topic with a client of its own, which it keeps: a new one would sign in again each second."""

    def __init__(self, settings: Settings) -> None:
        """Make the client; nothing is asked yet."""
        self.settings = settings
        self.name = settings.view_topic
        self._admin = clients.admin(settings)

    def identity(self) -> Identity:
        """Tell which topic it is.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            KafkaRefused: it refuses this client.
            TopicMismatch: there is no such topic.
        """
        with clients.explained(self.settings, f"topic {self.name}"):
            cluster = self._admin.list_topics(self.name, timeout=ANSWER_SECONDS)
            found = cluster.topics[self.name]
            if found.error is not None and found.error.code() in clients.UNAUTHORIZED:
                raise clients.refused(self.settings, found.error.str(), f"topic {self.name}", is_signed_in=True)
            if found.error is not None:
                raise TopicMismatch(f"topic {self.name}: {found.error.str()}", remedy=clients.CREATE_TOPICS)
            described = self._admin.describe_topics(TopicCollection([self.name]), request_timeout=ANSWER_SECONDS)
            topic_id = str(described[self.name].result().topic_id)
        return Identity(str(cluster.cluster_id), self.name, topic_id, len(found.partitions))

    def begins(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the first offset of each partition.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Sequence[int]) -> dict[int, int]:
        """Return the offset after the last committed record of each partition.

        Raises:
            BrokerUnavailable: Kafka does not answer.
        """
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def _offsets(self, partitions: Sequence[int], which: OffsetSpec) -> dict[int, int]:
        asked = {TopicPartition(self.name, partition): which for partition in partitions}
        with clients.explained(self.settings, f"topic {self.name}"):
            answers = self._admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_SECONDS
            )
            return {place.partition: answer.result().offset for place, answer in answers.items()}
