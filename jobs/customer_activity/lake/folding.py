"""Fold reduced changes into current rows: what becomes of a row that is there, declared once and said in two ways.

A column of a row that changes is replaced, or it is an aggregate to which more is added. delta-rs is told so in SQL,
and merges in the driver; executors, which hold all rows of some keys, do the same in Arrow. What a MERGE does is the
rule: a null key matches nothing, a sum with a null is null, and so is one that its column cannot hold; a null is no
least and no greatest value.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

DIGITS = 38  # that Delta's decimals have at most
CHANGE_TYPE = pa.field("_change_type", pa.string())  # of a row in Delta's change data feed
INSERT, BEFORE, AFTER, DELETE = "insert", "update_preimage", "update_postimage", "delete"

Numbers = npt.NDArray[np.int64]


class Aggregate(StrEnum):
    """How a column's value joins the one that is there."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


Aggregates = Mapping[str, Aggregate]


class Folded(NamedTuple):
    """What changes come to.

    Attributes:
        rows: all rows that there are then, in no order.
        differing: the rows that differ, as the change data feed has them: with their change's type.
        changes: how many there were, one a key; some may leave all as it is.
    """

    rows: pa.Table
    differing: pa.Table
    changes: int


def as_sql(schema: pa.Schema, aggregates: Aggregates) -> dict[str, str]:
    """Return the new value of each aggregate as an expression of a stored row `t` and a reduced one `s`."""
    return {name: _expression(schema.field(name), how) for name, how in aggregates.items()}


def _expression(column: pa.Field, how: Aggregate) -> str:
    ours, theirs = (f"{alias}.{column.name}" for alias in "ts")
    if pa.types.is_boolean(column.type):
        return f"({ours} {'AND' if how is Aggregate.MIN else 'OR'} {theirs})"
    if how is not Aggregate.SUM:
        return f"{'least' if how is Aggregate.MIN else 'greatest'}({ours}, {theirs})"
    if not pa.types.is_decimal(column.type):
        return f"{ours} + {theirs}"
    wide, held = (f"decimal({digits},{column.type.scale})" for digits in (DIGITS, column.type.precision))
    return f"try_cast(cast({ours} as {wide}) + cast({theirs} as {wide}) as {held})"


def together(rows: pa.Table, key: Sequence[str], aggregates: Aggregates) -> pa.Table:
    """Bring reduced rows of several parts together, one a key; `aggregates` are all columns but the key's."""
    schema = rows.schema
    names = [name for name in schema.names if name not in key]
    for name in names:
        if pa.types.is_decimal(schema.field(name).type):
            rows = _with(rows, name, rows.column(name).cast(_wider(schema.field(name).type)))
    wanted = [
        (name, aggregates[name].value, pc.ScalarAggregateOptions(skip_nulls=aggregates[name] is not Aggregate.SUM))
        for name in names
    ]
    found = rows.group_by(list(key)).aggregate(wanted).rename_columns([*key, *names])
    return pa.table([fitting(found.column(field.name), field.type) for field in schema], schema=schema)


def folded(
    held: pa.Table, changes: pa.Table, key: Sequence[str], aggregates: Aggregates | None = None, gone: str | None = None
) -> Folded:
    """Fold changes, reduced to one a key, into the rows of a table.

    Args:
        held: all rows that the table has of these keys.
        changes: with all of the table's columns, and `gone` where it is named.
        key: the columns that tell rows apart.
        aggregates: the columns that are added to, where others stay; when not given, all are replaced.
        gone: the column that says of a change that it leaves no row.
    """
    schema = held.schema
    ends = changes.column(gone) if gone is not None else pa.repeat(pa.scalar(value=False), changes.num_rows)
    changes = changes.select(schema.names).cast(schema)
    there, by = _matches(held.select(key), changes.select(key))
    is_deleted = pc.fill_null(ends, fill_value=False).to_numpy(zero_copy_only=False)[by]
    before = held.take(pa.array(there[~is_deleted]))
    after = _joined(before, changes.take(pa.array(by[~is_deleted])), aggregates)
    differs = pa.array(_differs(before, after))
    inserted = changes.filter(_all_but(by, changes.num_rows)).filter(
        pc.invert(ends).filter(_all_but(by, changes.num_rows))
    )
    kept = held.filter(_all_but(there, held.num_rows))
    differing = {
        DELETE: held.take(pa.array(there[is_deleted])),
        BEFORE: before.filter(differs),
        AFTER: after.filter(differs),
        INSERT: inserted,
    }
    return Folded(
        pa.concat_tables([kept, after, inserted]),
        pa.concat_tables(
            rows.append_column(CHANGE_TYPE, pa.repeat(pa.scalar(kind), rows.num_rows))
            for kind, rows in differing.items()
        ),
        changes.num_rows,
    )


def _matches(held: pa.Table, changes: pa.Table) -> tuple[Numbers, Numbers]:
    """Return the numbers of rows with equal keys, of the one table and of the other."""
    numbered = [
        keys.append_column(name, pa.array(np.arange(keys.num_rows)))
        for keys, name in ((held, "_held"), (changes, "_change"))
    ]
    found = numbered[0].join(numbered[1], held.column_names, join_type="inner")
    return found.column("_held").to_numpy(), found.column("_change").to_numpy()


def _joined(before: pa.Table, changes: pa.Table, aggregates: Aggregates | None) -> pa.Table:
    if aggregates is None:
        return changes
    for name, how in aggregates.items():
        before = _with(before, name, _added(before.column(name), changes.column(name), how))
    return before


def _added(ours: pa.ChunkedArray, theirs: pa.ChunkedArray, how: Aggregate) -> pa.ChunkedArray:
    kind = ours.type
    if pa.types.is_boolean(kind):
        return (pc.and_kleene if how is Aggregate.MIN else pc.or_kleene)(ours, theirs)
    if how is not Aggregate.SUM:
        is_theirs = pc.less(theirs, ours) if how is Aggregate.MIN else pc.greater(theirs, ours)
        return pc.coalesce(pc.if_else(is_theirs, theirs, ours), ours, theirs)
    if pa.types.is_decimal(kind):
        ours, theirs = (values.cast(_wider(kind)) for values in (ours, theirs))
    return fitting(pc.add(ours, theirs), kind)


def _wider(kind: pa.DataType) -> pa.DataType:
    """Return a type of decimals that holds sums of another one's."""
    return pa.decimal256(2 * DIGITS - 1, kind.scale)


def fitting(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Give values a type; decimals that it cannot hold are null."""
    if not pa.types.is_decimal(kind):
        return values.cast(kind)
    most = pa.scalar(Decimal((0, (9,) * kind.precision, -kind.scale)), values.type)
    is_held = pc.less_equal(pc.abs(values), most)
    return pc.if_else(is_held, values, pa.scalar(None, values.type)).cast(kind)


def _differs(before: pa.Table, after: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which rows differ; a null equals a null."""
    differs = np.zeros(before.num_rows, bool)
    for ours, theirs in zip(before.columns, after.columns, strict=True):
        is_equal = pc.fill_null(pc.equal(ours, theirs), fill_value=False)
        are_null = pc.and_(pc.is_null(ours), pc.is_null(theirs))
        differs |= ~pc.or_(is_equal, are_null).to_numpy()
    return differs


def _all_but(numbers: Numbers, rows: int) -> pa.Array:
    marks = np.ones(rows, bool)
    marks[numbers] = False
    return pa.array(marks)


def _with(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)
