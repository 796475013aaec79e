"""What `activity verify` says of a table whose stream declares what it must hold, without a broker."""

from __future__ import annotations

from functools import partial

from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.commands.verify import others
from customer_activity.verification import declared, oracle
from customer_activity.verification import lake as verifying
from customer_activity.verification.comparison import Check
from customer_activity.verification.lake import LANDED_AT
from customer_activity.verification.records import NEWEST_RULES, Log, Place, RawRecord
from customer_activity.verification.verify import Judge
from support.pipeline import Pipeline
from support.records import PAYMENTS, PROFILES, PURCHASES

LANDED = Place(0, None, NEWEST_RULES)


def proof(pipeline: Pipeline, table: Table) -> Check:
    """Fold what was sent with the oracle, and compare a table with the query over it."""
    return proofs(pipeline, table)[0]


def proofs(pipeline: Pipeline, *tables: Table) -> list[Check]:
    """Fold what was sent with the oracle, once, and compare some tables with the queries over it."""
    logs: dict[str, Log] = {PURCHASES: {}, PROFILES: {}, PAYMENTS: {}}
    lake = pipeline.settings.lake
    judges: dict[str, Judge] = {
        PURCHASES: partial(oracle.judge_purchase, currency=pipeline.settings.currency),
        PROFILES: oracle.judge_profile,
        PAYMENTS: oracle.judge_payment,
    }
    landings = {
        (row["topic"], row["partition"], row["offset"]): row["landing"]
        for events in LANDED_AT
        if events in topology.tables()
        for row in pipeline.rows(events, "topic", "partition", "offset", "landing")
    }
    for (topic, partition), records in pipeline.log.entries.items():
        for offset, record in enumerate(records):
            raw = RawRecord(partition, offset, record.timestamp_ms, record.key, record.value, ())
            place = LANDED._replace(landing=landings.get((topic, partition, offset), LANDED.landing))
            logs[topic].setdefault(partition, {})[offset] = judges[topic](raw, place)
    expected = oracle.expect(
        logs[PURCHASES],
        logs[PROFILES],
        purchase_topic=PURCHASES,
        profile_topic=PROFILES,
        currency=pipeline.settings.currency,
    )
    expected = oracle.with_payments(expected, logs[PAYMENTS], PAYMENTS)
    wanted = {each.table: each for each in others()}
    found = {table: DeltaTable(table_path(lake, table)) for table in tables}
    on = [each for each in declared.DECIDED.values() if each in topology.tables()]
    decided = {each: DeltaTable(table_path(lake, each)) for each in on}
    with declared.opened(expected, decided, pipeline.settings.mask_key_file) as database:
        return [
            declared.compare(database, wanted[table], opened, verifying.commits(lake, table, opened).metadata)
            for table, opened in found.items()
        ]
