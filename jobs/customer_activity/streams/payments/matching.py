"""Which payment makes a purchase paid: a function of the rows alone, whatever came first.

A payment agrees with the purchase of its id when amount and currency are the same, and the customer where the payment
names one. The first that agrees, in the order of (landing, partition, offset), counts; whatever comes later does not
change that. Every other payment has a reason.
"""

from __future__ import annotations

from enum import StrEnum
from functools import reduce
from itertools import product
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import OWED, PAYMENT_FIELDS, POSITION, names
from customer_activity.contracts.tables import arrow_schema

MICROS_A_MINUTE = 60_000_000
PLACE = ("landing", "partition", "offset")  # of a payment: which one it is, and its order
PAYMENT = names([*PAYMENT_FIELDS, *POSITION])
PURCHASE = names(OWED)
AGREE_IN = ("amount", "currency", "customer_id")


class Reason(StrEnum):
    """Why a payment makes no purchase paid."""

    NO_PURCHASE = "no_purchase"
    DIFFERS = "differs"
    REPEATED = "repeated"
    PAID_TWICE = "paid_twice"


class Matched(NamedTuple):
    """What payments come to: rows of silver.paid_purchases, and of ops.unmatched_payments."""

    paid: pa.Table
    unmatched: pa.Table


def match(purchases: pa.Table, payments: pa.Table, window: int) -> Matched:
    """Match all payments of some purchases with these.

    Args:
        purchases: PURCHASE, one row an id.
        payments: PAYMENT, in any order; of an id all that there are.
        window: microseconds within which a purchase is to be paid.
    """
    owed = purchases.select(PURCHASE).rename_columns(["purchase_id", *(f"owed_{name}" for name in PURCHASE[1:])])
    found = payments.select(PAYMENT).join(owed, "purchase_id", join_type="left outer")
    has_purchase = pc.is_valid(found.column("owed_amount"))
    differing = {name: _differs(found, name) for name in AGREE_IN}
    agrees = pc.and_not(has_purchase, reduce(pc.or_, differing.values()))
    found = found.append_column("differs_in", _listed(differing))
    counting = _first(found.filter(agrees))
    return Matched(_paid(counting, window), _unmatched(without(found, counting, PLACE), counting))


def unpaid(purchases: pa.Table, paid: pa.Table, window: int) -> pa.Table:
    """Return those purchases that are not among the paid ones, as silver.unpaid_purchases has them."""
    left = without(purchases.select(PURCHASE), paid, ("purchase_id",))
    due = pc.add(left.column("occurred_at").cast(pa.int64()), window)
    schema = arrow_schema(Table.UNPAID)
    return left.append_column("due_at", due.cast(schema.field("due_at").type)).select(schema.names).cast(schema)


def without(rows: pa.Table, others: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return the rows whose key none of the others has."""
    return rows.join(others.select(key), list(key), join_type="left anti")


def _differs(found: pa.Table, name: str) -> pa.ChunkedArray:
    """Say of each payment whether it names something else than its purchase; without one it does not."""
    return pc.fill_null(pc.not_equal(found.column(name), found.column(f"owed_{name}")), fill_value=False)


def _listed(differing: dict[str, pa.ChunkedArray]) -> pa.ChunkedArray:
    """Return the names of the columns that differ, with commas; null where none does."""
    choices = product(*([None, name] for name in reversed(differing)))
    lists = [",".join(filter(None, reversed(choice))) or None for choice in choices]
    bits = (pc.multiply(is_so.cast(pa.int64()), 1 << bit) for bit, is_so in enumerate(differing.values()))
    return pa.chunked_array([pa.array(lists, pa.string())]).take(reduce(pc.add, bits))


def _first(agreeing: pa.Table) -> pa.Table:
    """Return the first payment of each purchase."""
    ordered = agreeing.sort_by([(name, "ascending") for name in PLACE])
    numbered = ordered.append_column("number", pa.array(range(ordered.num_rows), pa.int64()))
    firsts = numbered.group_by("purchase_id").aggregate([("number", "min")]).column("number_min")
    return ordered.take(firsts)


def _paid(counting: pa.Table, window: int) -> pa.Table:
    schema = arrow_schema(Table.PAID)
    after = pc.subtract(
        counting.column("confirmed_at").cast(pa.int64()), counting.column("owed_occurred_at").cast(pa.int64())
    )
    columns = {name: counting.column(name) for name in (*PAYMENT, "purchase_id")} | {
        **{name: counting.column(f"owed_{name}") for name in PURCHASE[1:]},
        "paid_after_ms": pc.divide(after, 1000),
        "is_early": pc.less(after, 0),
        "is_late": pc.greater(after, window),
    }
    return pa.table(columns).select(schema.names).cast(schema)


def _unmatched(rest: pa.Table, counting: pa.Table) -> pa.Table:
    """Say why each of the other payments does not count."""
    schema = arrow_schema(Table.UNMATCHED_PAYMENTS)
    counted = counting.select(["purchase_id", "payment_id"]).rename_columns(["purchase_id", "counted_id"])
    rest = rest.join(counted, "purchase_id", join_type="left outer")
    reason = pc.case_when(
        pc.make_struct(
            pc.is_null(rest.column("owed_amount")),
            pc.is_valid(rest.column("differs_in")),
            pc.equal(rest.column("payment_id"), rest.column("counted_id")),
            field_names=[each.value for each in list(Reason)[:-1]],
        ),
        *(pa.scalar(each.value) for each in Reason),
    )
    return rest.append_column("reason", reason).select(schema.names).cast(schema)
