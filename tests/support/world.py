"""A small world, right in every detail: two topics, the tables and the view that follow from them; to be damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from customer_activity.catalog import Table, table_path
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input, oracle
from customer_activity.verification.records import NEWEST_RULES, Log, Place, RawRecord
from customer_activity.verification.verify import Report
from support.world_rows import (
    C1,
    C1_BEFORE,
    C1_ROW,
    C3,
    C3_ROW,
    C4,
    NOBODY,
    NOW,
    P1,
    P2,
    P3,
    PROFILES,
    PURCHASES,
    TYPES,
    VIEW,
    Row,
    activity,
    at,
    bought,
    landed,
    on_kafka,
    placed,
    published,
    purchase,
    stamp,
    summary,
)

BRONZE_COUNTS = {
    PURCHASES: {"read": 6, "accepted": 5, "quarantined": 1},
    PROFILES: {"read": 7, "accepted": 7},
}
SILVER_COUNTS = {
    PURCHASES: {"accepted": 3, "quarantined": 1, "duplicate": 1},
    PROFILES: {"accepted": 5, "duplicate": 1, "stale": 1},
}


def commit(query: str, batch_id: int, counts: Mapping[str, Mapping[str, int]], **more: Any) -> Row:
    return {"query": query, "generation": "g1", "batch_id": batch_id, "counts": counts, **more}


@dataclass
class World:
    """Rows of each table, commit metadata, and Kafka's records: consistent until a test damages them."""

    tables: dict[Table, list[Row]] = field(
        default_factory=lambda: {
            Table.PURCHASE_EVENTS: [
                landed(PURCHASES, 0, 0, **P1),
                landed(PURCHASES, 0, 1, **P1),
                landed(PURCHASES, 0, 2, **P1 | {"amount": Decimal("11.00")}),
                landed(PURCHASES, 1, 0, **P2),
                landed(PURCHASES, 1, 1, **P3),
            ],
            Table.PROFILE_EVENTS: [
                landed(PROFILES, 0, 0, **C1_BEFORE, is_tombstone=False),
                landed(PROFILES, 0, 1, **C1, is_tombstone=False),
                landed(PROFILES, 0, 2, **C1_BEFORE, is_tombstone=False),
                landed(PROFILES, 0, 3, **C3, is_tombstone=False),
                landed(PROFILES, 0, 4, **C1, is_tombstone=False),
                landed(PROFILES, 1, 0, **C4, is_tombstone=False),
                landed(PROFILES, 1, 1, **NOBODY | {"customer_id": "C4"}, is_tombstone=True),
            ],
            Table.QUARANTINE: [
                landed(PURCHASES, 0, 3, reason="not_json"),
                landed(PURCHASES, 0, 2, reason="conflicting_duplicate"),
                landed(PROFILES, 1, 2, reason="missing_key"),
            ],
            Table.PURCHASES: [placed(P1, 0, 0), placed(P2, 1, 0), placed(P3, 1, 1)],
            Table.PROFILE_CHANGES: [
                placed(C1_BEFORE, 0, 0) | {"is_tombstone": False},
                placed(C1, 0, 1) | {"is_tombstone": False},
                placed(C3, 0, 3) | {"is_tombstone": False},
                placed(C4, 1, 0) | {"is_tombstone": False},
                placed(NOBODY | {"customer_id": "C4"}, 1, 1) | {"is_tombstone": True},
            ],
            Table.SUMMARIES: [
                summary("C1", 2, "10.10", NOW - 50, NOW, stamp(1, 0)),
                summary("C2", 1, "5.25", NOW, NOW, stamp(1, 1)),
            ],
            Table.PROFILES: [placed(C1, 0, 1), placed(C3, 0, 3)],
            Table.ACTIVITY_CHANGES: [
                C1_ROW | {"address": "Hidden Lane 1", "view_version": 10, "is_gone": False},
                C3_ROW | {"is_gone": False},
                C1_ROW | {"is_gone": False},
                C3_ROW | {"customer_id": "C4", "view_version": 11, "is_gone": False},
                C3_ROW | {"customer_id": "C4", "view_version": 12, "is_gone": True},
            ],
            Table.ACTIVITY: [C1_ROW, C3_ROW],
        }
    )
    commits: dict[Table, list[Row]] = field(
        default_factory=lambda: {
            Table.PURCHASE_EVENTS: [commit("bronze", 0, deepcopy(BRONZE_COUNTS))],
            Table.PROFILE_EVENTS: [
                commit("bronze", 0, deepcopy(BRONZE_COUNTS)),
                commit("bronze", 1, {PROFILES: {"read": 1, "quarantined": 1}}),
            ],
            # Counts grow while the batch is written.
            Table.PURCHASES: [commit("silver", 0, {PURCHASES: {"accepted": 3}})],
            Table.QUARANTINE: [commit("silver", 0, {PURCHASES: dict(SILVER_COUNTS[PURCHASES])})],
            Table.PROFILE_CHANGES: [commit("silver", 0, deepcopy(SILVER_COUNTS))],
        }
    )
    kafka: dict[str, dict[int, list[RawRecord]]] = field(
        default_factory=lambda: {
            **{
                topic: {partition: on_kafka(topic, partition) for partition in (0, 1)}
                for topic in (PURCHASES, PROFILES)
            },
            VIEW: {
                0: [
                    RawRecord(0, 0, NOW, *published(C1_ROW | {"address": "Hidden Lane 1", "view_version": 10}), ()),
                    RawRecord(0, 1, NOW, *published(C3_ROW), ()),
                    RawRecord(0, 2, NOW, *published(C1_ROW), ()),
                ],
                1: [
                    RawRecord(1, 0, NOW, *published(activity(C4, 0, "0.00", None, None, version=11, as_of=NOW)), ()),
                    RawRecord(1, 1, NOW, b"C4", None, ()),
                ],
            },
        }
    )
    begin: dict[str, int] = field(default_factory=dict)
    end: dict[str, int] = field(default_factory=dict)
    largest: int = 1_000_000

    def landed_in(self, landing: int, rules: int = NEWEST_RULES) -> World:
        """Have all of it landed in one landing, by a version of the rules."""
        for rows in self.tables.values():
            for row in rows:
                if "landing" in row:
                    row["landing"] = landing
        for table in (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS):
            self.commits[table][0] |= {"landing": landing, "rules": rules}
        return self

    def write(self, lake: str, right_lake: Path | None = None) -> None:
        """Write the Delta tables: one commit for each metadata, the first with the rows. Copy those that are right."""
        right = World()
        for table, rows in self.tables.items():
            if right_lake is not None and (rows, self.commits.get(table)) == (
                right.tables[table],
                right.commits.get(table),
            ):
                shutil.copytree(right_lake / table.value, table_path(lake, table))
                continue
            names = rows[0].keys() if rows else {}
            data = pa.table(
                {name: pa.array([row[name] for row in rows], TYPES.get(name, pa.string())) for name in names}
            )
            notes = [json.dumps(note) for note in self.commits.get(table, [])] or ["somebody else's note"]
            for number, note in enumerate(notes):
                write_deltalake(
                    table_path(lake, table),
                    data.slice(0, None if number == 0 else 0),
                    mode="append",
                    commit_properties=CommitProperties(custom_metadata={"userMetadata": note}),
                )

    def serve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in for Kafka."""

        def ends(_: Settings, topic: str) -> dict[int, int]:
            return {
                p: self.end.get(topic, records[-1].offset + 1 if records else 0)
                for p, records in self.kafka[topic].items()
            }

        def read(_: Settings, topic: str, start: dict[int, int], end: dict[int, int]) -> Iterator[RawRecord]:
            for partition, records in self.kafka[topic].items():
                yield from (record for record in records if start.get(partition, 0) <= record.offset < end[partition])

        monkeypatch.setattr(
            kafka_input, "begins", lambda _, topic: dict.fromkeys(self.kafka[topic], self.begin.get(topic, 0))
        )
        monkeypatch.setattr(kafka_input, "ends", ends)
        monkeypatch.setattr(kafka_input, "read", read)
        monkeypatch.setattr(kafka_input, "is_compacted", lambda _, topic: topic == PROFILES)
        monkeypatch.setattr(kafka_input, "largest_record", lambda *_: self.largest)

    def row(self, table: Table, position: int = 0) -> Row:
        """A copy of a row that may be changed, put in the place of the row."""
        self.tables[table][position] = dict(self.tables[table][position])
        return self.tables[table][position]

    def publish(self, row: Row | None, key: str = "", partition: int = 0, **changes: Any) -> None:
        """Add a record to the view topic; no row deletes the key."""
        offset = len(self.kafka[VIEW][partition])
        content: tuple[bytes, bytes | None] = (key.encode(), None) if row is None else published(row, **changes)
        self.kafka[VIEW][partition].append(RawRecord(partition, offset, NOW, content[0], content[1], ()))


LANDED = Place(1, None, NEWEST_RULES)


def expect(purchases: list[tuple[str, bytes]] = [], profiles: list[tuple[str, bytes | None]] = []) -> oracle.Expected:  # noqa: B006 - not changed
    """Fold records of one partition; a record's Kafka timestamp is NOW plus its offset, profiles 100 later."""
    logs: list[Log] = [{0: {}}, {0: {}}]
    for offset, (key, value) in enumerate(purchases):
        logs[0][0][offset] = oracle.judge_purchase(
            RawRecord(0, offset, NOW + offset, key.encode(), value, ()), LANDED, "EUR"
        )
    for offset, (key, maybe) in enumerate(profiles):
        logs[1][0][offset] = oracle.judge_profile(
            RawRecord(0, offset, NOW + 100 + offset, key.encode(), maybe, ()), LANDED
        )
    return oracle.expect(*logs, purchase_topic=PURCHASES, profile_topic=PROFILES, currency="EUR")


def overflowing(said_of: list[str]) -> World:
    """A world in which C1 buys for more than a total can say, once more after what gold has of the two purchases."""
    world = World()
    values = {"purchaseId": "P4", "amount": b"9999999999999999.99"}
    key, value = b"P4", purchase(**values)
    world.kafka[PURCHASES][1].append(RawRecord(1, 2, stamp(1, 2), key, value, ()))
    row = bought("P4", "C1", "X", "9999999999999999.99")
    raw = landed(PURCHASES, 1, 1) | {"key": key, "value": value, "offset": 2, "kafka_timestamp": at(stamp(1, 2))}
    world.tables[Table.PURCHASE_EVENTS].append(raw | row)
    world.tables[Table.PURCHASES].append(placed(row, 1, 2))
    world.tables[Table.SUMMARIES][0] = summary("C1", 3, "0", NOW - 50, NOW, stamp(1, 2)) | {"total_amount": None}
    nothing = dict.fromkeys(world.tables[Table.QUARANTINE][0])
    world.tables[Table.QUARANTINE] += [
        nothing | {"reason": "total_out_of_range", "topic": VIEW, "key": customer.encode()} for customer in said_of
    ]
    for table, notes in ((Table.PURCHASE_EVENTS, "bronze"), (Table.PURCHASES, "silver")):
        counts = {"read": 1, "accepted": 1} if notes == "bronze" else {"accepted": 1}
        world.commits[table].append(commit(notes, 7, {PURCHASES: counts}))
    return world


def failing(report: Report) -> set[str]:
    """Name the checks that found differences."""
    return {check.name for check in report.checks if not check.ok}
