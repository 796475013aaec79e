"""The order of records that come back: which of them were overtaken, and which landing each of the others gets.

Records are ordered by (landing, partition, offset). Those that one landing refused come back in one landing, and those
of a later one in a later one: in a single landing, a record on a lower partition would come before one that was refused
long before it, and count in its place.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Place = tuple[Any, ...]  # as in ORDER
ORDER = ["landing", "partition", "offset"]
NUMBER = "lands_in"  # the column of the landings that records get
BEFORE_NUMBERS = -1  # the landing of what was refused before landings were numbered


def numbered(records: pa.Table, first: int) -> pa.Table:
    """Add the landing that each record gets, from the `first` on: one for each landing that refused some of them."""
    refused_in = pc.fill_null(records.column("landing"), BEFORE_NUMBERS)
    landings = pc.unique(refused_in).sort()
    numbers = pc.add(pc.index_in(refused_in, landings).cast(pa.int64()), first)
    return records.append_column(NUMBER, numbers)


def not_overtaken(records: pa.Table, landed: pa.Table, key: str) -> pa.Array:
    """Whether nothing of the same key has landed since each record was refused, or it was brought back before."""
    places: dict[str, list[Place]] = {}
    for name, *place in rows(landed, [key, *ORDER]):
        places.setdefault(name, []).append(tuple(place))

    def may_enter(name: str, place: Place) -> bool:
        others = places.get(name, [])
        # One that an interrupted replay has appended leaves quarantine, whatever has landed after it.
        return any(other[1:] == place[1:] for other in others) or not any(_is_later(other, place) for other in others)

    return pa.array([may_enter(name, tuple(place)) for name, *place in rows(records, [key, *ORDER])], pa.bool_())


def _is_later(other: Place, place: Place) -> bool:
    """Whether one record landed after another one was refused.

    Without numbers it is not known which of two partitions was first.
    """
    (landing, *at), (refused_in, *refused_at) = other, place
    if landing is None and refused_in is None:
        return bool(at[0] != refused_at[0] or at[1] > refused_at[1])
    return (-1 if landing is None else landing, *at) > (-1 if refused_in is None else refused_in, *refused_at)


def rows(table: pa.Table, columns: list[str]) -> list[tuple[Any, ...]]:
    """Return some columns of a table, row by row."""
    return list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
