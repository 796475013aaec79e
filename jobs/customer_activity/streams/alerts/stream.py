"""Alerts: whose purchases are like a fraudster's, told once, within seconds of the purchase that shows it?

Reads      silver.timed_purchases, change data feed, and the table for purchases near those of a batch (`nearby.py`)
Writes     gold.fraud_alerts (append)
Grain      one row per window or session and rule; its id is made of rule, customer and the purchase that first made it
           true
On restart what the newest commit notes as read is left out; what is read again leads to the same alerts
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import derived
from customer_activity.engine.changes import ChangeStream, table_of
from customer_activity.engine.derived import DEFINITION
from customer_activity.engine.merge_spread import kept
from customer_activity.engine.stream import Append, Context, Opened, Steps
from customer_activity.engine.workers import Executors, Workers
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch, Place
from customer_activity.settings import Settings
from customer_activity.streams.alerts import expected, rules, spread
from customer_activity.streams.alerts.limits import Limits
from customer_activity.streams.alerts.nearby import Nearby
from customer_activity.streams.alerts.rules import SCHEMA, SOURCE
from customer_activity.topology import How, Made, Reads, Spec, Writes

SPEC = Spec(
    "alerts",
    reads=(Reads(SOURCE, progress=Table.FRAUD_ALERTS),),
    writes=(
        Writes(
            Table.FRAUD_ALERTS,
            key=("alert_id",),
            expected=expected.ALERTS,
            made=(
                Made("alert_id", ("customer_id", "purchase_id")),
                Made("rule", ("amount", "risk_score", "occurred_at")),
                Made("window_start", ("occurred_at",), How.AGGREGATION),
                Made("window_end", ("occurred_at",), How.AGGREGATION),
                Made("purchase_count", ("purchase_id",), How.AGGREGATION),
                Made("total_amount", ("amount",), How.AGGREGATION),
            ),
        ),
    ),
    promises="each window or session that goes over a limit has one alert a rule, by the purchase that took it there",
    is_behind=True,
    is_spread=True,
    is_optional=True,
    paced_by="alert_seconds",
)


@dataclass(frozen=True)
class Alerts:
    """The stream, for limits that alerts go by."""

    limits: Limits

    spec = SPEC
    source = SOURCE
    target = Table.FRAUD_ALERTS
    columns = rules.COLUMNS

    def open(self, context: Context) -> Opened:
        """Open it for a driver.

        Raises:
            SettingsError: its table was computed by other limits.
        """
        bound, lake = self.as_set(context.settings), context.settings.lake
        derived.require_same(lake, SPEC, self.target, bound.limits)
        step = partial(bound.step, nearby=Nearby(lake), workers=Executors(context.spark), settings=context.settings)
        return ChangeStream(SPEC, {SOURCE: rules.COLUMNS}, lambda _: step).open(context)

    def step(self, part: Feed, batch: MicroBatch, *, nearby: Nearby, workers: Workers, settings: Settings) -> Steps:
        """Append the alerts that a part's purchases make; without any the commit carries the batch's notes alone."""
        batch.extra |= self.noted()
        if batch.placement is not None and batch.placement.place is Place.EXECUTORS:
            files = spread.alerts(part, batch, limits=self.limits, nearby=nearby, workers=workers, settings=settings)
            yield from kept(Append(self.target, files=files), settings.lake)
            return
        with batch.phase("read"):
            bought = table_of(part, SOURCE, rules.COLUMNS)
            spans = rules.decisive(self.limits, bought)
            near = nearby.of(pc.unique(bought.column("customer_id")), spans)
        with batch.phase("compute"):
            found = rules.alerts_of(self.limits, bought, near)
        batch.rows += bought.num_rows
        yield Append(self.target, found)

    def as_noted(self, lake: str) -> Alerts:
        """Return it as its table was computed."""
        found = derived.definition_noted(lake, SPEC, self.target, Limits)
        return self if found is None else Alerts(found)

    def as_set(self, settings: Settings) -> Alerts:
        """Return it as the settings have it."""
        return Alerts(Limits.of(settings))

    def rows(self, changes: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the alerts that all purchases make."""
        purchases = pa.Table.from_batches([batch.cast(SCHEMA) for batch in changes], SCHEMA)
        return rules.alerts(self.limits, purchases).cast(arrow_schema(self.target))

    def besides(self) -> Mapping[Table, pa.Table]:
        """Return nothing: it has one table."""
        return {}

    def note(self, rows: pa.Table) -> Mapping[str, Any]:  # noqa: ARG002 - as others have it
        """Return what a commit notes: the limits."""
        return self.noted()

    def noted(self) -> Mapping[str, Any]:
        """Return the limits, as a commit notes them."""
        return {DEFINITION: self.limits._asdict()}


STREAM = Alerts(Limits())
