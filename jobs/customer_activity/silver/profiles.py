"""Which profile record is current. Pure steps, no IO.

A customer's records are in one partition, so their offsets are their order. A tombstone ends the life of a profile;
the updates after it start a new one. Within a life the greatest (updated_at, offset) wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from customer_activity.microbatch import ACCEPTED, DUPLICATE, STALE

MICROS = pa.timestamp("us", tz="UTC")


class Profile(NamedTuple):
    """One profile record; times in microseconds since 1970, UTC."""

    customer_id: str
    name: str | None
    email: str | None
    address: str | None
    loyalty_status: str | None
    updated_at: int | None
    partition: int
    offset: int
    kafka_timestamp: int
    is_tombstone: bool = False

    @property
    def content(self) -> tuple[object, ...]:
        """What it says, apart from where and when it was said."""
        return self[:6]


def records(rows: pa.Table | pa.RecordBatch) -> Iterator[Profile]:
    """Return a table's rows as profile records; columns are taken by name."""
    columns = []
    for name in Profile._fields:
        column = rows.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(MICROS).cast(pa.int64())
        columns.append(column.to_pylist())
    return map(Profile._make, zip(*columns, strict=True))


def judge(updates: Iterable[Profile], current: Mapping[str, Profile]) -> tuple[list[str], dict[str, int]]:
    """Judge records in the order of their offsets: accepted, duplicate, or stale.

    Args:
        updates: profile records, tombstones included.
        current: the customers' current profiles (others do no harm).

    Returns:
        The verdicts; and by customer whose profile begins, is replaced or ends, the number of the record that did it.
        A profile that was not there before and is not there after has none.
    """
    profiles = dict(current)
    verdicts = []
    changed: dict[str, int] = {}
    for number, update in enumerate(updates):
        customer = update.customer_id
        held = profiles.get(customer)
        if update.is_tombstone:
            profiles.pop(customer, None)
            changed[customer] = number
            verdicts.append(ACCEPTED)
        elif held is not None and _is_older(update, held):
            verdicts.append(STALE)
        elif held is not None and update.content == held.content:
            verdicts.append(DUPLICATE)
        else:
            profiles[customer] = update
            changed[customer] = number
            verdicts.append(ACCEPTED)
    return verdicts, {c: number for c, number in changed.items() if c in profiles or c in current}


def _is_older(update: Profile, held: Profile) -> bool:
    return (update.updated_at or 0) < (held.updated_at or 0)
