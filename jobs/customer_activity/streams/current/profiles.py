"""Profiles: the current profile of each customer, merged behind the hot path.

Reads      silver.profile_changes, change data feed
Writes     silver.customer_profiles (merge)
Grain      one row per customer_id with a profile
On restart what the newest commit notes as read is left out; a repeated merge would set the same absolute values
"""

from __future__ import annotations

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.lake.reducing import newest
from customer_activity.topology import Reads, Spec, Writes

SPEC = Spec(
    "profiles",
    reads=(Reads(Table.PROFILE_CHANGES, progress=Table.PROFILES),),
    writes=(Writes(Table.PROFILES, key=("customer_id",)),),
    promises="the newest change of each profile is merged once",
    is_behind=True,
    is_spread=True,
)
GONE = "is_tombstone"
COLUMNS = [*arrow_schema(Table.PROFILES).names, GONE]
ORDER = ["landing", "partition", "offset"]  # of a key's records, on any partitions

STREAM = CurrentRows(SPEC, COLUMNS, newest(Table.PROFILE_CHANGES, COLUMNS, ["customer_id"], ORDER), gone=GONE)
