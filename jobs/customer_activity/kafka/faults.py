"""Errors of Kafka's client as the product's own: no answer, authentication and authorization, unreadable records.

A client that is turned away goes on trying in its own threads, and the call that waits for it learns only that it timed
out. So what clients are told is remembered here for a while.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException

from customer_activity.errors import BrokerUnavailable, KafkaRefused, RecordsUnreadable
from customer_activity.settings import Settings

VARIABLE = "ACTIVITY_KAFKA_CONFIG"
NOTED_SECONDS = 30.0  # what a client was told counts for so long: it may have been corrected since

RIGHTS = "give this user the rights of its role in infra/kafka/acls.yaml (docs/OPERATIONS.md)"
UNAUTHORIZED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
UNKNOWN_USER = (
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - the client has no public name for it
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
)
# OpenSSL's words for what trying again does not help; a handshake that is merely cut off says something else.
UNTRUSTED = re.compile(r"certificate|alert|wrong version number|unsupported protocol", re.IGNORECASE)
# The same as the JVM's client calls it.
JAVA_REFUSALS = ("AuthorizationException", "SaslAuthenticationException", "SslAuthenticationException")

_told: dict[tuple[str, Path | None], tuple[float, KafkaError]] = {}  # what clients were told last, and when


def _own_codes(*names: str) -> frozenset[int]:
    """Return the client's own error codes of some names, which it has no public names for."""
    return frozenset(getattr(KafkaError, f"_{name}") for name in names)


# The client's own faults are below zero. These it recovers from by itself: connections that end, and begin again with
# signing in. That may fail because the broker is going down; the caller that waits for records gives up after a while.
PASSING = _own_codes(
    *("TRANSPORT", "ALL_BROKERS_DOWN", "RESOLVE", "TIMED_OUT", "RETRY", "DESTROY_BROKER", "WAIT_COORD", "SSL"),
    "AUTHENTICATION",
)
UNREADABLE = _own_codes(
    *("BAD_MSG", "BAD_COMPRESSION", "NOT_IMPLEMENTED", "UNDERFLOW", "PARTIAL", "INCONSISTENT", "UNSUPPORTED_FEATURE")
)


def note(settings: Settings, error: KafkaError) -> None:
    """Keep what a client was told in its own threads: the call that waits for it learns nothing but that time is up."""
    if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001 - that many were tried says nothing new
        _told[settings.kafka_bootstrap_servers, settings.kafka_config] = time.monotonic(), error


def forget(settings: Settings) -> None:
    """Forget what clients were told: one was answered."""
    _told.pop((settings.kafka_bootstrap_servers, settings.kafka_config), None)


def is_turned_away(settings: Settings) -> bool:
    """Whether a client was told a moment ago what trying again does not help."""
    told = _last_told(settings)
    return told is not None and _is_refusal(told)


def _last_told(settings: Settings) -> KafkaError | None:
    at, error = _told.get((settings.kafka_bootstrap_servers, settings.kafka_config), (0.0, None))
    return error if error is not None and time.monotonic() - at < NOTED_SECONDS else None


def refuse_fault(settings: Settings, fault: KafkaError, where: str) -> None:
    """Refuse what a consumer said in the place of a record, unless the client recovers from it by itself.

    Raises:
        RecordsUnreadable: records are damaged or written in a way that the client does not know, and were passed over.
        KafkaRefused: this client lacks a right.
        BrokerUnavailable: anything else.
    """
    if fault.code() in PASSING or (fault.code() > 0 and fault.retriable() and not fault.fatal()):
        return
    if fault.code() in UNREADABLE:
        raise RecordsUnreadable(
            f"{where}: the client cannot read the records that Kafka returns ({fault.str()})",
            remedy="start again; if that does not help, find out from the broker's disk, or the producer's "
            "compression, what these records are: nothing was skipped",
        )
    raise unavailable(settings, KafkaException(fault), where)


def _is_refusal(error: KafkaError) -> bool:
    is_untrusted = error.code() == KafkaError._SSL and UNTRUSTED.search(error.str()) is not None  # noqa: SLF001
    return error.code() in (*UNAUTHORIZED, *UNKNOWN_USER) or is_untrusted


def unavailable(settings: Settings, error: KafkaException, what: str = "") -> BrokerUnavailable | KafkaRefused:
    """Say that the broker does not answer, or that it refuses this client what it asked for, such as a topic."""
    fault = error.args[0] if error.args and isinstance(error.args[0], KafkaError) else None
    told = fault if fault is not None and _is_refusal(fault) else _last_told(settings)
    servers = settings.kafka_bootstrap_servers
    if told is not None and _is_refusal(told):
        return refused(settings, told.str(), what, is_signed_in=told.code() in UNAUTHORIZED)
    reason = fault.str() if fault is not None else str(error)
    since = f"; it was told: {told.str()}" if told is not None and told.str() != reason else ""
    sign_in = "" if settings.kafka_config else f", or set {VARIABLE} if it requires authentication"
    return BrokerUnavailable(
        f"no answer from Kafka at {servers} ({reason}{since})",
        remedy=f"start it (`activity broker start`) or correct ACTIVITY_KAFKA_BOOTSTRAP_SERVERS{sign_in}",
    )


def refused(settings: Settings, reason: str, what: str = "", *, is_signed_in: bool) -> KafkaRefused:
    """Say that Kafka refuses this client, and what to do about it."""
    if is_signed_in:
        about = f" for {what}" if what else ""
        return KafkaRefused(f"Kafka at {settings.kafka_bootstrap_servers} refuses{about}: {reason}", remedy=RIGHTS)
    file = settings.kafka_config or f"the file that {VARIABLE} is to name: it is not set"
    return KafkaRefused(
        f"authentication at Kafka ({settings.kafka_bootstrap_servers}) failed: {reason}",
        remedy=f"correct user, password, mechanism or certificates in {file}",
    )
