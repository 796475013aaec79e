"""Profiles as they were known: every record by which a customer's profile began, was replaced or ended.

silver.profile_changes does not tell: of the changes that one batch of silver had it keeps the last, so what it has
depends on how batches were cut. Bronze has every record, and all of a landing's profiles before its purchases, so what
was known at a landing is the same whenever it is asked.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import OF_PROFILE, names
from customer_activity.engine.decisions import Numbers, landings_of
from customer_activity.lake.microbatch import ACCEPTED
from customer_activity.state import profile_records
from customer_activity.state.profile_records import Profile
from customer_activity.streams.enrichment import as_of
from customer_activity.streams.silver.order import in_order
from customer_activity.streams.silver.profiles import judge

if TYPE_CHECKING:
    from pyarrow import dataset

COLUMNS = profile_records.COLUMNS
MOST_RECORDS, MOST_BYTES = 250_000, 128 << 20  # that a small part has the driver hold
# What a column of an enriched purchase is called in the record.
NAMES = {name: name.removeprefix("profile_") for name in names(OF_PROFILE)}


def records_of(lake: str, customers: pa.ChunkedArray) -> pa.Table:
    """Return the profile records of some customers, in no order."""
    return _theirs(lake, customers).to_table()


def few_records_of(lake: str, customers: pa.ChunkedArray) -> pa.Table | None:
    """Return the same; None where they are many, of which no more are read than tell it."""
    scanner = _theirs(lake, customers)
    found: list[pa.RecordBatch] = []
    records = size = 0
    for batch in scanner.to_batches():
        found.append(batch)
        records, size = records + batch.num_rows, size + batch.nbytes
        if are_many(records, size):
            return None
    return pa.Table.from_batches(found, scanner.projected_schema)


def are_many(records: int, size: int) -> bool:
    """Whether they are more than a small part has the driver hold."""
    return records > MOST_RECORDS or size > MOST_BYTES


def _theirs(lake: str, customers: pa.ChunkedArray) -> dataset.Scanner:
    from deltalake import DeltaTable  # noqa: PLC0415 - executors read the files that they are told

    records = DeltaTable(table_path(lake, Table.PROFILE_EVENTS)).to_pyarrow_dataset()
    is_theirs = pc.field("customer_id").isin(pc.unique(customers))
    return records.scanner(columns=COLUMNS, filter=is_theirs)


def changes_among(records: pa.Table) -> pa.Table:
    """Return those records that change a profile, in their order: neither a stale one nor a duplicate does."""
    ordered = in_order(records)
    # The only record of a customer does, and most customers have one: to judge a record takes longer than all else.
    numbers = np.flatnonzero(_has_others(ordered.column("customer_id")))
    verdicts, _ = judge(profile_records.records(ordered.take(pa.array(numbers))), {})
    is_change = np.ones(ordered.num_rows, bool)
    is_change[numbers] = [verdict == ACCEPTED for verdict in verdicts]
    return ordered.filter(pa.array(is_change))


def needless(records: Iterable[Profile]) -> Iterator[Profile]:
    """Yield those of a customer's records, given in their order, without which the others tell the same.

    What is asked for is the profile as a landing has left it: the last change of that landing. That it is one is told
    by the change right before it, and by the last tombstone: an update may say what a former one does, or be older than
    those of a life that has ended. All other changes of the landing, and whatever is stale or a duplicate, may go.
    """
    current: dict[str, Profile] = {}
    kept: list[Profile] = []  # of the newest landing: its last tombstone, and the last two updates since
    for record in records:
        verdicts, _ = judge([record], current)
        if verdicts != [ACCEPTED]:
            yield record
            continue
        current = {} if record.is_tombstone else {record.customer_id: record}
        if kept and kept[-1].landing != record.landing:
            kept = []
        if record.is_tombstone:
            yield from kept
            kept = []
        elif len(kept) > 1 and not kept[-2].is_tombstone:
            yield kept.pop(-2)
        kept.append(record)


def _has_others(keys: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Whether a key is there more than once."""
    codes = np.asarray(pc.index_in(keys, value_set=pc.unique(keys)).to_numpy(), np.int64)
    return np.bincount(codes)[codes] > 1 if len(codes) else np.zeros(0, bool)


def known_at(landings: Numbers, customers: pa.ChunkedArray, changes: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return what was known of customers' profiles when something landed, as columns of OF_PROFILE."""
    newest = as_of.newest_by(
        customers, landings, changed=changes.column("customer_id"), changed_at=landings_of(changes)
    )
    found = as_of.columns_at(changes, newest, NAMES.values(), ended="is_tombstone")
    is_known = pc.is_valid(found["partition"])
    return as_of.or_unknown({name: found[said] for name, said in NAMES.items()}, is_known)
