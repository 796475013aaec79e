"""Weekly: what did each customer buy in any seven days in a row, and is that figure final?

Reads      silver.timed_purchases, change data feed
Writes     gold.weekly_customer_purchases (merge, additive)
Grain      one row per customer_id and first_day of seven days (in the configured time zone) with a purchase that was
           not too late; the windows hop by one day, so a purchase is in seven of them
On restart what the newest commit notes as read is left out: what was added is not added again
"""

from __future__ import annotations

from customer_activity.catalog import Table
from customer_activity.engine.derived import Definition
from customer_activity.streams.event_time.clock import EXPECTED as STAMPED
from customer_activity.streams.windows import days
from customer_activity.streams.windows.days import Days
from customer_activity.topology import Reads, Spec, Writes

DAYS = Days(Table.WEEKLY, 7, "first_day")
SPEC = Spec(
    "weekly",
    reads=(Reads(Table.TIMED_PURCHASES, progress=Table.WEEKLY),),
    writes=(
        Writes(
            Table.WEEKLY,
            key=("customer_id", DAYS.first_day),
            expected=days.EXPECTED.format(stamped=STAMPED, days=DAYS.days, first_day=DAYS.first_day),
            made=DAYS.made,
        ),
    ),
    promises="each purchase that is not too late counts once in each of its seven windows, and a window is final once",
    is_behind=True,
    is_spread=True,
    is_optional=True,
    uses_time_zone=True,
)
STREAM = days.stream(SPEC, DAYS, Definition())
