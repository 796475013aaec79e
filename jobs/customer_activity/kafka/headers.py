r"""Record headers whose names may be any bytes.

confluent-kafka decodes a header's name and fails where it is not UTF-8, and offers no other way to it. Such a record is
read again through the C interface of the librdkafka that it ships with, which returns the bytes.

A name that is not UTF-8 is kept escaped (`caf\xe9`). A name ends at its first U+0000: librdkafka tells no length.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from functools import cache
from operator import methodcaller
from typing import Any

from confluent_kafka import KafkaError, KafkaException, cimpl

from customer_activity.errors import BrokerUnavailable, TransientError
from customer_activity.kafka import clients
from customer_activity.settings import Settings

Headers = list[tuple[str, bytes | None]]

SILENCE_SECONDS = 60.0
POLL_MILLIS = 200
ERROR_CHARACTERS = 512
CONSUMER = 1  # rd_kafka_type_t
# What confluent-kafka gives back for such a name is half a list and an error that is pending. A call of a method in a
# loop does not look for one (CPython 3.11 specialises it): the list is taken for valid, and the next call fails.
# A call from C does.
_told = methodcaller("headers")
NEAR = 1_000  # offsets: so far on, reading what is between is quicker than to start over


class _Message(ctypes.Structure):
    """rd_kafka_message_t, as librdkafka's header has it."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_size", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


@cache
def _library() -> ctypes.CDLL:
    """Return librdkafka: symbols are looked up in what confluent-kafka's own library is linked to."""
    library = ctypes.CDLL(cimpl.__file__)
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "rd_kafka_conf_new": (pointer, []),
        "rd_kafka_conf_set": (number, [pointer, text, text, text, ctypes.c_size_t]),
        "rd_kafka_new": (pointer, [number, pointer, text, ctypes.c_size_t]),
        "rd_kafka_poll_set_consumer": (number, [pointer]),
        "rd_kafka_topic_partition_list_new": (pointer, [number]),
        "rd_kafka_topic_partition_list_add": (pointer, [pointer, text, ctypes.c_int32]),
        "rd_kafka_topic_partition_list_set_offset": (number, [pointer, text, ctypes.c_int32, ctypes.c_int64]),
        "rd_kafka_topic_partition_list_destroy": (None, [pointer]),
        "rd_kafka_assign": (number, [pointer, pointer]),
        "rd_kafka_consumer_poll": (ctypes.POINTER(_Message), [pointer, number]),
        "rd_kafka_message_headers": (number, [ctypes.POINTER(_Message), ctypes.POINTER(pointer)]),
        "rd_kafka_header_get_all": (
            number,
            [pointer, ctypes.c_size_t, ctypes.POINTER(text), ctypes.POINTER(pointer), ctypes.POINTER(ctypes.c_size_t)],
        ),
        "rd_kafka_message_destroy": (None, [ctypes.POINTER(_Message)]),
        "rd_kafka_consumer_close": (number, [pointer]),
        "rd_kafka_destroy": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class HeaderReader:
    """Tells messages' headers; opens a client of its own when one has a name that is not UTF-8."""

    def __init__(self, settings: Settings) -> None:
        """Open nothing yet."""
        self.settings = settings
        self.client: int | None = None
        self.next: tuple[str, int, int] | None = None  # topic, partition and offset that come next

    def of(self, messages: Sequence[Any]) -> list[Headers | None]:
        """Return the headers of each message; None where it has none.

        Raises:
            BrokerUnavailable: a record has to be read once more, and Kafka does not answer.
            RecordsUnreadable: that one cannot be read.
        """
        found: list[Headers | None] = []
        unread: list[int] = []
        for number, message in enumerate(messages):
            try:
                found.append(_told(message) or None)
            except (SystemError, UnicodeDecodeError):  # ask that message no more: what it has is half made
                found.append(None)
                unread.append(number)
        places = {number: (messages[number].topic(), messages[number].partition()) for number in unread}
        for number in sorted(unread, key=lambda number: (*places[number], messages[number].offset())):
            found[number] = self._read(*places[number], messages[number].offset())
        return found

    def close(self) -> None:
        """Close the client where there is one."""
        if self.client is not None:
            _library().rd_kafka_consumer_close(self.client)
            _library().rd_kafka_destroy(self.client)
            self.client = self.next = None

    def _read(self, topic: str, partition: int, offset: int) -> Headers:
        """Read one record's headers."""
        library = _library()
        is_near = self.next is not None and self.next[:2] == (topic, partition) and 0 <= offset - self.next[2] < NEAR
        if not is_near:
            self._stand_at(topic, partition, offset)
        silent_until = time.monotonic() + SILENCE_SECONDS
        while time.monotonic() < silent_until:
            message = library.rd_kafka_consumer_poll(self.client, POLL_MILLIS)
            if not message:
                continue
            try:
                told = message.contents
                if told.err and told.err != KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no public name
                    clients.refuse_fault(self.settings, KafkaError(told.err), f"{topic}-{partition}")
                elif not told.err and told.partition == partition and told.offset == offset:
                    self.next = topic, partition, offset + 1
                    return _headers(message)
                elif not told.err and told.partition == partition and told.offset > offset:
                    raise TransientError(
                        f"{topic}-{partition}: offset {offset} was removed while it was read",
                        remedy="start again: the record is gone, and is not asked for again",
                    )
            finally:
                library.rd_kafka_message_destroy(message)
        raise BrokerUnavailable(
            f"{topic}-{partition}: offset {offset} could not be read a second time within {SILENCE_SECONDS:.0f} s",
            remedy="`activity broker status` shows whether Kafka is up; then start again",
        )

    def _stand_at(self, topic: str, partition: int, offset: int) -> None:
        library = _library()
        if self.client is None:
            self.client = _open(self.settings)
        name = topic.encode()
        places = library.rd_kafka_topic_partition_list_new(1)
        try:
            library.rd_kafka_topic_partition_list_add(places, name, partition)
            library.rd_kafka_topic_partition_list_set_offset(places, name, partition, offset)
            if code := library.rd_kafka_assign(self.client, places):
                raise clients.unavailable(self.settings, KafkaException(KafkaError(code)))
        finally:
            library.rd_kafka_topic_partition_list_destroy(places)


def _open(settings: Settings) -> int:
    library = _library()
    said = ctypes.create_string_buffer(ERROR_CHARACTERS)
    configuration = library.rd_kafka_conf_new()
    wanted = clients.reader_config(settings, queued_max_messages_kbytes=4_096)
    for name, value in wanted.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if library.rd_kafka_conf_set(configuration, name.encode(), text.encode(), said, ERROR_CHARACTERS):
            raise RuntimeError(f"librdkafka does not accept {name}")  # never its value: it may be a secret
    client = library.rd_kafka_new(CONSUMER, configuration, said, ERROR_CHARACTERS)
    if not client:
        raise RuntimeError("librdkafka could not open a second client")
    library.rd_kafka_poll_set_consumer(client)
    return int(client)


def _headers(message: Any) -> Headers:
    library = _library()
    headers = ctypes.c_void_p()
    if library.rd_kafka_message_headers(message, ctypes.byref(headers)):
        return []
    name, value, size = ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_size_t()
    found: Headers = []
    while not library.rd_kafka_header_get_all(
        headers, len(found), ctypes.byref(name), ctypes.byref(value), ctypes.byref(size)
    ):
        held = None if value.value is None else ctypes.string_at(value.value, size.value)
        found.append(((name.value or b"").decode(errors="backslashreplace"), held))
    return found
