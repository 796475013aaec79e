"""What was decided for landings that no record tells: read from its table, extended, and looked up by landing.

A table of decisions is append-only: a row is for the landings after those of the row before, up to its own, and holds
what was in force for them.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.state.columns import UNNUMBERED

LANDING, DECIDED_AT = "landing", "decided_at"
OF_ROW = {LANDING, DECIDED_AT}  # all else is what it decides
BEFORE_ALL = UNNUMBERED - 1  # no landing comes before it

Numbers = npt.NDArray[np.int64]


def landings_of(rows: pa.Table | pa.RecordBatch) -> Numbers:
    """Return the landing of each row; those of before landings were numbered come first."""
    return np.asarray(pc.fill_null(rows.column(LANDING), UNNUMBERED).to_numpy(zero_copy_only=False), np.int64)


class Decisions(NamedTuple):
    """What was decided, in the order of landings.

    Attributes:
        table: where it is stored.
        rows: as the table has them, sorted by landing; of neighbours that decide alike the last one alone, since the
            table grows with every batch and what is in force changes seldom.
    """

    table: Table
    rows: pa.Table

    @classmethod
    def none(cls, table: Table) -> Self:
        """Return those of a table that has none."""
        return cls(table, arrow_schema(table).empty_table())

    @classmethod
    def stored(cls, lake: str, table: Table) -> Self:
        """Read what is stored.

        Texts stay as files have them, each once: with every landing they would come to more than there is memory.
        """
        from deltalake import DeltaTable  # noqa: PLC0415 - executors read none
        from pyarrow.dataset import ParquetReadOptions  # noqa: PLC0415 - likewise

        schema = arrow_schema(table)
        texts = {field.name for field in schema if pa.types.is_string(field.type)}
        options = ParquetReadOptions(dictionary_columns=texts)
        opened = DeltaTable(table_path(lake, table)).to_pyarrow_dataset(parquet_read_options=options)
        rows = opened.to_table(columns=schema.names).unify_dictionaries().sort_by(LANDING)
        return cls(table, rows.filter(_is_last(rows)).cast(schema))

    @property
    def last(self) -> Mapping[str, Any]:
        """The newest decision; empty where nothing is decided."""
        rows = self.rows.slice(max(0, self.rows.num_rows - 1)).to_pylist()
        return rows[0] if rows else {}

    @property
    def newest(self) -> int:
        """The newest landing that is decided."""
        return int(self.last.get(LANDING, BEFORE_ALL))

    def decide(self, landing: int, in_force: Mapping[str, Any]) -> pa.Table:
        """Return the row that decides for the landings up to one, after all that are decided."""
        row = {LANDING: landing, DECIDED_AT: datetime.now(UTC), **in_force}
        return pa.Table.from_pylist([row], arrow_schema(self.table))

    def with_rows(self, rows: pa.Table) -> Self:
        """Return it with what was decided since."""
        rows = pa.concat_tables([self.rows, rows])
        return self._replace(rows=rows.filter(_is_last(rows)))

    def at(self, landings: Numbers) -> pa.Table:
        """Return for each landing the row that decides for it; all of them must be decided."""
        return self.rows.take(pa.array(np.searchsorted(self.rows.column(LANDING).to_numpy(), landings)))


def _is_last(rows: pa.Table) -> pa.Array:
    """Say of each row, sorted by landing, whether it is the last of neighbours that decide alike."""
    is_last = np.ones(rows.num_rows, bool)
    is_last[:-1] = False
    for name in set(rows.column_names) - OF_ROW:
        values = rows.column(name)
        if pa.types.is_dictionary(values.type):
            values = pa.chunked_array([chunk.indices for chunk in values.chunks], pa.int32())  # of one dictionary
        is_last[:-1] |= pc.fill_null(pc.not_equal(values[:-1], values[1:]), fill_value=True).to_numpy()
    return pa.array(is_last)
