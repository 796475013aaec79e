"""Daily: what did each customer buy on each day, and is the day's figure final?

Reads      silver.timed_purchases, change data feed
Writes     gold.daily_customer_purchases (merge, additive)
Grain      one row per customer_id and day (in the configured time zone) with a purchase that was not too late
On restart what the newest commit notes as read is left out: what was added is not added again

The figure runs while the day is open. `is_final` becomes true once, when the watermark has passed the day's end and
the grace; nothing is added from then on.
"""

from __future__ import annotations

from customer_activity.catalog import Table
from customer_activity.engine.derived import Definition
from customer_activity.streams.event_time.clock import EXPECTED as STAMPED
from customer_activity.streams.windows import days
from customer_activity.streams.windows.days import Days
from customer_activity.topology import Reads, Spec, Writes

DAYS = Days(Table.DAILY, 1, "day")
SPEC = Spec(
    "daily",
    reads=(Reads(Table.TIMED_PURCHASES, progress=Table.DAILY),),
    writes=(
        Writes(
            Table.DAILY,
            key=("customer_id", DAYS.first_day),
            expected=days.EXPECTED.format(stamped=STAMPED, days=DAYS.days, first_day=DAYS.first_day),
            made=DAYS.made,
        ),
    ),
    promises="each purchase that is not too late counts in its day once, and a day is final once",
    is_behind=True,
    is_spread=True,
    is_optional=True,
    uses_time_zone=True,
)
STREAM = days.stream(SPEC, DAYS, Definition())
