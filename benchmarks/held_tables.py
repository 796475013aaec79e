"""Silver and gold as they are when they hold many purchases of many customers, made as files in minutes.

Purchase `i` is of customer `i % customers`, so what the tables of current rows say of a customer is arithmetic. Rows
are made by column and written by the pipeline's own writer, into one file a million purchases; each table gets one
commit, as a compaction's (`dataChange` is false). So readers of its change feed, which have read all that came before,
go on behind it and read none of it; whoever asks what the table holds finds it. Bronze, whose rows nobody would read,
stays thin. Local state and sorted runs know nothing of it: once streams are past that commit, `forget` removes both.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.load import CUSTOMER_PREFIX, LOYALTY, PRELOADED_AT_MS
from benchmarks.trial import say
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import deltalog
from customer_activity.lake.checksums import write_checksum
from customer_activity.lake.datafiles import DataFile, FileWriter
from customer_activity.settings import Settings

Numbers = npt.NDArray[np.int64]

CHUNK_ROWS = 1_000_000  # of a file
WRITE_ROWS = 65_536  # a row group
WRITERS = 2
FIRST_AT_US = 1_600_000_000_000_000
STEP_US = 1_000  # between two purchases
PRICES = 10_000  # cents: purchase i costs i % PRICES + 1
PRODUCTS = 99_991
PARTITIONS = 4
OF_CUSTOMERS = (Table.PROFILE_CHANGES, Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY_CHANGES, Table.ACTIVITY)
HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)


class Held(NamedTuple):
    """What the tables hold.

    Attributes:
        ids: purchases.
        customers: with a profile each; as many purchases are each one's.
        currency: of all.
    """

    ids: int
    customers: int
    currency: str = "EUR"


def make(settings: Settings, held: Held) -> dict[str, Any]:
    """Fill silver and gold of a lake whose streams have read all that is there; return what that took.

    Raises:
        ValueError: the purchases are not as many for each customer.
    """
    if held.ids % held.customers:
        raise ValueError(f"{held.ids:,} purchases cannot be as many for each of {held.customers:,} customers")
    started = time.monotonic()
    size = 0
    with ProcessPoolExecutor(WRITERS, get_context("spawn")) as pool:
        for table in (Table.PURCHASES, *OF_CUSTOMERS):
            rows = held.ids if table is Table.PURCHASES else held.customers
            firsts = range(0, rows, CHUNK_ROWS)
            files = list(pool.map(partial(_write, settings.lake, held, table, rows), firsts))
            _commit(settings.lake, table, files)
            size += sum(file.size for file in files)
            say(f"  {table.label}: {rows:,} rows in {len(files)} files")
    return {"seconds": round(time.monotonic() - started, 1), "table_bytes": size}


def forget(settings: Settings) -> None:
    """Remove what streams know of the past beside the tables: it is made again from these."""
    for state in (settings.index_dir, Path(settings.lake, "_state")):
        shutil.rmtree(state, ignore_errors=True)


def _write(lake: str, held: Held, table: Table, rows: int, first: int) -> DataFile:
    writer = FileWriter(lake, table)
    last = min(rows, first + CHUNK_ROWS)
    for begin in range(first, last, WRITE_ROWS):
        writer.write(rows_of(held, table, np.arange(begin, min(last, begin + WRITE_ROWS))))
    file = writer.close()
    if file is None:
        raise AssertionError(f"{table.label}: no row from {first} on")
    return file


def _commit(lake: str, table: Table, files: list[DataFile]) -> None:
    """Add files to a table as a compaction does."""
    now = int(time.time() * 1000)
    version = deltalog.newest_version(lake, table) + 1
    adds = [
        {
            "path": file.path,
            "partitionValues": {},
            "size": file.size,
            "modificationTime": now,
            "dataChange": False,
            "stats": file.stats,
        }
        for file in files
    ]
    actions = [{"commitInfo": {"timestamp": now, "operation": "OPTIMIZE"}}, *({"add": add} for add in adds)]
    place = Path(table_path(lake, table))
    (place / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    write_checksum(str(place), version)


def rows_of(held: Held, table: Table, numbers: Numbers) -> pa.Table:
    """Return rows of a table: those of some purchases, or of some customers, by number."""
    columns = dict(_of_purchases(held, numbers) if table is Table.PURCHASES else _of_customers(held, numbers))
    schema = arrow_schema(table)
    columns["trace_context"] = pa.nulls(len(numbers))
    return pa.table([columns[name] for name in schema.names], schema.names).cast(schema)


def _of_purchases(held: Held, numbers: Numbers) -> Iterator[tuple[str, pa.Array]]:
    at = pa.array(FIRST_AT_US + numbers * STEP_US).cast(pa.timestamp("us", "UTC"))
    yield "purchase_id", purchase_ids(numbers)
    yield "customer_id", _numbered(CUSTOMER_PREFIX, numbers % held.customers, 8)
    yield "product_id", _numbered(b"P-", numbers % PRODUCTS, 5)
    yield "amount", _amounts(numbers % PRICES + 1)
    yield "currency", _constant(held.currency, numbers)
    yield "occurred_at", at
    yield "risk_score", pa.nulls(len(numbers), pa.int64())
    yield from _places(numbers, at)


def _of_customers(held: Held, numbers: Numbers) -> Iterator[tuple[str, pa.Array]]:
    each = held.ids // held.customers
    cents = sum(((numbers + held.customers * k) % PRICES + 1 for k in range(each)), np.zeros_like(numbers))
    profiled = pa.array(np.full(len(numbers), PRELOADED_AT_MS)).cast(pa.timestamp("ms", "UTC"))
    first, last = (
        pa.array(FIRST_AT_US + (numbers + held.customers * k) * STEP_US).cast(pa.timestamp("us", "UTC"))
        for k in (0, each - 1)
    )
    texts = pa.array(numbers).cast(pa.string())
    yield "customer_id", _numbered(CUSTOMER_PREFIX, numbers, 8)
    yield "name", _joined("Customer ", texts)
    yield "email", _joined("customer-", texts, "@example.com")
    house = pa.array(numbers % 199 + 1).cast(pa.string())
    yield "address", _joined("", house, " Orchard Street, flat 0, Kingsmere")
    yield "loyalty_status", pa.array([text.decode() for text in LOYALTY]).take(pa.array(numbers % len(LOYALTY)))
    yield "updated_at", profiled
    yield "profile_updated_at", profiled
    yield from _places(numbers, profiled)
    yield "is_tombstone", _constant(False, numbers)
    yield "purchase_count", pa.array(np.full(len(numbers), each))
    yield "total_amount", _amounts(cents)
    yield "currency", _constant(held.currency, numbers)
    yield "first_purchase_at", first
    yield "last_purchase_at", last
    yield "last_kafka_timestamp", last
    yield "as_of", profiled
    yield "view_version", pa.array(np.full(len(numbers), PRELOADED_AT_MS))
    yield "existed", _constant(False, numbers)
    yield "is_gone", _constant(False, numbers)


def _places(numbers: Numbers, at: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    yield "partition", pa.array(numbers % PARTITIONS)
    yield "offset", pa.array(numbers // PARTITIONS)
    yield "kafka_timestamp", at
    yield "landing", pa.array(np.zeros_like(numbers))  # before all that has landed


def purchase_ids(numbers: Numbers) -> pa.Array:
    """Return ids in no order, as UUIDs are: 32 hexadecimal digits, another one for each number."""
    halves = np.stack([_mixed(numbers.astype(np.uint64) * np.uint64(2) + np.uint64(half)) for half in (0, 1)], axis=1)
    return _fixed(HEX[halves.view(np.uint8).reshape(-1)].view(np.uint8), 32)


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Mix the bits of each number, one to one (splitmix64)."""
    mixed = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _numbered(prefix: bytes, numbers: Numbers, digits: int) -> pa.Array:
    """Return a prefix with numbers of so many digits."""
    places = 10 ** np.arange(digits - 1, -1, -1)
    width = len(prefix) + digits
    texts = np.empty((len(numbers), width), np.uint8)
    texts[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    texts[:, len(prefix) :] = numbers[:, None] // places % 10 + ord("0")
    return _fixed(texts.reshape(-1), width)


def _fixed(text: npt.NDArray[np.uint8], width: int) -> pa.Array:
    """Return texts of one width that stand side by side."""
    offsets = np.arange(0, len(text) + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(text))


def _amounts(cents: Numbers) -> pa.Array:
    """Return decimals, each its 16 bytes, the lowest first."""
    wide = np.stack([cents, np.zeros_like(cents)], axis=1)
    return pa.Array.from_buffers(pa.decimal128(18, 2), len(cents), [None, pa.py_buffer(wide)])


def _constant(value: object, numbers: Numbers) -> pa.Array:
    return pa.repeat(pa.scalar(value), len(numbers))


_join: Callable[..., pa.Array] = pc.binary_join_element_wise


def _joined(*texts: str | pa.Array) -> pa.Array:
    return _join(*(pa.scalar(text) if isinstance(text, str) else text for text in texts), "")
