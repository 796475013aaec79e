"""Gold's rule: which row a customer has by what is known, and where that differs from the row before.

Pure steps on columns, by which driver and executors work alike; executors import this module. What is known of some
customers is a table of KNOWN, a row for each. Two of them can be added up column by column, where they are of the same
customers in the same order.

A customer whose total has left decimal(18,2) keeps the row that was last right. It is frozen: only a tombstone still
ends it, also where the profile has come back in the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import ACTIVITY_FIELDS, EXTREMES, names
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake.datafiles import ROW_GROUP_BYTES, ROW_GROUP_ROWS, in_parts, narrow
from customer_activity.state import profile_records
from customer_activity.streams.gold.sums import DIGITS, OUT_OF_RANGE, SUMS, in_digits

LATEST = "latest_"  # what the columns of a customer's last profile record are called beside those of the sums
PROFILE = [field.with_name(LATEST + field.name) for field in list(profile_records.HELD)[1:]]
KNOWN = pa.schema([*SUMS, *PROFILE])  # without a purchase, or a profile record, its columns are null
PLACE = [LATEST + name for name in ("landing", "partition", "offset")]  # by which profile records are in order
SCHEMA = arrow_schema(Table.ACTIVITY_CHANGES)
# Where a column of gold's row comes from. One that is not named here is the profile's of the same name; `as_of` is the
# Kafka timestamp of the newest record of both sides.
OF_PURCHASES = {
    "purchase_count": "purchase_count",
    "total_amount": "cents",
    "first_purchase_at": "first_purchase_at",
    "last_purchase_at": "last_purchase_at",
}
OF_PROFILE = {"profile_updated_at": "updated_at"}
COLUMNS = [name for name in names(ACTIVITY_FIELDS[1:]) if name not in ("currency", "view_version")]
CENT = pa.scalar("0.01").cast(pa.decimal128(3, 2))

YES, NO = pa.scalar(True), pa.scalar(False)  # noqa: FBT003 - they are values


class Different(NamedTuple):
    """What a batch comes to for some customers.

    Attributes:
        rows: of gold that differ by it, in the order of the customers: `customer_id`, COLUMNS (times in microseconds,
            the amount in cents), `existed`, `is_gone`, `trace_context`.
        beyond: customers whose total has left decimal(18,2) by it.
    """

    rows: pa.Table
    beyond: list[str]


def known(customers: pa.Array, *sides: pa.Table) -> pa.Table:
    """Return what is known of customers, each once, as KNOWN has it.

    Args:
        customers: who they are.
        sides: tables that have KNOWN's columns together, in its order; each has a customer once, or not at all.
    """
    columns = [customers]
    for side in sides:
        at = pc.index_in(customers, value_set=side.column("customer_id").combine_chunks())
        columns += side.drop_columns("customer_id").take(at).combine_chunks().columns
    return pa.table(columns, schema=KNOWN)


def since(before: pa.Table, new: pa.Table) -> pa.Table:
    """Add what is new of some customers to what was known of the same."""

    def each(name: str, how: Callable[[pa.ChunkedArray, pa.ChunkedArray], pa.ChunkedArray]) -> pa.ChunkedArray:
        return how(before.column(name), new.column(name))

    cents = pc.min_element_wise(each("cents", _added), OUT_OF_RANGE, skip_nulls=False)
    columns = [before.column("customer_id"), each("purchase_count", _added), cents]
    columns += [
        each(name, pc.min_element_wise if how == "min" else pc.max_element_wise) for name, (_, how) in EXTREMES.items()
    ]
    is_said = _is_newer(before, new)
    columns += [
        each("traced", pc.max_element_wise),
        *(pc.if_else(is_said, new.column(field.name), before.column(field.name)) for field in PROFILE),
    ]
    return pa.table(columns, schema=KNOWN).combine_chunks()


def _added(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.coalesce(pc.add(one, other), one, other)


def _is_newer(before: pa.Table, new: pa.Table) -> pa.ChunkedArray:
    """Whether a new profile record comes after the one before, or is that: an older one must not bring it back."""
    is_newer: pa.ChunkedArray = YES  # of two at the same place
    for name in reversed(PLACE):
        old, here = before.column(name), new.column(name)
        is_newer = pc.or_(pc.greater(here, old), pc.and_(pc.equal(here, old), is_newer))
    is_first = pc.and_not(has_record(new), has_record(before))
    return pc.or_(is_first, pc.fill_null(is_newer, NO))


def different(
    before: pa.Table, after: pa.Table, ended: Sequence[str], in_gold: Callable[[Sequence[str]], Iterable[str]]
) -> Different:
    """Return the rows that differ by what came between, of the same customers.

    Args:
        before: what was known.
        after: what is known since.
        ended: customers whose profile has ended in between, whether or not another came after.
        in_gold: tells which of some customers had a row in gold before; asked for those alone whose profile has ended
            while their row was frozen.
    """
    customers = after.column("customer_id")
    was_beyond, is_beyond = (
        pc.fill_null(pc.greater_equal(side.column("cents"), OUT_OF_RANGE), NO) for side in (before, after)
    )
    # A profile that comes back brings no row back that could not be right, so it is none where a frozen row has ended.
    is_over = pc.and_(is_beyond, pc.is_in(customers, value_set=pa.array(ended, pa.string())))
    had_profile = has_profile(before)
    has_one = pc.and_not(has_profile(after), is_over)
    had_row = pc.and_not(had_profile, was_beyond)
    frozen = customers.filter(pc.and_not(was_beyond, has_one))
    if len(frozen):
        in_question = pa.array(list(in_gold(frozen.to_pylist())), pa.string())
        had_row = pc.or_(had_row, pc.is_in(customers, value_set=in_question))
    row = _row(after, has_one)
    is_another = _is_another(_row(before, had_profile), row)
    is_written = pc.if_else(has_one, pc.and_(pc.invert(is_beyond), pc.or_(pc.invert(had_row), is_another)), had_row)
    rows = pa.table(
        {
            "customer_id": customers,
            **row,
            "existed": had_row,
            "is_gone": pc.invert(has_one),
            "trace_context": _trace(after, has_one),
        }
    )
    return Different(rows.filter(is_written), customers.filter(pc.and_not(is_beyond, was_beyond)).to_pylist())


def has_record(of: pa.Table) -> pa.ChunkedArray:
    """Whether there is a profile record of each customer, be it a tombstone."""
    return pc.is_valid(of.column(PLACE[0]))


def has_profile(of: pa.Table) -> pa.ChunkedArray:
    """Whether each customer has a profile: the last record is there, and no tombstone."""
    return pc.fill_null(pc.equal(of.column(f"{LATEST}is_tombstone"), 0), NO)


def _row(of: pa.Table, has_one: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    """Return each customer's row, COLUMNS; of one without a profile it is empty."""
    row = {}
    for name in COLUMNS:
        if name == "as_of":  # a row without purchases is as new as the profile
            row[name] = pc.max_element_wise(of.column(f"{LATEST}kafka_timestamp"), of.column("last_kafka_timestamp"))
        elif name in OF_PURCHASES:
            row[name] = of.column(OF_PURCHASES[name])
        else:
            row[name] = of.column(LATEST + OF_PROFILE.get(name, name))
        row[name] = pc.if_else(has_one, row[name], pa.scalar(None, row[name].type))
    return row | {name: pc.fill_null(row[name], 0) for name in ("purchase_count", "total_amount")}


def _is_another(one: Mapping[str, pa.ChunkedArray], other: Mapping[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Whether rows differ in a column."""
    is_another: pa.ChunkedArray = NO
    for name, column in one.items():
        is_other = pc.not_equal(column, other[name])
        is_other = pc.coalesce(is_other, pc.xor(pc.is_null(column), pc.is_null(other[name])))
        is_another = pc.or_(is_another, is_other)
    return is_another


def _trace(of: pa.Table, has_one: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the trace of the record that `as_of` names; of a row that has ended, the tombstone's.

    Of several purchases as new as that it is the greatest, and of a purchase and the profile the purchase's. So it is
    another only where the row differs, too.
    """
    said, traced = of.column(f"{LATEST}trace_context"), of.column("traced")
    nothing = pa.scalar(None, pa.string())
    if said.null_count == len(said) and traced.null_count == len(traced):
        return said
    is_tombstone = pc.fill_null(pc.equal(of.column(f"{LATEST}is_tombstone"), 1), NO)
    bought_at = of.column("last_kafka_timestamp")
    is_of_profile = pc.coalesce(pc.less(bought_at, of.column(f"{LATEST}kafka_timestamp")), pc.is_null(bought_at))
    is_newest = pc.equal(pc.utf8_slice_codeunits(traced, 0, DIGITS), in_digits(bought_at))
    of_purchase = pc.if_else(pc.fill_null(is_newest, NO), pc.utf8_slice_codeunits(traced, DIGITS), nothing)
    of_row = pc.if_else(is_of_profile, said, of_purchase)
    return pc.if_else(has_one, of_row, pc.if_else(is_tombstone, said, nothing))


def parts(rows: pa.Table, currency: str, view_version: int) -> Iterator[pa.Table]:
    """Yield rows of `different` as gold.activity_changes has them, no more than a row group at a time."""
    for some in in_parts(rows.to_batches(max_chunksize=ROW_GROUP_ROWS), ROW_GROUP_ROWS, ROW_GROUP_BYTES):
        yield as_columns(narrow(some), currency, view_version)


def as_columns(rows: pa.Table, currency: str, view_version: int) -> pa.Table:
    """Return some rows of `different` as gold.activity_changes has them."""
    columns = {name: rows.column(name) for name in rows.column_names}
    columns["total_amount"] = pc.multiply(columns["total_amount"].cast(pa.decimal128(19, 0)), CENT)
    columns |= {
        "currency": pa.repeat(currency, rows.num_rows),
        "view_version": pa.repeat(view_version, rows.num_rows),
    }
    return pa.table([columns[name] for name in SCHEMA.names], SCHEMA.names).cast(SCHEMA)
