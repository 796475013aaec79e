"""Which purchase records count. Pure steps, no IO.

The first record of a purchase id counts: the one counted before, or else the first in the order of records. A record is
known by its coordinates, so when a batch is repeated after its rows were appended, they are recognised as themselves
and judged as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.columns import PURCHASE_FIELDS, names
from customer_activity.lake.microbatch import ACCEPTED, DUPLICATE, QUARANTINED
from customer_activity.state.columns import plain, plain_sql

CONTENT = [column for column in PURCHASE_FIELDS if column.name != "purchase_id"]
COLUMNS = ("purchase_id", "partition", "offset", *names(CONTENT))
DIGEST_BYTES = 16
# Neither is in a text of the contract: none of a purchase's has control characters.
BETWEEN, NOTHING = "\x1f", "\x00"


Key = TypeVar("Key")


class First(NamedTuple):
    """The record of a purchase id that counts: where it was, and a digest of what it said."""

    partition: int
    offset: int
    content: object


def firsts(purchases: pa.Table | pa.RecordBatch) -> Iterator[tuple[str, First]]:
    """Return each row's purchase id, coordinates and content; columns as in COLUMNS."""
    ids, partitions, offsets = (purchases.column(name).to_pylist() for name in COLUMNS[:3])
    for purchase_id, partition, offset, content in zip(ids, partitions, offsets, contents(purchases), strict=True):
        yield purchase_id, First(partition, offset, sha256(content).digest()[:DIGEST_BYTES])


def contents(purchases: pa.Table | pa.RecordBatch) -> list[bytes]:
    """Return what each row says besides its id, as one text."""
    texts = (pc.fill_null(plain(purchases.column(column.name)).cast(pa.string()), NOTHING) for column in CONTENT)
    joined: list[bytes] = pc.binary_join_element_wise(*texts, BETWEEN).cast(pa.binary()).to_pylist()
    return joined


# The same in DuckDB's words: what the index is seeded with from the table.
_TEXTS = ", ".join(f"coalesce({plain_sql(column)}::VARCHAR, chr({ord(NOTHING)}))" for column in CONTENT)
CONTENT_SQL = f"unhex(left(sha256(concat_ws(chr({ord(BETWEEN)}), {_TEXTS})), {2 * DIGEST_BYTES}))"


def judge(records: Iterable[tuple[Key, First]], counted: Mapping[Key, First]) -> list[str]:
    """Judge records in their order: accepted, duplicate, or quarantined (other content).

    Args:
        records: purchase id, or what else tells two of them apart, and record.
        counted: by the same, the record that was counted before (others do no harm).
    """
    first_of = dict(counted)
    verdicts = []
    for purchase_id, record in records:
        first = first_of.setdefault(purchase_id, record)
        if first[:2] == record[:2]:
            verdicts.append(ACCEPTED)
        else:
            verdicts.append(DUPLICATE if first.content == record.content else QUARANTINED)
    return verdicts
