"""Topics of routed purchases: each on the topic of its route.

Reads      gold.routed_purchases, change data feed
Writes     Kafka: a topic for each route, in one transaction with the progress marker
Grain      one record per purchase, key purchaseId
On restart what the marker covers is out already and is left out

A row that a correction takes away or gives another route is told with a null value on the topic that has had it.
"""

from __future__ import annotations

from collections.abc import Iterator

from customer_activity.catalog import PROGRESS_ROLE, ROUTES, Table
from customer_activity.contracts import published
from customer_activity.contracts.columns import ROUTED_FIELDS, names
from customer_activity.engine.stream import Record
from customer_activity.settings import Settings
from customer_activity.streams.publish.changed import Changed
from customer_activity.streams.publish.published import Published
from customer_activity.topology import Reads, Spec, Topic, Writes

KEY = ("purchase_id",)
VALUE = [*names(ROUTED_FIELDS), "rule", "rules_version"]
EXPECTED = f"SELECT {', '.join(VALUE)} FROM stored WHERE route = '{{}}'"  # noqa: S608 - constants
SPEC = Spec(
    "publish_routed",
    reads=(Reads(Table.ROUTED, progress=Topic(PROGRESS_ROLE)),),
    writes=(
        *(Writes(Topic(route), key=KEY, expected=EXPECTED.format(route)) for route in ROUTES),
        Writes(Topic(PROGRESS_ROLE)),
        Writes(Table.QUARANTINE),
    ),
    promises="exactly once for read_committed consumers: each purchase on the topic of its route, with the progress "
    "marker in one transaction",
    is_behind=True,
    is_gated=True,
    is_optional=True,
)


def records(rows: Changed, settings: Settings) -> Iterator[tuple[int, Record]]:
    """Make a record of each purchase on the topic of its route, and take back what is on another one."""
    keys, values = published.keys(rows.rows, KEY), published.values(rows.rows.select(VALUE))
    routes, before = rows.rows.column("route").to_pylist(), rows.before.column("route").to_pylist()
    found = zip(keys, values, routes, before, rows.is_gone.to_pylist(), strict=True)
    for number, (key, value, route, was, is_gone) in enumerate(found):
        if was is not None and (is_gone or was != route):
            yield number, (key, None, settings.topics[was])
        if not is_gone:
            yield number, (key, value, settings.topics[route])


STREAM = Published(SPEC, KEY, records)
