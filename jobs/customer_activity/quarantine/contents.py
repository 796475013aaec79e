"""What is in quarantine: by topic and reason, and record by record, without the records' own bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import dataset

from customer_activity.catalog import Reason, Table, table_path
from customer_activity.errors import SettingsError

PLACE = ["topic", "partition", "offset"]
SHOWN = [*PLACE, "kafka_timestamp", "reason", "detail", "quarantined_at"]


@dataclass(frozen=True)
class Selection:
    """Which records: all that fit whatever is given.

    Attributes:
        reason: why they were refused.
        topic: where they were.
        since: Kafka's time of them, from.
        until: the same, up to and without.
    """

    reason: Reason | None = None
    topic: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def expression(self) -> pc.Expression:
        """Return it as a filter of Arrow's."""
        chosen = pc.field("reason").is_valid()
        if self.reason is not None:
            chosen &= pc.field("reason") == self.reason.value
        if self.topic is not None:
            chosen &= pc.field("topic") == self.topic
        if self.since is not None:
            chosen &= pc.field("kafka_timestamp") >= pa.scalar(self.since, pa.timestamp("us", tz="UTC"))
        if self.until is not None:
            chosen &= pc.field("kafka_timestamp") < pa.scalar(self.until, pa.timestamp("us", tz="UTC"))
        return chosen


class Group(NamedTuple):
    """Records of a topic that were refused for one reason: how many, and Kafka's times of the first and the last."""

    topic: str
    reason: str
    records: int
    oldest: datetime | None
    newest: datetime | None


def selected(lake: str, selection: Selection, columns: list[str]) -> pa.Table:
    """Return columns of the records chosen.

    Raises:
        SettingsError: there is no lake.
    """
    return _scanned(lake, selection, columns).to_table()


def _scanned(lake: str, selection: Selection, columns: list[str]) -> dataset.Scanner:
    try:
        table = DeltaTable(table_path(lake, Table.QUARANTINE))
    except TableNotFoundError:
        raise SettingsError(
            f"there is no quarantine at {lake}", remedy="set ACTIVITY_LAKE to the lake you mean"
        ) from None
    # What a replay's merge wrote has texts as views, which Arrow cannot compare with a text: the rows get the table's
    # own types first.
    rows = table.to_pyarrow_dataset().scanner().to_reader()
    return dataset.Scanner.from_batches(rows, columns=columns, filter=selection.expression())


def size(lake: str, selection: Selection) -> tuple[int, int]:
    """Return how many records are chosen, and the bytes of their keys and values; they are read a few at a time.

    Raises:
        SettingsError: there is no lake.
    """
    records = size = 0
    for batch in _scanned(lake, selection, ["key", "value"]).to_batches():
        records += batch.num_rows
        size += sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in batch.columns)
    return records, size


def groups(lake: str, selection: Selection) -> list[Group]:
    """Count the records chosen by topic and reason, most first.

    Raises:
        SettingsError: there is no lake.
    """
    found = selected(lake, selection, ["topic", "reason", "kafka_timestamp"])
    counted = found.group_by(["topic", "reason"]).aggregate(
        [([], "count_all"), ("kafka_timestamp", "min"), ("kafka_timestamp", "max")]
    )
    columns = ["topic", "reason", "count_all", "kafka_timestamp_min", "kafka_timestamp_max"]
    rows = zip(*(counted.column(name).to_pylist() for name in columns), strict=True)
    return sorted((Group(*row) for row in rows), key=lambda group: -group.records)


def records(lake: str, selection: Selection, limit: int) -> list[dict[str, Any]]:
    """Return the newest records chosen: where they were and why they were refused.

    Raises:
        SettingsError: there is no lake.
    """
    found = selected(lake, selection, SHOWN).sort_by([("quarantined_at", "descending"), ("offset", "descending")])
    listed: list[dict[str, Any]] = found.slice(0, limit).to_pylist()
    return listed
