"""Reading a topic to its end: a broker that falls silent has not ended it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from customer_activity import kafka
from customer_activity.errors import BrokerUnavailable
from customer_activity.settings import Settings

END = SimpleNamespace(error=lambda: KafkaError(KafkaError._PARTITION_EOF))


def record(key: bytes, value: bytes | None) -> SimpleNamespace:
    return SimpleNamespace(error=lambda: None, key=lambda: key, value=lambda: value)


def serve(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """Stand in for a broker with one partition that gives these answers, then none."""
    coming = iter(answers)
    consumer = SimpleNamespace(assign=lambda _: None, poll=lambda _: next(coming, None), close=lambda: None)
    monkeypatch.setattr(kafka, "reader", lambda _: consumer)
    monkeypatch.setattr(kafka, "offset_range", lambda *_: {0: (0, 9)})


def test_the_last_value_of_each_key_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, record(b"a", b"1"), record(b"b", b"2"), record(b"a", None), record(b"b", b"3"), END)
    assert kafka.last_values(Settings(lake=str(tmp_path)), "topic") == {b"a": None, b"b": b"3"}


def test_a_broker_that_falls_silent_before_the_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, record(b"a", b"1"))
    with pytest.raises(BrokerUnavailable):
        kafka.last_values(Settings(lake=str(tmp_path)), "topic")
