"""What `activity verify` says of a table whose stream declares what it must hold, without a broker."""

from __future__ import annotations

from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.commands.verify import others
from customer_activity.verification import declared, oracle
from customer_activity.verification.comparison import Check
from customer_activity.verification.records import NEWEST_RULES, Log, Place, RawRecord
from support.pipeline import Pipeline
from support.records import PROFILES, PURCHASES

LANDED = Place(0, None, NEWEST_RULES)


def proof(pipeline: Pipeline, table: Table) -> Check:
    """Fold what was sent with the oracle, and compare a table with the query over it."""
    logs: dict[str, Log] = {PURCHASES: {}, PROFILES: {}}
    for (topic, partition), records in pipeline.log.entries.items():
        for offset, record in enumerate(records):
            raw = RawRecord(partition, offset, record.timestamp_ms, record.key, record.value, ())
            judged = (
                oracle.judge_purchase(raw, LANDED, pipeline.settings.currency)
                if topic == PURCHASES
                else oracle.judge_profile(raw, LANDED)
            )
            logs[topic].setdefault(partition, {})[offset] = judged
    expected = oracle.expect(
        logs[PURCHASES],
        logs[PROFILES],
        purchase_topic=PURCHASES,
        profile_topic=PROFILES,
        currency=pipeline.settings.currency,
    )
    (wanted,) = (each for each in others() if each.table is table)
    with declared.opened(expected) as database:
        return declared.compare(database, wanted, DeltaTable(table_path(pipeline.settings.lake, table)))
