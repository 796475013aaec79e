"""What a batch counts while it works: for metrics alone, nothing is decided by it.

Rows are counted where they are read and written anyway. How fresh rows are is told by their `as_of`, the Kafka
timestamp of the newest input record that a row reflects, at the moment at which others can see the row.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# Upper bounds, closer where the promises are: 0.7 s and 1 s to the topic, a few seconds to gold.
FRESHNESS_SECONDS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 30.0, 60.0, 300.0, 1800.0)
MICROS_A_SECOND = 1_000_000


def _no_rows() -> npt.NDArray[np.int64]:
    return np.zeros(len(FRESHNESS_SECONDS) + 1, np.int64)


@dataclass
class Tally:
    """Counts of one batch; its parts share it.

    Attributes:
        read: rows or records by source: a topic's name, or a table's label.
        written: rows or records by target, likewise.
        quarantined: records by reason.
        transactions: Kafka transactions that were committed.
        fresh: rows that became visible, by the bucket of FRESHNESS_SECONDS that their age is in; the last one has those
            that are older.
        fresh_seconds: their ages, added up.
    """

    read: Counter[str] = field(default_factory=Counter)
    written: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    transactions: int = 0
    fresh: npt.NDArray[np.int64] = field(default_factory=_no_rows)
    fresh_seconds: float = 0.0

    def became_visible(self, as_of: pa.ChunkedArray | pa.Array, now: float | None = None) -> None:
        """Count rows by how old the newest record is that each reflects; rows without one are left out.

        A clock that goes wrong makes no row newer than now.

        Args:
            as_of: Kafka timestamps of records, one a row.
            now: seconds since the epoch; the clock's when not given.
        """
        at = pc.drop_null(as_of).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        if not len(at):
            return
        now = time.time() if now is None else now
        ages = np.maximum(0.0, now - np.asarray(at) / MICROS_A_SECOND)
        self.fresh += np.bincount(np.searchsorted(FRESHNESS_SECONDS, ages), minlength=len(self.fresh))
        self.fresh_seconds += float(ages.sum())
