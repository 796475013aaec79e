"""Activity: the one current row of each customer, merged behind the hot path.

Reads      gold.activity_changes, change data feed
Writes     gold.customer_activity (merge)
Grain      one row per customer_id with a profile
On restart what the newest commit notes as read is left out; a repeated merge would set the same absolute values

The change is in the lake before it is on the topic, and on the topic before it is in this table, which follows within
`ACTIVITY_GOLD_SECONDS`: rewriting rows of a large table costs seconds that the view need not wait for.
"""

from __future__ import annotations

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.lake.reducing import newest
from customer_activity.topology import Reads, Spec, Writes

SPEC = Spec(
    "activity",
    reads=(Reads(Table.ACTIVITY_CHANGES, progress=Table.ACTIVITY),),
    writes=(Writes(Table.ACTIVITY, key=("customer_id",)),),
    promises="the newest change of each row is merged once; the table follows the topic by seconds",
    is_behind=True,
    is_spread=True,
    paced_by="gold_seconds",
)
GONE = "is_gone"
COLUMNS = [*arrow_schema(Table.ACTIVITY).names, GONE]

STREAM = CurrentRows(
    SPEC, COLUMNS, newest(Table.ACTIVITY_CHANGES, COLUMNS, ["customer_id"], order=["view_version"]), gone=GONE
)
