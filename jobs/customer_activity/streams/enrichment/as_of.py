"""What was known of a key at a moment: the newest change of it by then. Pure steps, no IO."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

UNKNOWN = "UNKNOWN"

Numbers = npt.NDArray[np.int64]


def newest_by(keys: pa.ChunkedArray, moments: Numbers, *, changed: pa.ChunkedArray, changed_at: Numbers) -> pa.Array:
    """Return for each key the number of its newest change at a moment; null where there was none by then.

    Args:
        keys: that are asked for; null is none.
        moments: one a key.
        changed: the key of each change, in the order of changes.
        changed_at: when; of the changes of one moment the last one counts.
    """
    known, times = pc.unique(changed), np.unique(changed_at)
    width = len(times) + 1
    held = _codes(changed, known) * width + np.searchsorted(times, changed_at) + 1
    order = np.argsort(held, kind="stable")
    codes = _codes(keys, known)
    wanted = codes * width + np.searchsorted(times, moments, side="right")
    found = np.searchsorted(held[order], wanted, side="right") - 1
    # What is found is the newest of this key, or else the last of a key before it.
    is_missing = (codes < 0) | (found < 0)
    found[is_missing] = 0
    is_missing |= (held[order][found] // width != codes) if len(order) else True
    return pa.array(order[found] if len(order) else found, pa.int64(), mask=is_missing)


def _codes(keys: pa.ChunkedArray, known: pa.Array) -> Numbers:
    return np.asarray(pc.fill_null(pc.index_in(keys, value_set=known), -1).to_numpy(), np.int64)


def columns_at(changes: pa.Table, numbers: pa.Array, names: Iterable[str], ended: str) -> dict[str, pa.ChunkedArray]:
    """Return columns of the changes with these numbers; null where there is none, or where a change ended its key."""
    is_over = changes.column(ended).take(numbers)
    numbers = pc.if_else(pc.fill_null(is_over, fill_value=True), pa.scalar(None, pa.int64()), numbers)
    return {name: changes.column(name).take(numbers) for name in names}


def or_unknown(columns: dict[str, pa.ChunkedArray], is_known: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Say UNKNOWN in the texts of rows of which nothing is known; what is known to be missing stays null."""
    return {
        name: pc.if_else(is_known, column, UNKNOWN) if pa.types.is_string(column.type) else column
        for name, column in columns.items()
    }
