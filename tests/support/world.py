"""A small world, right in every detail: two topics, the tables and the view that follow from them; to be damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from customer_activity.catalog import Table, table_path
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input, oracle
from customer_activity.verification.oracle import Headers, RawRecord

NOW = 1_700_000_000_000  # Kafka timestamp of most records, milliseconds
PURCHASES, PROFILES, VIEW = "purchase-events", "customer-profile-state", "customer-activity-view"


def document(**fields: Any) -> bytes:
    """A JSON object; a value of type bytes stands in it as it is, Ellipsis leaves the field out."""
    parts = (
        json.dumps(name).encode() + b":" + (value if isinstance(value, bytes) else json.dumps(value).encode())
        for name, value in fields.items()
        if value is not ...
    )
    return b"{" + b",".join(parts) + b"}"


def purchase(**changes: Any) -> bytes:
    fields = {
        "purchaseId": "P1",
        "customerId": "C1",
        "productId": "X",
        "amount": b"1.25",
        "currency": "EUR",
        "occurredAtEpochMillis": NOW,
    }
    return document(**fields | changes)


def profile(**changes: Any) -> bytes:
    fields = {
        "customerId": "C1",
        "name": "Ada",
        "email": "ada@example.org",
        "address": "1 Old Road",
        "loyaltyStatus": "gold",
        "updatedAtEpochMillis": NOW,
    }
    return document(**fields | changes)


TRACE: Headers = (("traceparent", b"00-1-2-01"),)
OUTCOMES = ("read", "accepted", "quarantined", "duplicate", "stale")

VALUES: dict[tuple[str, int, int], tuple[bytes | None, bytes | None, Headers]] = {
    (PURCHASES, 0, 0): (b"P1", purchase(amount=10), TRACE),
    (PURCHASES, 0, 1): (b"P1", purchase(amount=10), ()),  # duplicate
    (PURCHASES, 0, 2): (b"P1", purchase(amount=11), ()),  # conflicting duplicate
    (PURCHASES, 0, 3): (b"P9", b"{", ()),  # not JSON
    (PURCHASES, 1, 0): (
        b"P2",
        purchase(purchaseId="P2", amount=b"0.10", productId=None, occurredAtEpochMillis=NOW - 50),
        (),
    ),
    (PURCHASES, 1, 1): (b"P3", purchase(purchaseId="P3", customerId="C2", amount=b"5.25"), ()),  # nobody's profile
    (PROFILES, 0, 0): (b"C1", profile(address="Hidden Lane 1", updatedAtEpochMillis=NOW - 9), ()),
    (PROFILES, 0, 1): (b"C1", profile(address="Hidden Lane 2", updatedAtEpochMillis=NOW - 5), ()),  # current
    (PROFILES, 0, 2): (b"C1", profile(address="Hidden Lane 1", updatedAtEpochMillis=NOW - 9), ()),  # stale
    (PROFILES, 0, 3): (b"C3", profile(customerId="C3", name="Grace", email=None, updatedAtEpochMillis=NOW - 7), ()),
    (PROFILES, 0, 4): (b"C1", profile(address="Hidden Lane 2", updatedAtEpochMillis=NOW - 5), ()),  # duplicate
    (PROFILES, 1, 0): (b"C4", profile(customerId="C4", name="Edsger"), ()),
    (PROFILES, 1, 1): (b"C4", None, ()),
    (PROFILES, 1, 2): (None, profile(), ()),  # no key
}
PERSONAL = ("Ada", "Grace", "Edsger", "ada@example.org", "Hidden Lane", "1 Old Road", "Mallory")

Row = dict[str, Any]


def at(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def stamp(partition: int, offset: int) -> int:
    return NOW + 10 * offset + partition


def landed(topic: str, partition: int, offset: int, **columns: Any) -> Row:
    key, value, headers = VALUES[topic, partition, offset]
    return columns | {
        "key": key,
        "value": value,
        "headers": [{"key": name, "value": content} for name, content in headers] or None,
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "kafka_timestamp": at(stamp(partition, offset)),
    }


def on_kafka(topic: str, partition: int) -> list[RawRecord]:
    at_home = {offset: record for (t, p, offset), record in VALUES.items() if (t, p) == (topic, partition)}
    return [
        RawRecord(partition, offset, stamp(partition, offset), key, value, headers)
        for offset, (key, value, headers) in at_home.items()
    ]


def bought(purchase_id: str, customer_id: str, product_id: str | None, amount: str, occurred_at: int = NOW) -> Row:
    return {
        "purchase_id": purchase_id,
        "customer_id": customer_id,
        "product_id": product_id,
        "amount": Decimal(amount),
        "currency": "EUR",
        "occurred_at": at(occurred_at),
    }


def person(
    customer_id: str,
    name: str,
    address: str = "1 Old Road",
    updated_at: int = NOW,
    email: str | None = "ada@example.org",
) -> Row:
    return {
        "customer_id": customer_id,
        "name": name,
        "email": email,
        "address": address,
        "loyalty_status": "gold",
        "updated_at": at(updated_at),
    }


def placed(columns: Row, partition: int, offset: int) -> Row:
    return columns | {"partition": partition, "offset": offset, "kafka_timestamp": at(stamp(partition, offset))}


P1, P2, P3 = (
    bought("P1", "C1", "X", "10.00"),
    bought("P2", "C1", None, "0.10", NOW - 50),
    bought("P3", "C2", "X", "5.25"),
)
C1_BEFORE, C1 = person("C1", "Ada", "Hidden Lane 1", NOW - 9), person("C1", "Ada", "Hidden Lane 2", NOW - 5)
C3, C4 = person("C3", "Grace", updated_at=NOW - 7, email=None), person("C4", "Edsger")
NOBODY = dict.fromkeys(C1)


def summary(customer_id: str, count: int, total: str, first: int, last: int, newest: int) -> Row:
    return {
        "customer_id": customer_id,
        "purchase_count": count,
        "total_amount": Decimal(total),
        "first_purchase_at": at(first),
        "last_purchase_at": at(last),
        "last_kafka_timestamp": at(newest),
    }


def activity(who: Row, count: int, total: str, first: int | None, last: int | None, *, version: int, as_of: int) -> Row:
    return {
        **{name: who[name] for name in ("customer_id", "name", "email", "address", "loyalty_status")},
        "profile_updated_at": who["updated_at"],
        "purchase_count": count,
        "total_amount": Decimal(total),
        "currency": "EUR",
        "first_purchase_at": None if first is None else at(first),
        "last_purchase_at": None if last is None else at(last),
        "view_version": version,
        "as_of": at(as_of),
    }


C1_ROW = activity(C1, 2, "10.10", NOW - 50, NOW, version=12, as_of=stamp(0, 1))
C3_ROW = activity(C3, 0, "0.00", None, None, version=11, as_of=stamp(0, 3))


def published(row: Row, **changes: Any) -> tuple[bytes, bytes]:
    """A gold row as the view topic has it."""

    def millis(column: str) -> int | None:
        return None if row[column] is None else round(row[column].timestamp() * 1000)

    fields = {
        "customerId": row["customer_id"],
        "name": row["name"],
        "email": row["email"],
        "address": row["address"],
        "loyaltyStatus": row["loyalty_status"],
        "profileUpdatedAtEpochMillis": millis("profile_updated_at"),
        "purchaseCount": row["purchase_count"],
        "totalAmount": str(row["total_amount"]).encode(),
        "currency": row["currency"],
        "firstPurchaseAtEpochMillis": millis("first_purchase_at"),
        "lastPurchaseAtEpochMillis": millis("last_purchase_at"),
        "viewVersion": row["view_version"],
        "asOfEpochMillis": millis("as_of"),
    }
    return row["customer_id"].encode(), document(**fields | changes)


RAW = {
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "kafka_timestamp": pa.timestamp("us", "UTC"),
}
TYPES = RAW | {
    "amount": pa.decimal128(18, 2),
    "total_amount": pa.decimal128(18, 2),
    "purchase_count": pa.int64(),
    "view_version": pa.int64(),
    "is_tombstone": pa.bool_(),
    "is_gone": pa.bool_(),
    **dict.fromkeys(
        [
            "occurred_at",
            "updated_at",
            "profile_updated_at",
            "first_purchase_at",
            "last_purchase_at",
            "last_kafka_timestamp",
            "as_of",
        ],
        pa.timestamp("us", "UTC"),
    ),
}


def commit(query: str, batch_id: int, counts: Mapping[str, Mapping[str, int]]) -> Row:
    return {"query": query, "generation": "g1", "batch_id": batch_id, "counts": counts}


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
            Table.PURCHASE_EVENTS: [
                commit(
                    "bronze",
                    0,
                    {PURCHASES: {"read": 6, "accepted": 5, "quarantined": 1}, PROFILES: {"read": 7, "accepted": 7}},
                )
            ],
            Table.PROFILE_EVENTS: [
                commit(
                    "bronze",
                    0,
                    {PURCHASES: {"read": 6, "accepted": 5, "quarantined": 1}, PROFILES: {"read": 7, "accepted": 7}},
                ),
                commit("bronze", 1, {PROFILES: {"read": 1, "quarantined": 1}}),
            ],
            Table.QUARANTINE: [commit("silver", 0, {PURCHASES: {"accepted": 3, "quarantined": 1, "duplicate": 1}})],
            Table.PURCHASES: [
                commit("silver", 0, {PURCHASES: {"accepted": 3}})
            ],  # counts grow while the batch is written
            Table.PROFILE_CHANGES: [
                commit(
                    "silver",
                    0,
                    {
                        PURCHASES: {"accepted": 3, "quarantined": 1, "duplicate": 1},
                        PROFILES: {"accepted": 5, "duplicate": 1, "stale": 1},
                    },
                )
            ],
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
                yield from (record for record in records if start[partition] <= record.offset < end[partition])

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


def expect(purchases: list[tuple[str, bytes]] = [], profiles: list[tuple[str, bytes | None]] = []) -> oracle.Expected:  # noqa: B006 - not changed
    """Fold records of one partition; a record's Kafka timestamp is NOW plus its offset, profiles 100 later."""
    logs: list[oracle.Log] = [{0: {}}, {0: {}}]
    for offset, (key, value) in enumerate(purchases):
        logs[0][0][offset] = oracle.judge_purchase(RawRecord(0, offset, NOW + offset, key.encode(), value, ()), "EUR")
    for offset, (key, maybe) in enumerate(profiles):
        logs[1][0][offset] = oracle.judge_profile(RawRecord(0, offset, NOW + 100 + offset, key.encode(), maybe, ()))
    return oracle.expect(*logs, purchase_topic=PURCHASES, profile_topic=PROFILES, currency="EUR")
