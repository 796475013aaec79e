"""Records as no client of ours would send them: batches built byte by byte, and handed to the broker as they are.

Another client may give a header any name, a record any timestamp. The broker looks at neither, as long as a topic's
`message.timestamp.after.max.ms` lets a timestamp pass. What it does look at is changed on its disk after that.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tenacity import TryAgain, retry, retry_if_exception_type, stop_after_delay, wait_fixed

from customer_activity.demo.broker import node
from customer_activity.settings import Settings

CRC_AT, ATTRIBUTES_AT = 17, 21  # in a batch: the checksum is of everything from the attributes on
NOT_YET = (3, 5, 6, 32)  # a topic that was made, or told to take any timestamp, just now
COMPRESSION = 0b111  # the bits of the attributes that tell it


class WireRecord(NamedTuple):
    """A record: bytes, and a timestamp in milliseconds."""

    key: bytes | None
    value: bytes | None
    timestamp: int = 1_700_000_000_000
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def produce(settings: Settings, topic: str, partition: int, *records: WireRecord) -> int:
    """Append records to a partition, a batch each; return the last one's offset."""
    offset = -1
    for record in records:
        offset = _produce(settings, topic, partition, batch(record))
    return offset


def batch(record: WireRecord) -> bytes:
    """Return a record as a batch of its own (magic 2)."""
    headers = b"".join(_bytes(name) + _bytes(value) for name, value in record.headers)
    body = b"\0" + _varint(0) + _varint(0) + _bytes(record.key) + _bytes(record.value)
    body += _varint(len(record.headers)) + headers
    # attributes, last offset delta, first and greatest timestamp, producer id, epoch, sequence, count
    rest = struct.pack(">hiqqqhii", 0, 0, record.timestamp, record.timestamp, -1, -1, -1, 1) + _varint(len(body)) + body
    tail = struct.pack(">ibI", -1, 2, crc32c(rest)) + rest
    return struct.pack(">qi", 0, len(tail)) + tail


def segment(settings: Settings, topic: str, partition: int) -> Path:
    """The file in which the broker keeps a partition's first records."""
    return node.data(settings) / f"{topic}-{partition}" / f"{0:020}.log"


def damage(settings: Settings, topic: str, partition: int, old: bytes, new: bytes) -> None:
    """Change bytes on the broker's disk, as a disk would: the checksum stays as it was."""
    file = segment(settings, topic, partition)
    data = file.read_bytes()
    assert data.count(old) == 1
    with file.open("r+b") as stream:
        stream.seek(data.index(old))
        stream.write(new)


def claim_compression(settings: Settings, topic: str, partition: int, codec: int) -> None:
    """Have the last batch of a partition say that it is compressed in some way, with a checksum that fits."""
    file = segment(settings, topic, partition)
    data = file.read_bytes()
    start = 0
    while (following := start + 12 + struct.unpack_from(">i", data, start + 8)[0]) < len(data):
        start = following
    changed = bytearray(data[start + ATTRIBUTES_AT :])
    changed[1] = changed[1] & ~COMPRESSION | codec
    with file.open("r+b") as stream:
        stream.seek(start + CRC_AT)
        stream.write(struct.pack(">I", crc32c(bytes(changed))) + changed)


def crc32c(data: bytes) -> int:
    """Castagnoli's checksum, which zlib lacks."""
    table = _table()
    value = 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@cache
def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)  # noqa: PLW2901 - the sum as it grows
        table.append(value)
    return table


@retry(retry=retry_if_exception_type(TryAgain), stop=stop_after_delay(20), wait=wait_fixed(0.1), reraise=True)
def _produce(settings: Settings, topic: str, partition: int, records: bytes) -> int:
    host, port = settings.kafka_bootstrap_servers.split(":")
    name = topic.encode()
    body = struct.pack(">hhih", 0, 3, 7, -1)  # Produce, version 3, correlation, no client id
    body += struct.pack(">hhi", -1, -1, 30_000)  # no transaction, all replicas, time-out
    body += struct.pack(">ih", 1, len(name)) + name + struct.pack(">iii", 1, partition, len(records)) + records
    with socket.create_connection((host, int(port)), 30) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    _, fault, offset = struct.unpack_from(">ihq", answer, 4 + 4 + 2 + len(name) + 4)
    if fault in NOT_YET:
        raise TryAgain
    assert fault == 0, f"the broker refuses the batch: error {fault}"
    return int(offset)


def _bytes(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _varint(len(data)) + data


def _varint(number: int) -> bytes:
    """Return a number as Kafka writes it in records: zigzag, seven bits a byte."""
    left = (number << 1) ^ (number >> 63)
    found = bytearray()
    while True:
        found.append((left & 0x7F) | (0x80 if left > 0x7F else 0))
        left >>= 7
        if not left:
            return bytes(found)
