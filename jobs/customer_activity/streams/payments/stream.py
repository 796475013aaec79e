"""Payments: each purchase with the payment that counts, those that nobody paid, and payments that match none.

Reads      silver.timed_purchases and bronze.payment_events, change data feeds
Writes     silver.paid_purchases (append), silver.unpaid_purchases and ops.unmatched_payments (merge)
Grain      one row per purchase that is paid, or that is not in time; one per payment that makes no purchase paid
On restart what the newest commit to ops.unmatched_payments notes as read is left out; of a part that a crash ended
           every write is made from all that is known of its purchases, so that it is the same once more

What it has to know of the past is in its own tables. A payment that was read is in one of two: it counts, or it is
unmatched and may count later. A purchase that was read is paid, unpaid, or waits: then its event time is behind the
watermark by less than the payment time and the grace, and file statistics lead to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import derived
from customer_activity.engine.changes import ChangeStream, table_of
from customer_activity.engine.closing import NOTE as CLOSED_TO
from customer_activity.engine.closing import WATERMARK, Closing
from customer_activity.engine.derived import DEFINITION, MICROS_A_MINUTE, MICROS_AN_HOUR, Computed
from customer_activity.engine.stream import Append, Context, Merge, Opened, Steps
from customer_activity.errors import SettingsError
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch, Place
from customer_activity.settings import Settings
from customer_activity.streams.payments import ending, expected, spread
from customer_activity.streams.payments.joining import GONE, Due, join
from customer_activity.streams.payments.matching import PAYMENT, PLACE, PURCHASE, match, unpaid
from customer_activity.streams.payments.past import Past
from customer_activity.topology import Reads, Spec, Writes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LANDED_TO = "purchases_landed_to"  # in the note of a commit: the newest landing of the purchases that were read
SPEC = Spec(
    "payments",
    reads=(
        Reads(Table.TIMED_PURCHASES, progress=Table.UNMATCHED_PAYMENTS),
        Reads(Table.PAYMENT_EVENTS, progress=Table.UNMATCHED_PAYMENTS),
    ),
    writes=(
        Writes(
            Table.PAID, key=("purchase_id",), with_every_batch=True, expected=expected.PAID, made=expected.MADE_OF_PAID
        ),
        Writes(
            Table.UNPAID,
            key=("purchase_id",),
            with_every_batch=True,
            expected=expected.UNPAID,
            made=expected.MADE_OF_UNPAID,
        ),
        Writes(Table.UNMATCHED_PAYMENTS, key=PLACE, expected=expected.UNMATCHED, made=expected.MADE_OF_UNMATCHED),
    ),
    promises="each purchase is paid by its first payment that agrees with it, and every other payment says why not",
    is_behind=True,
    is_spread=True,
    is_optional=True,
)
STAMPS = ["landing", WATERMARK]
COLUMNS = {Table.TIMED_PURCHASES: [*PURCHASE, *STAMPS], Table.PAYMENT_EVENTS: PAYMENT}


class Terms(NamedTuple):
    """Until when a purchase is to be paid, as the settings say, and as the tables were computed."""

    payment_minutes: float = 30.0
    grace_hours: float = 24.0

    @property
    def window(self) -> int:
        """Microseconds within which a purchase is to be paid."""
        return round(self.payment_minutes * MICROS_A_MINUTE)

    @property
    def grace(self) -> int:
        """Microseconds for which a purchase waits for its payment beyond that."""
        return round(self.grace_hours * MICROS_AN_HOUR)

    def __str__(self) -> str:
        """Say it as settings."""
        return f"ACTIVITY_PAYMENT_MINUTES={self.payment_minutes:g}, ACTIVITY_GRACE_HOURS={self.grace_hours:g}"


DEFAULT = Terms()


@dataclass(frozen=True)
class Payments:
    """The stream, as the registry lists it and as it is opened."""

    terms: Terms = DEFAULT

    spec = SPEC
    columns = COLUMNS

    def as_set(self, settings: Settings) -> Payments:
        """Return it as the settings have it."""
        return Payments(Terms(settings.payment_minutes, settings.grace_hours))

    def as_noted(self, lake: str) -> Payments:
        """Return it as its tables were computed."""
        return Payments(_terms_noted(lake) or self.terms)

    def require_same(self, lake: str) -> None:
        """Make sure that the tables have been computed by these terms, as far as they have been.

        Raises:
            SettingsError: they were computed by others.
        """
        found = _terms_noted(lake)
        if found is not None and found != self.terms:
            raise SettingsError(
                f"{Table.UNPAID.label} was computed with {found}, and the settings say {self.terms}",
                remedy=f"`activity rebuild --stream {SPEC.name}` recomputes it; or set them as they were",
            )

    def open(self, context: Context) -> Opened:
        """Open it for a driver.

        Raises:
            SettingsError: its tables were computed by other terms.
        """
        lake, bound = context.settings.lake, self.as_set(context.settings)
        bound.require_same(lake)
        step = partial(bound.step, spark=context.spark, settings=context.settings)
        return ChangeStream(SPEC, COLUMNS, lambda _: step).open(context)

    def step(self, part: Feed, batch: MicroBatch, *, spark: SparkSession, settings: Settings) -> Steps:
        """Join a part's purchases and payments, in the driver or on executors."""
        lake = settings.lake
        with batch.phase("read"):
            here = None if _is_spread(batch) else {table: table_of(part, table, COLUMNS[table]) for table in COLUMNS}
            if here is None:
                stamps = part.batches(Table.TIMED_PURCHASES, STAMPS)
            else:
                stamps = iter(here[Table.TIMED_PURCHASES].select(STAMPS).to_batches())
            due, landed_to = self._moved(stamps, batch, lake)
            if here is not None and batch.placement is not None:
                batch.placement = ending.placed(batch.placement, due, landed_to, spark=spark, settings=settings)
        if here is None or _is_spread(batch):
            yield from spread.steps(SPEC, part, batch, due=due, landed_to=landed_to, spark=spark, settings=settings)
            return
        bought, payments = here.values()
        with batch.phase("compute"):
            joined = join(bought, payments, Past.in_tables(lake, landed_to), due)
        # First of all: whatever is paid is neither unpaid nor waits, also where a crash lets it be looked at once more.
        yield Append(Table.PAID, joined.paid)
        yield Merge(Table.UNPAID, joined.unpaid, delete_when=f"s.{GONE}")
        yield Merge(Table.UNMATCHED_PAYMENTS, joined.unmatched, delete_when=f"s.{GONE}")
        batch.rows = bought.num_rows + payments.num_rows

    def _moved(self, stamps: Iterable[pa.RecordBatch], batch: MicroBatch, lake: str) -> tuple[Due, int]:
        """Return whose time to be paid is over with a part, and the newest landing that was read; have both noted."""
        noted = derived.noted(lake, SPEC, Table.UNMATCHED_PAYMENTS)
        before = Closing(self.terms.grace, noted.get(CLOSED_TO))
        landed_to, after = noted.get(LANDED_TO, 0), before
        for of_batch in stamps:
            landed_to = max(landed_to, pc.max(of_batch.column("landing")).as_py() or 0)
            after = after.moved([of_batch.column(WATERMARK)])
        batch.extra |= self._note(after, landed_to)
        return self._due(before, after), landed_to

    def _due(self, before: Closing, after: Closing) -> Due:
        window = self.terms.window
        return Due(window, *(None if each.upto is None else each.upto - window for each in (before, after)))

    def computed(self, changes: Mapping[Table, Iterable[pa.RecordBatch]]) -> Computed:
        """Return all rows of the tables, made of all rows of the sources, and what their commits note."""
        bought, payments = (_table(table, changes[table]) for table in COLUMNS)
        matched = match(bought, payments, self.terms.window)
        closing = Closing(self.terms.grace).moved([bought.column(WATERMARK)])
        tables = {
            Table.PAID: matched.paid,
            Table.UNPAID: unpaid(self._due(closing, closing).closed(bought), matched.paid, self.terms.window),
            Table.UNMATCHED_PAYMENTS: matched.unmatched,
        }
        return Computed(tables, self._note(closing, pc.max(bought.column("landing")).as_py() or 0))

    def _note(self, closing: Closing, landed_to: int) -> dict[str, Any]:
        closed = {} if closing.upto is None else {CLOSED_TO: closing.upto}
        return {DEFINITION: self.terms._asdict(), LANDED_TO: landed_to, **closed}


def _is_spread(batch: MicroBatch) -> bool:
    return batch.placement is not None and batch.placement.place is Place.EXECUTORS


def _terms_noted(lake: str) -> Terms | None:
    found = derived.noted(lake, SPEC, Table.UNMATCHED_PAYMENTS).get(DEFINITION)
    return None if found is None else Terms(**found)


def _table(table: Table, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    schema = pa.schema([arrow_schema(table).field(name) for name in COLUMNS[table]])
    return pa.Table.from_batches([batch.cast(schema) for batch in batches], schema)


STREAM = Payments()
