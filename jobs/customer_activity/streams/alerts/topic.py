"""The topic of alerts: each alert once, within seconds.

Reads      the change feed of gold.fraud_alerts
Writes     ops.outdated_alerts (append: alerts that a version changed or took back, as they were told), then Kafka: one
           record per alert, by the contract `contracts/fraud_alert.schema.json`
Grain      one record per alert, for ever: one that was corrected or retracted is not sent again, though it come again
On restart what the marker covers is out already and is left out
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import ALERTS_ROLE, PROGRESS_ROLE, Table
from customer_activity.contracts import FRAUD_ALERT, published
from customer_activity.engine.stream import Record
from customer_activity.settings import Settings
from customer_activity.streams.alerts import stream as alerts
from customer_activity.streams.publish.changed import Changed
from customer_activity.streams.publish.published import Published
from customer_activity.topology import Made, Reads, Spec, Topic, Writes

FIELDS = [field.column for field in FRAUD_ALERT.fields]
KEY = ("customer_id",)
ALERT = ("alert_id",)  # a customer has several
# What the topic does not tell of itself: each alert is kept once, under the id that is its own.
EXPECTED_OUTDATED = """
SELECT DISTINCT ON (alert_id) * FROM outdated_alerts
WHERE alert_id = left(sha256(concat_ws(chr(31), rule, customer_id, purchase_id)), 32)
"""
SPEC = Spec(
    "publish_alerts",
    reads=(Reads(Table.FRAUD_ALERTS, progress=Topic(PROGRESS_ROLE)),),
    writes=(
        Writes(
            Topic(ALERTS_ROLE),
            key=KEY,
            order=ALERT,
            expected=f"SELECT {', '.join(FIELDS)} FROM stored",  # noqa: S608 - constants
            outdated=Table.OUTDATED_ALERTS,
        ),
        Writes(Table.OUTDATED_ALERTS, key=ALERT, expected=EXPECTED_OUTDATED, made=(Made("noted_at"),)),
        Writes(Topic(PROGRESS_ROLE)),
        Writes(Table.QUARANTINE),
    ),
    promises="exactly once for read_committed consumers: each alert, with the progress marker in one transaction",
    is_behind=True,
    is_gated=True,
    is_optional=True,
    paced_by=alerts.SPEC.paced_by,
)


def records(rows: Changed, _settings: Settings) -> Iterator[tuple[int, Record]]:
    """Make a record of each alert that was not there before."""
    is_new = pc.and_not(pc.is_null(rows.before.column("alert_id")), rows.is_gone)
    numbers = pc.indices_nonzero(is_new)
    yield from zip(numbers.to_pylist(), as_records(rows.rows.take(numbers)), strict=True)


def as_records(rows: pa.Table) -> Iterator[Record]:
    """Make key and value of each alert."""
    yield from zip(published.keys(rows, KEY), published.values(rows.select(FIELDS)), strict=True)


STREAM = Published(SPEC, alerts.SPEC.how(Table.FRAUD_ALERTS).key, records)
