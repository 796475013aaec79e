"""What `activity verify` says of a table whose stream declares what it must hold, without a broker."""

from __future__ import annotations

from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.commands.verify import others
from customer_activity.verification import declared, oracle
from customer_activity.verification import lake as verifying
from customer_activity.verification.comparison import Check
from customer_activity.verification.records import NEWEST_RULES, Log, Place, RawRecord
from support.pipeline import Pipeline
from support.records import PROFILES, PURCHASES

LANDED = Place(0, None, NEWEST_RULES)


def proof(pipeline: Pipeline, table: Table) -> Check:
    """Fold what was sent with the oracle, and compare a table with the query over it."""
    logs: dict[str, Log] = {PURCHASES: {}, PROFILES: {}}
    lake = pipeline.settings.lake
    landings = {
        (row["topic"], row["partition"], row["offset"]): row["landing"]
        for events in (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS)
        for row in pipeline.rows(events, "topic", "partition", "offset", "landing")
    }
    for (topic, partition), records in pipeline.log.entries.items():
        for offset, record in enumerate(records):
            raw = RawRecord(partition, offset, record.timestamp_ms, record.key, record.value, ())
            place = LANDED._replace(landing=landings.get((topic, partition, offset), LANDED.landing))
            judged = (
                oracle.judge_purchase(raw, place, pipeline.settings.currency)
                if topic == PURCHASES
                else oracle.judge_profile(raw, place)
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
    found = DeltaTable(table_path(lake, table))
    on = [each for each in declared.DECIDED.values() if each in topology.tables()]
    with declared.opened(expected, {each: DeltaTable(table_path(lake, each)) for each in on}) as database:
        return declared.compare(database, wanted, found, verifying.commits(lake, table, found).metadata)
