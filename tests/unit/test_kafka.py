"""Reading a topic to its end: a broker that falls silent has not ended it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from customer_activity.errors import BrokerUnavailable, KafkaRefused
from customer_activity.kafka import clients, faults
from customer_activity.settings import Settings

END = SimpleNamespace(error=lambda: KafkaError(KafkaError._PARTITION_EOF))


def record(key: bytes, value: bytes | None) -> SimpleNamespace:
    return SimpleNamespace(error=lambda: None, key=lambda: key, value=lambda: value)


def serve(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """Stand in for a broker with one partition that gives these answers, then none."""
    coming = iter(answers)
    consumer = SimpleNamespace(assign=lambda _: None, poll=lambda _: next(coming, None), close=lambda: None)
    monkeypatch.setattr(clients, "reader", lambda _, **__: consumer)
    monkeypatch.setattr(clients, "ranges_seen_by", lambda *_: {0: (0, 9)})


def test_the_last_value_of_each_key_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, record(b"a", b"1"), record(b"b", b"2"), record(b"a", None), record(b"b", b"3"), END)
    assert clients.last_values(Settings(lake=str(tmp_path)), "topic") == {b"a": None, b"b": b"3"}


def test_a_broker_that_falls_silent_before_the_end_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(monkeypatch, record(b"a", b"1"))
    with pytest.raises(BrokerUnavailable):
        clients.last_values(Settings(lake=str(tmp_path)), "topic")


CUT_OFF = "SSL handshake failed: Disconnected (after 3ms in state SSL_HANDSHAKE)"
UNTRUSTED = "SSL handshake failed: certificate verify failed: broker certificate could not be verified"
TIME_IS_UP = KafkaException(KafkaError(KafkaError._TIMED_OUT))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        pytest.param(
            KafkaError(KafkaError._AUTHENTICATION, "no such user"),
            "authentication at Kafka",
            id="no such user",
        ),
        pytest.param(KafkaError(KafkaError._SSL, UNTRUSTED), "authentication at Kafka", id="an unknown CA"),
        pytest.param(KafkaError(KafkaError._SSL, CUT_OFF), None, id="a handshake that was cut off"),
        pytest.param(KafkaError(KafkaError._TRANSPORT, "connection refused"), None, id="nobody there"),
    ],
)
def test_what_a_client_was_told_in_its_own_threads_decides(told: KafkaError, words: str | None, tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path), kafka_config=tmp_path / str(told.code()) / str(words))
    faults.note(settings, told)
    faults.note(settings, KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert faults.is_turned_away(settings) == (words is not None)
    error = clients.unavailable(settings, TIME_IS_UP)
    assert type(error) is (BrokerUnavailable if words is None else KafkaRefused)
    assert told.str() in error.what
    assert words is None or (words in error.what and str(settings.kafka_config) in error.remedy)
    faults.forget(settings)
    assert type(clients.unavailable(settings, TIME_IS_UP)) is BrokerUnavailable


def test_what_was_told_long_ago_counts_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(lake=str(tmp_path), kafka_config=tmp_path / "long ago")
    faults.note(settings, KafkaError(KafkaError._AUTHENTICATION, "no such user"))
    monkeypatch.setattr(faults, "NOTED_SECONDS", 0.0)
    assert type(clients.unavailable(settings, TIME_IS_UP)) is BrokerUnavailable


def test_a_right_that_is_missing_is_told_with_what_it_is_for(tmp_path: Path) -> None:
    fault = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    error = clients.unavailable(Settings(lake=str(tmp_path)), fault, "topic purchases")
    assert isinstance(error, KafkaRefused)
    assert "for topic purchases" in error.what
    assert "infra/kafka/acls.yaml" in error.remedy


def test_a_cluster_that_answers_slowly_is_asked_more_patiently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that ran out of time is given up: the next one begins at the beginning."""
    now = 0.0

    def list_topics(_topic: str | None, *, timeout: float) -> str:
        nonlocal now
        now += min(timeout, 1.5)
        if timeout < 1.5:
            raise TIME_IS_UP
        return "answer"

    client = SimpleNamespace(list_topics=list_topics, poll=lambda _: None)
    monkeypatch.setattr(clients, "admin", lambda _: client)
    monkeypatch.setattr(clients, "time", SimpleNamespace(monotonic=lambda: now))
    assert str(clients.metadata(Settings(lake=str(tmp_path)))) == "answer"
    assert now < clients.METADATA_TIMEOUT_SECONDS
