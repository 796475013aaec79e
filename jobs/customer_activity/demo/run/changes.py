"""Customers changing: the newest records of the view topic, as they are committed."""

from __future__ import annotations

import json
import time
from collections import deque
from decimal import Decimal
from typing import NamedTuple, Self

from confluent_kafka import Consumer, TopicPartition

from customer_activity.kafka import clients
from customer_activity.settings import Settings

SHOWN = 8
POLL_SECONDS = 0.05
LOOK_SECONDS = 0.3  # a burst of records must not hold the screen: the rest comes with the next look
BATCH_RECORDS = 2_000


class Change(NamedTuple):
    """What a record of the view says about a customer, without anything personal; nulls when the row was removed."""

    customer_id: str
    purchase_count: int | None
    total_amount: Decimal | None
    loyalty_status: str | None
    view_version: int | None


def parse(key: bytes, value: bytes | str | None) -> Change:
    """Read what is shown out of a record of the view topic; a null value says that the row was removed.

    Of a record that is not the publisher's, what is not as it should be is left out.
    """
    try:
        fields = json.loads(value, parse_float=Decimal, parse_int=Decimal) if value is not None else {}
    except ValueError:
        fields = {}
    told = fields if isinstance(fields, dict) else {}
    count, total, version = (_figure(told.get(name)) for name in ("purchaseCount", "totalAmount", "viewVersion"))
    loyalty = told.get("loyaltyStatus")
    return Change(
        key.decode("utf-8", errors="backslashreplace"),
        int(count) if count is not None else None,
        total,
        str(loyalty) if loyalty is not None else None,
        int(version) if version is not None else None,
    )


def _figure(value: object) -> Decimal | None:
    return value if isinstance(value, Decimal) and value.is_finite() else None


def show(newest: deque[Change], change: Change) -> None:
    """Put a change last, in the place of an earlier one of the same customer."""
    for earlier in [shown for shown in newest if shown.customer_id == change.customer_id]:
        newest.remove(earlier)
    newest.append(change)


class Tail:
    """Reads the view topic from its present end on.

    Attributes:
        seen: how many records have come.
        newest: the last few changes, newest last, one a customer.
    """

    def __init__(self, settings: Settings) -> None:
        """Stand at the end of every partition.

        Raises:
            BrokerUnavailable: Kafka does not answer.
            TopicMismatch: there is no view topic.
        """
        self.settings = settings
        self.seen = 0
        self.newest: deque[Change] = deque(maxlen=SHOWN)
        ends = clients.offset_range(settings, settings.view_topic)
        self._consumer: Consumer = clients.reader(settings)
        self._consumer.assign(
            [TopicPartition(settings.view_topic, partition, end) for partition, (_, end) in ends.items()]
        )

    def look(self) -> None:
        """Take in what has been committed since the last look, for a moment at most."""
        deadline = time.monotonic() + LOOK_SECONDS
        with clients.explained(self.settings):
            while messages := self._consumer.consume(BATCH_RECORDS, timeout=POLL_SECONDS):
                for message in messages:
                    key = message.key()
                    if message.error() is None and isinstance(key, bytes):
                        self.seen += 1
                        show(self.newest, parse(key, message.value()))
                if time.monotonic() > deadline:
                    return

    def __enter__(self) -> Self:
        """Return itself; it stands at the end from construction on."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self._consumer.close()
