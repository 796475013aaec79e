"""Payment events: land the payment topic, each record exactly once, accepted or quarantined.

Reads      Kafka: the payment topic
Writes     bronze.payment_events, bronze.quarantine (append)
Grain      one row per Kafka record, by (topic, partition, offset)
On restart a repeated batch reads the same offsets; each append carries (txnAppId, batch_id), so none lands twice

It has a checkpoint and landings of its own, and runs behind the hot path, which does not wait for it.
"""

from __future__ import annotations

from customer_activity.catalog import PAYMENTS_ROLE, Table
from customer_activity.streams.bronze.stream import COORDINATES, Lands
from customer_activity.topology import Reads, Spec, Topic, Writes

SPEC = Spec(
    "payment_events",
    reads=(Reads(Topic(PAYMENTS_ROLE), progress=Table.PAYMENT_EVENTS),),
    writes=(
        Writes(Table.PAYMENT_EVENTS, key=COORDINATES),
        Writes(Table.QUARANTINE, key=COORDINATES, with_every_batch=True),
    ),
    promises="every payment record lands exactly once, accepted or quarantined, raw and with its coordinates",
    is_behind=True,
    is_spread=True,
    is_optional=True,
)
STREAM = Lands(SPEC, {PAYMENTS_ROLE: Table.PAYMENT_EVENTS})
