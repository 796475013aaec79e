"""What was read before of some purchases and payments, looked up by their keys: in tables, or in the rows of a lane.

Of tables, statistics tell which files may have a key or an event time; the others are not opened.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import OWED, UTC_MICROS
from customer_activity.contracts.tables import arrow_schema
from customer_activity.streams.payments.matching import PAYMENT, PURCHASE

# What a payment of silver.paid_purchases has agreed in with its purchase is there once.
_OWED_SCHEMA = pa.schema(OWED)

# Returns the rows of a table, some columns of them, for which a condition holds.
Read = Callable[[Table, Sequence[str], pc.Expression], pa.Table]


@dataclass(frozen=True)
class Past:
    """The tables of payments, and the purchases up to a landing.

    Attributes:
        read: returns rows of theirs.
        landed_to: purchases of later landings are not read yet.
    """

    read: Read
    landed_to: int

    @classmethod
    def in_tables(cls, lake: str, landed_to: int) -> Self:
        """Return what the tables have."""
        return cls(partial(_of_tables, lake), landed_to)

    @classmethod
    def among(cls, rows: Mapping[Table, pa.Table], landed_to: int) -> Self:
        """Return what some rows of the tables have, all those among them that will be looked up."""
        return cls(partial(_of_rows, rows), landed_to)

    def unmatched(self, ids: pa.Array) -> pa.Table:
        """Return the rows of payments of these purchases that were unmatched."""
        return self._of(Table.UNMATCHED_PAYMENTS, arrow_schema(Table.UNMATCHED_PAYMENTS).names, ids)

    def paid(self, purchases: pa.Table) -> pa.Table:
        """Return those of some purchases that are paid."""
        return self._among(Table.PAID, purchases)

    def unpaid(self, purchases: pa.Table) -> pa.Table:
        """Return those of some purchases that are unpaid."""
        return self._among(Table.UNPAID, purchases)

    def _among(self, table: Table, purchases: pa.Table) -> pa.Table:
        within = _between(purchases.column("occurred_at"))
        return self._of(table, arrow_schema(table).names, purchases.column("purchase_id"), within)

    def purchases(self, ids: pa.Array, *, around: pa.ChunkedArray, within: int) -> pa.Table:
        """Return the purchases with these ids: first those of about the time of their payments, then all others."""
        near = _between(around, before=within)
        found = self._of(Table.TIMED_PURCHASES, PURCHASE, ids, self._is_read & near)
        missing = ids.filter(pc.invert(pc.is_in(ids, found.column("purchase_id").combine_chunks())))
        older = self._of(Table.TIMED_PURCHASES, PURCHASE, missing, self._is_read & ~near)
        return pa.concat_tables([found, older])

    def purchases_between(self, first: int | None, last: int | None) -> pa.Table:
        """Return the purchases after one event time (None: from the beginning) up to another one (None: none)."""
        if last is None or first == last:
            return _OWED_SCHEMA.empty_table()
        return self._read(Table.TIMED_PURCHASES, PURCHASE, self.are_between(first, last))

    def are_between(self, first: int | None, last: int | None) -> pc.Expression:
        """Return the condition for it."""
        if last is None:
            return pc.field("occurred_at").is_null()  # of no purchase
        is_wanted = self._is_read & (pc.field("occurred_at") <= pa.scalar(last, pa.int64()).cast(UTC_MICROS))
        if first is not None:
            is_wanted &= pc.field("occurred_at") > pa.scalar(first, pa.int64()).cast(UTC_MICROS)
        return is_wanted

    @staticmethod
    def as_payments(paid: pa.Table) -> pa.Table:
        """Return the payments that count, as they are matched; who paid is who bought, where the payment says."""
        return paid.select(PAYMENT)

    @property
    def _is_read(self) -> pc.Expression:
        return pc.field("landing").is_null() | (pc.field("landing") <= self.landed_to)

    def _of(
        self, table: Table, columns: list[str], ids: pa.Array | pa.ChunkedArray, but: pc.Expression | None = None
    ) -> pa.Table:
        if not len(ids):
            return self._read(table, columns, None)
        ends = pc.min_max(ids)
        key = pc.field("purchase_id")
        # The range first: it leads to files, a list of keys does not.
        is_wanted = (key >= ends["min"]) & (key <= ends["max"]) & key.isin(pa.array(ids.to_pylist(), pa.string()))
        return self._read(table, columns, is_wanted if but is None else but & is_wanted)

    def _read(self, table: Table, columns: list[str], is_wanted: pc.Expression | None) -> pa.Table:
        schema = arrow_schema(table)
        wanted = pa.schema([schema.field(name) for name in columns])
        if is_wanted is None:
            return wanted.empty_table()
        return self.read(table, columns, is_wanted).cast(wanted)


def _of_tables(lake: str, table: Table, columns: Sequence[str], is_wanted: pc.Expression) -> pa.Table:
    from deltalake import DeltaTable  # noqa: PLC0415 - executors read none

    rows = DeltaTable(table_path(lake, table)).to_pyarrow_dataset(schema=arrow_schema(table))
    return rows.to_table(columns=list(columns), filter=is_wanted)


def _of_rows(
    rows: Mapping[Table, pa.Table], table: Table, columns: Sequence[str], is_wanted: pc.Expression
) -> pa.Table:
    return rows[table].filter(is_wanted).select(columns)


def _between(times: pa.ChunkedArray, before: int = 0) -> pc.Expression:
    """Return the condition that an event time is among others, or so many microseconds before the first."""
    ends = pc.min_max(times.cast(pa.int64()))
    first, last = ends["min"].as_py(), ends["max"].as_py()
    if first is None:
        return pc.field("occurred_at").is_null()  # of no purchase
    at = pc.field("occurred_at")
    return (at >= pa.scalar(first - before, pa.int64()).cast(UTC_MICROS)) & (
        at <= pa.scalar(last, pa.int64()).cast(UTC_MICROS)
    )
