"""What was in force when records landed: decided once, and stored before anything follows from it.

What comes from outside of the records (the version of a catalogue, rules in a file) is not told by them, so a batch
that is repeated, or a table that is computed again, might follow another one. A table of decisions is append-only: a
row is for the landings after those of the row before, up to its own, and holds what was in force for them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.state.columns import UNNUMBERED

LANDING, DECIDED_AT = "landing", "decided_at"
BEFORE_ALL = UNNUMBERED - 1  # no landing comes before it

Numbers = npt.NDArray[np.int64]


def landings_of(rows: pa.Table | pa.RecordBatch) -> Numbers:
    """Return the landing of each row; those of before landings were numbered come first."""
    return np.asarray(pc.fill_null(rows.column(LANDING), UNNUMBERED).to_numpy(zero_copy_only=False), np.int64)


def last_landing(rows: pa.RecordBatch) -> int:
    """Return the newest landing of some rows."""
    return int(landings_of(rows).max(initial=BEFORE_ALL))


class Decisions(NamedTuple):
    """What was decided, in the order of landings.

    Attributes:
        table: where it is stored.
        rows: as the table has them, sorted by landing; None: there are none yet.
    """

    table: Table
    rows: pa.Table | None = None

    @classmethod
    def stored(cls, lake: str, table: Table) -> Self:
        """Read what is stored."""
        schema = arrow_schema(table)
        rows = DeltaTable(table_path(lake, table)).to_pyarrow_dataset().to_table(columns=schema.names)
        return cls(table, rows.cast(schema).sort_by(LANDING))

    def undecided(self, newest: int, **in_force: Any) -> pa.Table:
        """Return the row that decides for the landings up to the newest one; none where they are decided."""
        schema = arrow_schema(self.table)
        if newest <= self.newest:
            return schema.empty_table()
        return pa.Table.from_pylist([{LANDING: newest, DECIDED_AT: datetime.now(UTC), **in_force}], schema)

    def with_rows(self, rows: pa.Table) -> Self:
        """Return it with what was decided since."""
        return self._replace(rows=pa.concat_tables([self._rows, rows]))

    def at(self, landings: Numbers) -> pa.Table:
        """Return for each landing the row that decides for it; all of them must be decided."""
        return self._rows.take(pa.array(np.searchsorted(self._rows.column(LANDING).to_numpy(), landings)))

    @property
    def newest(self) -> int:
        """The newest landing that is decided."""
        return int(self._rows.column(LANDING)[-1].as_py()) if self._rows.num_rows else BEFORE_ALL

    @property
    def _rows(self) -> pa.Table:
        return arrow_schema(self.table).empty_table() if self.rows is None else self.rows
