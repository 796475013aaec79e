"""What purchases and payments come to, with what was read before: the rule of the stream, wherever it is applied.

The driver applies it to a whole part, and Spark's executors to one lane of purchase ids after the other (`tasks.py`):
nothing of a purchase depends on another one. So what all lanes come to is what the part comes to.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.streams.payments.matching import PAYMENT, PLACE, PURCHASE, Matched, match, unpaid, without
from customer_activity.streams.payments.past import Past

GONE = "gone"  # a column of what is merged: the row is to be deleted


class Due(NamedTuple):
    """Whose time to be paid, and the grace, are over: of purchases up to an event time, in microseconds since 1970.

    Attributes:
        window: microseconds within which a purchase is to be paid.
        before: up to which event time that was so before the part; None: of none.
        after: up to which it is with the part.
    """

    window: int
    before: int | None = None
    after: int | None = None

    @property
    def moves(self) -> bool:
        """Whether there may be purchases whose time ends with the part."""
        return self.after is not None and self.after != self.before

    def closed(self, purchases: pa.Table) -> pa.Table:
        """Return those of some purchases whose time is over."""
        if self.after is None:
            return purchases.slice(0, 0)
        return purchases.filter(pc.less_equal(_times(purchases), self.after))

    def ends(self, purchases: pa.Table) -> pa.ChunkedArray:
        """Say of each of some purchases whether its time ends with the part, and had not before."""
        times = _times(purchases)
        if self.after is None:
            return pc.is_null(times)  # which none is
        is_over = pc.less_equal(times, self.after)
        return is_over if self.before is None else pc.and_(is_over, pc.greater(times, self.before))


class Joined(NamedTuple):
    """What purchases and payments come to.

    Attributes:
        paid: rows that silver.paid_purchases lacks.
        unpaid: rows of silver.unpaid_purchases that come, or are GONE.
        unmatched: the same of ops.unmatched_payments.
    """

    paid: pa.Table
    unpaid: pa.Table
    unmatched: pa.Table


def join(bought: pa.Table, payments: pa.Table, past: Past, due: Due) -> Joined:
    """Match purchases and payments with each other, and with those that were read before.

    Args:
        bought: PURCHASE, those that are new.
        payments: PAYMENT, likewise.
        past: tells what was read before; after a crash it may have what these come to already.
        due: whose time to be paid is over.
    """
    matched, earlier = _matched(bought, payments, past, due.window)
    closed = [due.closed(bought), past.purchases_between(due.before, due.after)]
    candidates = _distinct(pa.concat_tables([each.select(PURCHASE) for each in closed]), ("purchase_id",))
    paid = pa.concat_tables([past.paid(candidates).select(matched.paid.column_names), matched.paid])
    changed = without(matched.unmatched, earlier, (*PLACE, "reason"))
    counting = without(earlier, matched.unmatched, PLACE)
    return Joined(
        without(matched.paid, past.paid(matched.paid), ("purchase_id",)),
        _merged(unpaid(candidates, paid, due.window), past.unpaid(matched.paid)),
        _merged(changed, counting),
    )


def _matched(bought: pa.Table, payments: pa.Table, past: Past, window: int) -> tuple[Matched, pa.Table]:
    """Match all payments of the purchases that these are about; return those that were unmatched, too."""
    ids = pa.chunked_array([*bought.column("purchase_id").chunks, *payments.column("purchase_id").chunks], pa.string())
    earlier = past.unmatched(pc.unique(ids))
    waiting = pa.concat_tables([earlier.select(PAYMENT), without(payments, earlier, PLACE).select(PAYMENT)])
    asked = pc.unique(payments.column("purchase_id"))
    known = past.purchases(asked, around=payments.column("confirmed_at"), within=window)
    purchases = _distinct(pa.concat_tables([bought.select(PURCHASE), known]), ("purchase_id",))
    purchases = purchases.join(waiting.select(["purchase_id"]), "purchase_id", join_type="left semi")
    counted = past.paid(purchases)
    counted_before = without(past.as_payments(counted), waiting, PLACE)
    return match(purchases, pa.concat_tables([waiting, counted_before]), window), earlier


def _times(purchases: pa.Table) -> pa.ChunkedArray:
    return purchases.column("occurred_at").cast(pa.int64())


def _distinct(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """Return one row a key; rows with the same key are the same."""
    numbered = rows.append_column("number", pa.array(range(rows.num_rows), pa.int64()))
    return rows.take(numbered.group_by(list(key)).aggregate([("number", "min")]).column("number_min"))


def _merged(coming: pa.Table, going: pa.Table) -> pa.Table:
    """Put rows that come and rows that go together, and say of each whether it goes."""
    marks = [pa.repeat(pa.scalar(goes), rows.num_rows) for rows, goes in ((coming, False), (going, True))]
    return pa.concat_tables([coming, going.cast(coming.schema)]).append_column(
        GONE, pa.chunked_array(marks, pa.bool_())
    )
