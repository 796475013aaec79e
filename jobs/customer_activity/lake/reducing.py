"""Reduce changes to the newest of each key.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake.datafiles import in_parts

PART_ROWS = 500_000  # reduced at a time

Reduce = Callable[[Iterable[pa.RecordBatch]], pa.Table]


def newest(source: Table, columns: Sequence[str], key: Sequence[str], order: Sequence[str]) -> Reduce:
    """Return what reduces the changes of `source` to the newest of each key, by columns whose values are in order.

    The result has `columns`, those of `key` and `order` among them; reduced once more it stays as it is.
    """
    return partial(_newest, source, columns, key, order)  # which Spark can bring to its executors


def _newest(
    source: Table, columns: Sequence[str], key: Sequence[str], order: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> pa.Table:
    schema = pa.schema([arrow_schema(source).field(name) for name in columns])
    parts = [newest_of(part, key, order) for part in in_parts(batches, PART_ROWS)]
    return newest_of(pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)]), key, order)


def newest_of(changes: pa.Table, key: Sequence[str], order: Sequence[str]) -> pa.Table:
    """Reduce changes to the newest of each key, which stay in their order.

    A null of `order`, which are numbers, is before everything.
    """
    # The order of keys first, and of whole rows those that stay: they are most of the bytes. They are filtered, chunk
    # by chunk: to take them would bring all texts of a column together, and Arrow's `string` holds 2 GB.
    places = pa.table({name: pc.fill_null(changes.column(name), -1) for name in order})
    ordered = pc.sort_indices(places, [(name, "ascending") for name in order])
    keys = changes.select(key).take(ordered)
    keys = keys.append_column("number", pa.array(range(keys.num_rows), pa.int64()))
    last = keys.group_by(list(key)).aggregate([("number", "max")]).column("number_max")
    stays = np.zeros(changes.num_rows, bool)
    stays[ordered.take(last).to_numpy()] = True
    return changes.filter(pa.array(stays))
