"""What quality needs of Kafka, from a pipeline that has none; and damage done to tables behind everybody's back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from customer_activity.catalog import Table, table_path
from customer_activity.kafka import clients
from customer_activity.kafka.marker import Marker
from customer_activity.quality import outside
from customer_activity.quality.outside import View
from customer_activity.quality.run import Report
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input
from customer_activity.verification.records import RawRecord
from support.pipeline import Pipeline

Rows = list[dict[str, Any]]


@dataclass
class Topics:
    """The topics as a test left them: what was sent, and the view's last values."""

    sent: dict[tuple[str, int], list[RawRecord]]
    values: dict[bytes, bytes | None]
    marker: Marker | None
    partitions: int = 2
    lowest: dict[tuple[str, int], int] = field(default_factory=dict)
    asked_at: Callable[[], int] = time.time_ns  # when the view is read, in nanoseconds

    @classmethod
    def of(cls, pipeline: Pipeline) -> Topics:
        """Take what a pipeline was sent and published."""
        sent = {
            place: [
                RawRecord(place[1], offset, record.timestamp_ms, record.key, record.value, ())
                for offset, record in enumerate(records)
                if (*place, offset) not in pipeline.log.compacted
            ]
            for place, records in pipeline.log.entries.items()
        }
        return cls(sent, dict(pipeline.view.values), pipeline.view.marker, pipeline.log.partitions)

    def serve(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand in for Kafka."""

        def offset_range(_: Settings, topic: str) -> dict[int, tuple[int, int]]:
            places = {partition: (topic, partition) for partition in range(self.partitions)}
            return {
                partition: (
                    self.lowest.get(place, 0),
                    max((record.offset + 1 for record in self.sent.get(place, ())), default=0),
                )
                for partition, place in places.items()
            }

        def read(_: Settings, topic: str, start: Mapping[int, int], end: Mapping[int, int]) -> Iterator[RawRecord]:
            for partition, first in start.items():
                for record in self.sent[topic, partition]:
                    if first <= record.offset < end[partition]:
                        yield record

        monkeypatch.setattr(clients, "offset_range", offset_range)
        monkeypatch.setattr(kafka_input, "read", read)
        monkeypatch.setattr(outside, "read_view", lambda _: View(self.values, self.marker, self.asked_at() // 1_000))

    def change_view(self, customer: str, **fields: Any) -> None:
        """Change fields of a customer's last value."""
        value = json.loads(self.values[customer.encode()] or b"null")
        text = json.dumps(value | fields)
        for name in ("totalAmount",):  # two decimals, as the topic has them
            text = text.replace(f'"{name}": {(value | fields)[name]}', f'"{name}": {(value | fields)[name]:.2f}')
        self.values[customer.encode()] = text.encode()


OLD = {"gold_is_of_today", "silver_keeps_up", "gold_keeps_up"}  # rules that fail of records of long ago


def failing(report: Report) -> set[str]:
    """Name the rules that did not pass; none of them could not be judged."""
    assert [v.judged.found for v in report.verdicts if v.judged.outcome is Outcome.ERROR] == []
    return {verdict.rule.rule for verdict in report.failing}


def rewrite(lake: str, table: Table, change: Callable[[Rows], Rows | None]) -> None:
    """Replace a table's rows by what `change` makes of them; it changes them in place, or returns others."""
    opened = DeltaTable(table_path(lake, table))
    held = opened.to_pyarrow_table()
    rows: Rows = held.to_pylist()
    changed = change(rows)
    write_deltalake(
        table_path(lake, table),
        pa.Table.from_pylist(rows if changed is None else changed, held.schema),
        mode="overwrite",
    )


def tell(lake: str, table: Table, note: Mapping[str, Any]) -> None:
    """Commit nothing but a note of what a batch is said to have counted."""
    schema = DeltaTable(table_path(lake, table)).to_pyarrow_dataset().schema
    write_deltalake(
        table_path(lake, table),
        schema.empty_table(),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps(note)}),
    )
