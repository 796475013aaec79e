"""Event time: decides once how late each purchase is, and when windows close.

Reads      silver.purchases, change data feed
Writes     ops.watermarks (append), silver.timed_purchases (append); ops.reprocessed_purchases is made with them, and
           `activity reprocess` writes it
Grain      one row per purchase that counts; one watermark per landing that moved it
On restart the clock is what the newest commit notes; watermarks that are stored are not decided again

Spark drops late rows by where batches were cut, and a rebuild would drop others. Here lateness is a column: the same
whatever the batches, and whoever computes it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.columns import COUNTED
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import derived
from customer_activity.engine.changes import ChangeStream, table_of
from customer_activity.engine.stream import Append, Context, Opened, Steps
from customer_activity.errors import Corrected
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.event_time import clock
from customer_activity.streams.event_time.clock import Clock, Closing
from customer_activity.topology import How, Made, Reads, Spec, Writes

NOTE, IDLE = "clock", "idle"  # of a commit to silver.timed_purchases
MICROS_A_MINUTE = 60_000_000
# What was decided is the record itself. What is checked: it is what the positions say that are stored with it, and it
# never goes back. It may be ahead of all that is there: what it was decided by can be corrected afterwards.
EXPECTED_WATERMARKS = """
SELECT * EXCLUDE (before)
FROM (SELECT *, max(watermark) OVER (ORDER BY landing ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
    FROM watermarks)
WHERE coalesce(before < watermark, true)
    AND watermark = date_trunc('minute', list_min([p.event_time FOR p IN positions IF NOT p.is_idle]))
"""
SPEC = Spec(
    "event_time",
    reads=(Reads(Table.PURCHASES, progress=Table.TIMED_PURCHASES),),
    writes=(
        Writes(
            Table.WATERMARKS,
            key=("landing",),
            expected=EXPECTED_WATERMARKS,
            made=(
                Made("watermark", ("occurred_at",), How.AGGREGATION),
                Made("decided_at"),
                Made("positions", ("partition", "offset", "occurred_at"), How.AGGREGATION),
            ),
        ),
        Writes(
            Table.TIMED_PURCHASES,
            key=("purchase_id",),
            expected=clock.EXPECTED,
            made=tuple(
                Made(name, ("occurred_at",), How.AGGREGATION)
                for name in ("partition_time", "watermark", "next_watermark")
            ),
        ),
        Writes(
            Table.REPROCESSED,
            key=("purchase_id",),
            expected="FROM reprocessed",
            made=(Made("day", ("occurred_at",)), Made("reprocessed_at"), Made("reason")),  # who asked says why
        ),
    ),
    promises="each purchase is stamped once with the event time of its partition, and each watermark is stored",
    is_behind=True,
    is_optional=True,
)
COLUMNS = COUNTED.names


@dataclass
class EventTime:
    """The stream, as the registry lists it and as it is opened: with a clock that its writes move."""

    idle: int | None = None  # microseconds; None: no watermark is decided
    clock: Clock = field(default_factory=Clock)
    known: Mapping[int, int] = field(default_factory=dict)  # stored watermarks by landing
    moved: list[Closing] = field(default_factory=list)  # of the rows that were made last, and not stored

    spec = SPEC
    source = Table.PURCHASES
    target = Table.TIMED_PURCHASES
    columns = COLUMNS

    def open(self, context: Context) -> Opened:
        """Open it for a driver, at the clock that the table notes."""
        lake = context.settings.lake
        at = Clock.of(derived.noted(lake, SPEC, self.target).get(NOTE))
        opened = EventTime(_idle(context.settings), at, _stored(lake, after=at.landing))
        return ChangeStream(SPEC, {self.source: COLUMNS}, lambda _: opened.step).open(context)

    def step(self, part: Feed, batch: MicroBatch) -> Steps:
        """Stamp a part's purchases: what was decided is stored before what follows from it.

        Raises:
            Corrected: a correction has added purchases of landings that are in the clock.
        """
        with batch.phase("compute"):
            purchases = table_of(part, self.source, COLUMNS)
            if part.corrections:
                self._require_newer(purchases)
            rows, closings, after = self.stamped(purchases)
        if moved := self.undecided(closings):
            yield Append(Table.WATERMARKS, _as_rows(moved))
        batch.extra |= {NOTE: after.noted(), IDLE: self.idle}
        batch.rows += rows.num_rows
        yield Append(self.target, rows)
        self.clock = after

    def _require_newer(self, purchases: pa.Table) -> None:
        """Make sure that the clock has not come to purchases yet: it cannot tell how far their partitions were then.

        Batches have each landing whole, and after those before it. What a correction adds is of any landing.
        """
        landings = pc.fill_null(purchases.column("landing"), clock.BEFORE_NUMBERS)
        oldest = pc.min(landings).as_py()
        if oldest is None or oldest > self.clock.landing:
            return
        raise Corrected(
            f"{self.source.label}: a correction has added purchases of landing {oldest}, and event time has come to "
            f"landing {self.clock.landing}",
            remedy=f"`activity rebuild --stream {SPEC.name}` computes it and what follows from it again",
        )

    def stamped(self, purchases: pa.Table) -> tuple[pa.Table, Iterable[Closing], Clock]:
        """Return purchases with their stamps, the landings that moved the watermark, and the clock after them."""
        found = clock.stamp(purchases.select(clock.READ), self.clock, self.idle, self.known)
        for name, values in found.columns.items():
            purchases = purchases.append_column(name, values.cast(pa.timestamp("us", "UTC")))
        return purchases.cast(arrow_schema(self.target)), found.closings, found.clock

    def undecided(self, closings: Iterable[Closing]) -> list[Closing]:
        """Return those that are not stored yet."""
        return [each for each in closings if each.landing not in self.known]

    def as_noted(self, lake: str) -> EventTime:
        """Return it with the watermarks that are stored; only landings after them are decided, as they would have been.

        Where the stream has never run, nothing is decided.
        """
        return EventTime(derived.noted(lake, SPEC, self.target).get(IDLE), known=_stored(lake))

    def as_set(self, settings: Settings) -> EventTime:
        """Return it with the watermarks that are stored; only landings after them are decided."""
        return EventTime(_idle(settings), known=_stored(settings.lake))

    def rows(self, changes: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return all purchases with their stamps; the clock is after them then."""
        schema = pa.schema([arrow_schema(self.source).field(name) for name in COLUMNS])
        purchases = pa.Table.from_batches([batch.cast(schema) for batch in changes], schema)
        rows, closings, self.clock = self.stamped(purchases)
        self.moved = self.undecided(closings)
        return rows

    def besides(self) -> Mapping[Table, pa.Table]:
        """Return the watermarks that were decided for the rows that were made last, and are not stored."""
        return {Table.WATERMARKS: _as_rows(self.moved)} if self.moved else {}

    def note(self, rows: pa.Table) -> Mapping[str, Any]:  # noqa: ARG002 - as others have it
        """Return what a commit notes that leaves the table with the rows that were made last."""
        return {NOTE: self.clock.noted(), IDLE: self.idle}


def _idle(settings: Settings) -> int:
    """Return after how many microseconds a silent partition is idle."""
    return round(settings.idle_partition_minutes * MICROS_A_MINUTE)


def _stored(lake: str, after: int = clock.BEFORE_NUMBERS - 1) -> dict[int, int]:
    """Return the watermarks that are stored, by landing, of the landings after one."""
    table = DeltaTable(table_path(lake, Table.WATERMARKS)).to_pyarrow_dataset()
    found = table.to_table(columns=["landing", "watermark"], filter=pc.field("landing") > after)
    watermarks = found.column("watermark").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return dict(zip(found.column("landing").to_pylist(), watermarks.to_pylist(), strict=True))


def _as_rows(closings: Iterable[Closing]) -> pa.Table:
    """Return landings that moved the watermark as rows of ops.watermarks."""
    now = int(datetime.now(UTC).timestamp() * 1_000_000)
    rows = [
        {
            "landing": landing,
            "watermark": watermark,
            "decided_at": now,
            "positions": [
                {"partition": number, "offset": place.offset, "event_time": place.event_time, "is_idle": is_idle}
                for number, place, is_idle in positions
            ],
        }
        for landing, watermark, positions in closings
    ]
    return pa.Table.from_pylist(rows, arrow_schema(Table.WATERMARKS))


STREAM = EventTime()
