"""The catalogue of products, all versions of it, in memory: read again when its table has moved on.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import PRODUCT_FIELDS, names
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.decisions import Numbers
from customer_activity.lake import deltalog
from customer_activity.streams.enrichment import as_of

NONE = 0  # the version of a catalogue that was never loaded


class Catalogue(NamedTuple):
    """All that was ever loaded.

    Attributes:
        lake: whose.
        read_at: the version of its table.
        changes: its rows, in the order of the catalogue's versions.
    """

    lake: str = ""
    read_at: int = -1
    changes: pa.Table = arrow_schema(Table.PRODUCTS).empty_table()

    @classmethod
    def of(cls, lake: str) -> Self:
        """Read it."""
        from deltalake import DeltaTable  # noqa: PLC0415 - executors read the files that they are told

        table, schema = DeltaTable(table_path(lake, Table.PRODUCTS)), arrow_schema(Table.PRODUCTS)
        rows = table.to_pyarrow_dataset().to_table(columns=schema.names).cast(schema)
        return cls(lake, table.version(), in_order(rows))

    def refreshed(self) -> Catalogue:
        """Return it as it is by now."""
        return self if deltalog.newest_version(self.lake, Table.PRODUCTS) == self.read_at else Catalogue.of(self.lake)

    @property
    def version(self) -> int:
        """The newest version of the catalogue."""
        return int(self.changes.column("version")[-1].as_py()) if self.changes.num_rows else NONE

    def known_at(self, versions: Numbers, products: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
        """Return what versions of the catalogue say of products, as columns of PRODUCT_FIELDS."""
        return known_at(versions, products, self.changes)


def in_order(changes: pa.Table) -> pa.Table:
    """Bring rows of the catalogue into the order of its versions."""
    return changes.sort_by("version").combine_chunks()


def known_at(versions: Numbers, products: pa.ChunkedArray, changes: pa.Table) -> dict[str, pa.ChunkedArray]:
    """Return what versions of the catalogue say of products, as columns of PRODUCT_FIELDS."""
    changed_at = np.asarray(changes.column("version").to_numpy(), np.int64)
    newest = as_of.newest_by(products, versions, changed=changes.column("product_id"), changed_at=changed_at)
    found = as_of.columns_at(changes, newest, [*names(PRODUCT_FIELDS), "version"], ended="is_gone")
    is_known = pc.is_valid(found.pop("version"))
    return as_of.or_unknown(found, is_known)
