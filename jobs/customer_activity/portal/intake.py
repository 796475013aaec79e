"""Takes what the client hands out of the view topic into the store; what is not the publisher's is passed over.

No record ends the portal: one that the store cannot take, whatever the reason, is passed over by itself, and the log
has its coordinates.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from customer_activity.errors import ActivityError
from customer_activity.kafka import clients
from customer_activity.portal import records
from customer_activity.portal.reading import Change
from customer_activity.portal.records import Row
from customer_activity.settings import Settings

log = logging.getLogger("customer_activity")
Take = Callable[[list[Row], Mapping[int, int]], list[Change]]


class Outdated(Exception):
    """The store is not, or not any more, of what is on the topic."""


class Taken(NamedTuple):
    """What came of some messages.

    Attributes:
        changes: what their rows changed.
        positions: next offset by partition, after them.
    """

    changes: list[Change]
    positions: dict[int, int]


class Intake:
    """Takes messages in, and counts those that are passed over."""

    def __init__(self, settings: Settings) -> None:
        """Take whose topic it is."""
        self.settings = settings
        self.ignored = 0  # records that are not the publisher's

    def take(self, messages: Iterable[Message], take: Take) -> Taken:
        """Have rows and offsets of messages taken into the store, in one transaction if none of them is in the way.

        Raises:
            Outdated: the topic no longer has what comes next.
            ActivityError: Kafka has a fault to tell.
            sqlite3.Error: the store cannot be written.
        """
        found = list(messages)
        try:
            return self._take(found, take)
        except (Outdated, ActivityError, sqlite3.Error, MemoryError):
            raise
        except Exception:  # noqa: BLE001 - of one record, which is found by taking each by itself
            changes: list[Change] = []
            positions: dict[int, int] = {}
            for message in found:
                taken = self._take_or_pass(message, take)
                changes += taken.changes
                positions |= taken.positions
            return Taken(changes, positions)

    def _take_or_pass(self, message: Message, take: Take) -> Taken:
        try:
            return self._take([message], take)
        except (Outdated, ActivityError, sqlite3.Error, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - what it says may be data, and is told nobody
            partition, offset = message.partition() or 0, message.offset() or 0
            log.error(  # noqa: TRY400
                "a record of topic %s is passed over, the store cannot take it: partition %d, offset %d: %s",
                *(self.settings.view_topic, partition, offset, type(error).__name__),
            )
            self.ignored += 1
            positions = {partition: offset + 1}
            return Taken(take([], positions), positions)

    def _take(self, messages: list[Message], take: Take) -> Taken:
        rows, positions, ignored = self._read(messages)
        changes = take(rows, positions) if positions else []
        self.ignored += ignored
        return Taken(changes, positions)

    def _read(self, messages: Iterable[Message]) -> tuple[list[Row], dict[int, int], int]:
        """Return the rows of what the client hands out, the offsets after it, and how many records are not rows."""
        rows: list[Row] = []
        positions: dict[int, int] = {}
        ignored = 0
        for message in messages:
            fault = message.error()
            if fault is not None:
                self._refuse(fault)
                if fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client has no public name for it
                    positions[message.partition() or 0] = message.offset() or 0
                continue
            row = records.read(_bytes(message.key()), _bytes(message.value()), message.timestamp()[1])
            if row is None:
                ignored += 1
            else:
                rows.append(row)
            positions[message.partition() or 0] = (message.offset() or 0) + 1
        return rows, positions, ignored

    def _refuse(self, fault: KafkaError) -> None:
        if fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
            return
        if fault.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            raise Outdated("the topic no longer has what comes next")
        clients.refuse_fault(self.settings, fault, f"topic {self.settings.view_topic}")


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
