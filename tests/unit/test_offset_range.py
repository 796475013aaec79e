"""Offsets of a topic: asked for again while a partition has no leader, and given up on for everything else."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from customer_activity.errors import KafkaRefused
from customer_activity.kafka import clients
from customer_activity.settings import Settings


class Broker:
    """A consumer whose broker answers with these faults first."""

    def __init__(self, faults: list[int]) -> None:
        self.faults = faults
        self.asked = 0

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        self.asked += 1
        if self.faults:
            raise KafkaException(KafkaError(self.faults.pop(0)))
        return 3, 7

    def close(self) -> None:
        """Close nothing."""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Broker:
    broker = Broker([*request.param])
    monkeypatch.setattr(clients, "reader", lambda _: broker)
    monkeypatch.setattr(clients, "partitions", lambda *_: [0])
    return broker


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param((), id="at once"),
        pytest.param((KafkaError.NOT_LEADER_FOR_PARTITION,), id="after an election"),
        pytest.param((KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION), id="after a longer one"),
    ],
    indirect=True,
)
def test_a_partition_without_a_leader_is_asked_again(asked: Broker) -> None:
    expected = len(asked.faults) + 1
    assert clients.offset_range(Settings(), "a-topic") == {0: (3, 7)}
    assert asked.asked == expected


@pytest.mark.parametrize("asked", [(KafkaError.TOPIC_AUTHORIZATION_FAILED,)], ids=["no rights"], indirect=True)
def test_another_fault_is_told_at_once(asked: Broker) -> None:
    with pytest.raises(KafkaRefused):
        clients.offset_range(Settings(), "a-topic")
    assert asked.asked == 1
