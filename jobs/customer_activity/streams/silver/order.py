"""The order of records. Executors import this module, too."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

IN_ORDER = [("landing", "ascending", "at_start"), ("partition", "ascending"), ("offset", "ascending")]


def in_order(rows: pa.Table) -> pa.Table:
    """Sort records by (landing, partition, offset); those from before landings were numbered come first."""
    return rows.take(pc.sort_indices(rows, IN_ORDER))
