"""Which profile record is current. Pure steps, no IO.

Records are in the order of (landing, partition, offset). A tombstone ends the life of a profile; the updates after it
start a new one. Within a life the greatest `updated_at` wins, and of equal ones the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.columns import PROFILE_FIELDS, names
from customer_activity.lake.microbatch import ACCEPTED, DUPLICATE, STALE
from customer_activity.state import profile_records
from customer_activity.state.profile_records import Profile

AT_A_TIME = 50_000  # records that are objects of Python's


def judge(updates: Iterable[Profile], current: Mapping[str, Profile]) -> tuple[list[str], list[int]]:
    """Judge records in their order: accepted, duplicate, or stale.

    Args:
        updates: profile records, tombstones included.
        current: the customers' current profiles (others do no harm).

    Returns:
        The verdicts; and the numbers of the records that change a customer's profile, in their order: the one by which
        it begins, is replaced or ends, and the one by which the profile of before has ended when another began since.
        A profile that was not there before and is not there after has none.
    """
    profiles = dict(current)
    verdicts = []
    changed: dict[str, int] = {}
    ended: dict[str, int] = {}
    for number, update in enumerate(updates):
        customer = update.customer_id
        held = profiles.get(customer)
        if update.is_tombstone:
            profiles.pop(customer, None)
            changed[customer] = ended[customer] = number
            verdicts.append(ACCEPTED)
        elif held is not None and _is_older(update, held):
            verdicts.append(STALE)
        elif held is not None and update.content == held.content:
            verdicts.append(DUPLICATE)
        else:
            profiles[customer] = update
            changed[customer] = number
            verdicts.append(ACCEPTED)
    last = {number for customer, number in changed.items() if customer in profiles or customer in current}
    return verdicts, sorted(last.union(number for customer, number in ended.items() if customer in current))


def _is_older(update: Profile, held: Profile) -> bool:
    return (update.updated_at or 0) < (held.updated_at or 0)


def each(rows: pa.Table) -> Iterator[Profile]:
    """Yield a table's records, converted to Python objects AT_A_TIME at a time."""
    slices = (rows.slice(start, AT_A_TIME) for start in range(0, rows.num_rows, AT_A_TIME))
    return chain.from_iterable(map(profile_records.records, slices))


def by_customers(rows: pa.Table) -> Iterator[pa.Table]:
    """Split records by customer into tables of about AT_A_TIME rows, each in the given order.

    A customer's records stay together, since only all of them tell what a part changes: a profile that is created and
    deleted in the same part has no row. So a hot key makes its table larger.
    """
    tables = -(-rows.num_rows // AT_A_TIME)
    if tables <= 1:
        yield rows
        return
    customers = rows.column("customer_id").combine_chunks().dictionary_encode()
    table_of = customers.indices.to_numpy() % tables
    for number in range(tables):
        yield rows.filter(pa.array(table_of == number))


REPEATS = "repeats"  # of a record: how many follow it that say the same
NO = pa.scalar(value=False)
_RUN = "run"  # the same for records of a partition between which there are no others than those at hand
_SAME = (*names(PROFILE_FIELDS), "landing", "partition", _RUN)
_PLACE = [("landing", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


def without_repeats(rows: pa.Table) -> pa.Table:
    """Leave out updates that say what the customer's record right before them says, and count them in REPEATS.

    Such an update is a duplicate, or as stale as the one before it. A producer that loops sends millions, which take
    next to nothing in a file and would take gigabytes here. Only records are compared between which all offsets are
    at hand: what is elsewhere may lie between others.

    Args:
        rows: records, in any order.

    Returns:
        The others, with room for long texts.
    """
    rows = profile_records.with_room(rows)
    if not rows.num_rows:
        return rows.append_column(REPEATS, pa.array([], pa.int64()))
    rows = rows.take(pc.sort_indices(rows, _PLACE))
    run = rows.column("offset").to_numpy() - np.arange(rows.num_rows)
    rows = rows.append_column(_RUN, pa.array(run))
    rows = rows.take(pc.sort_indices(rows, [("customer_id", "ascending"), *_PLACE]))
    is_repeat = np.ones(rows.num_rows - 1, bool)
    for name in _SAME:
        is_repeat &= _equal(rows.column(name))
    is_update = pc.invert(rows.column("is_tombstone")).to_numpy()  # a tombstone is accepted, however many there are
    first = np.flatnonzero(np.append(True, ~(is_repeat & is_update[1:])))
    repeats = np.diff(np.append(first, rows.num_rows)) - 1
    return rows.drop_columns(_RUN).take(pa.array(first)).append_column(REPEATS, pa.array(repeats, pa.int64()))


def _equal(values: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """Return of each value but the first whether it is the one before it; nulls are equal."""
    before, after = values.slice(0, len(values) - 1), values.slice(1)
    both_null = pc.and_(pc.is_null(before), pc.is_null(after))
    found: npt.NDArray[np.bool_] = pc.or_kleene(both_null, pc.equal(before, after)).fill_null(NO).to_numpy()
    return found


def counted(verdicts: Sequence[str], repeats: Sequence[int]) -> Counter[str]:
    """Count verdicts, those on repeats included: each is as stale as the record before it, or a duplicate."""
    found = Counter(verdicts)
    for verdict, number in zip(verdicts, repeats, strict=True):
        if number:
            found[STALE if verdict == STALE else DUPLICATE] += number
    return found
