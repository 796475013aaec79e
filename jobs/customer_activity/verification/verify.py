"""Run every check once, or until the pipeline has caught up with the input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from customer_activity.catalog import Table
from customer_activity.errors import TransientError
from customer_activity.settings import Settings
from customer_activity.verification import comparison, kafka_input, lake, oracle, order, settling, totals
from customer_activity.verification.comparison import Check, Commits, compare_rows
from customer_activity.verification.landing import (
    LANDED_COLUMNS,
    TopicInput,
    compare_landed,
    quarantined,
    without_totals,
)
from customer_activity.verification.oracle import Expected
from customer_activity.verification.order import Notes, Order
from customer_activity.verification.records import Place, Profile, Purchase, RawRecord, Record
from customer_activity.verification.sampling import choose, restrict
from customer_activity.verification.view import ViewTopic

OnStep = Callable[[str], None]
Judge = Callable[[RawRecord, Place], Record]


@dataclass(frozen=True)
class Report:
    """What a verification found.

    Attributes:
        checks: every comparison.
        records: records read from Kafka, by topic.
        from_lake: records that only the lake still has, by topic.
        covers: by topic and partition, the first offset that was seen, where neither Kafka nor the lake has what was
            before.
        purchases: purchases counted.
        customers: customers in the view.
        turnover: sum of the counted purchases, in cents.
        currency: of the turnover.
        sample: how many customers were chosen to be compared, None for all.
        moving: how many of them were not, because records of theirs arrived while it ran.
        growth: how many input records arrived while it ran.
        seconds: how long it took.
    """

    checks: list[Check]
    records: dict[str, int]
    from_lake: dict[str, int]
    covers: dict[str, dict[int, int]]
    purchases: int
    customers: int
    turnover: int
    currency: str
    sample: int | None
    moving: int
    growth: int
    seconds: float

    @property
    def differences(self) -> int:
        """Differences of all checks together."""
        return sum(check.differences for check in self.checks)


# The tables whose commits carry the accounting: what bronze and silver write.
COUNTED = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.QUARANTINE, Table.PURCHASES, Table.PROFILE_CHANGES)


def verify(
    settings: Settings,
    *,
    settle_seconds: float,
    sample: int | None = None,
    seed: int = 0,
    on_step: OnStep = lambda _: None,
) -> Report:
    """Recompute the view from the input and compare every table and the view topic with it.

    A sample is compared while traffic runs, too: customers of whom a record arrives after the end that was noted are
    set aside, and what is said of all the others holds whatever arrives.

    Args:
        settings: which lake, which topics.
        settle_seconds: how long a pipeline that is at work may take to reach the end of the input noted at the start.
        sample: compare silver, gold and the view of this many random customers only.
        seed: of the sample.
        on_step: told what is being done.

    Raises:
        TerminalError: there is no lake.
        ActivityError: Kafka does not answer, or a topic is not there.
        TransientError: records of every customer of the sample arrived meanwhile.
    """
    started = time.monotonic()
    tables = lake.open_tables(settings)  # before a million records are read for nothing
    with _without_garbage_collection():
        on_step("reading the order of bronze")
        told = _tell(settings, tables)
        sources = [_read(settings, topic, judge, told, on_step) for topic, judge in _judges(settings).items()]
        view, positions = ViewTopic(), kafka_input.begins(settings, settings.view_topic)
        deadline = None
        while True:
            tables = lake.open_tables(settings)
            ends = kafka_input.ends(settings, settings.view_topic)
            state = settling.state(tables, ends)
            if told.versions != lake.versions(tables):
                told = _tell(settings, tables)
            on_step(f"reading {settings.view_topic}")
            view.take(settings.view_topic, kafka_input.read(settings, settings.view_topic, positions, ends))
            positions = ends
            if sample is not None:  # after the tables were opened: nothing is in them that is not on the topics by now
                for source in sources:
                    _follow(settings, source)
            pick = partial(choose, sample=sample, seed=seed)
            checks, expected = _compare(settings, tables, told, sources, view, pick=pick, on_step=on_step)
            if all(check.ok or check.impossible for check in checks):
                break
            deadline = deadline or time.monotonic() + settle_seconds
            on_step("waiting for the pipeline")
            if not settling.has_moved(settings, state, deadline):
                break
    chosen = choose(expected, sample=sample, seed=seed) or frozenset()
    settled = chosen - _moving(sources)
    if chosen and not settled:
        raise TransientError(
            f"records of all {len(chosen):,} customers of the sample arrived meanwhile",
            remedy="take a larger sample, or verify when there is less traffic",
        )
    return Report(
        checks=checks,
        records={source.topic: source.read for source in sources},
        from_lake={source.topic: source.from_lake for source in sources},
        covers={source.topic: found for source in sources if (found := source.covers())},
        purchases=len(expected.purchases),
        customers=len(expected.gold),
        turnover=sum(purchase.amount for purchase in expected.purchases.values()),
        currency=settings.currency,
        sample=sample,
        moving=len(chosen) - len(settled),
        growth=sum(_growth(settings, source) for source in sources),
        seconds=time.monotonic() - started,
    )


def _growth(settings: Settings, source: TopicInput) -> int:
    """How many records have been added to a topic since its end was noted."""
    return sum(kafka_input.ends(settings, source.topic).values()) - sum(source.end.values())


def _follow(settings: Settings, source: TopicInput) -> None:
    """Read on, for whose records arrive."""
    upto = kafka_input.ends(settings, source.topic)
    source.follow(kafka_input.read(settings, source.topic, source.followed or source.end, upto), upto)


def _moving(sources: list[TopicInput]) -> frozenset[str]:
    return frozenset(customer for source in sources for customer in source.moving)


class Told(NamedTuple):
    """What the lake says of itself at some versions of its tables.

    Attributes:
        versions: these.
        commits: of the tables whose commits carry the accounting.
        notes: what they say of landings.
        orders: by input topic, where bronze put its records.
    """

    versions: tuple[int, ...]
    commits: dict[Table, Commits]
    notes: Notes
    orders: dict[str, Order]


def _tell(settings: Settings, tables: lake.Tables) -> Told:
    commits = {table: lake.commits(settings.lake, table, tables[table]) for table in COUNTED}
    notes = Notes.of(metadata for table in lake.LANDED_AT for metadata in commits[table].metadata)
    places = lake.places(tables)
    orders = {topic: order.read(places, topic, notes) for topic in (settings.purchase_topic, settings.profile_topic)}
    return Told(lake.versions(tables), commits, notes, orders)


def _judges(settings: Settings) -> dict[str, Judge]:
    return {
        settings.purchase_topic: partial(oracle.judge_purchase, currency=settings.currency),
        settings.profile_topic: oracle.judge_profile,
    }


def _read(settings: Settings, topic: str, judge: Judge, told: Told, on_step: OnStep) -> TopicInput:
    """Read an input topic up to its present end."""
    on_step(f"reading {topic}")
    begin, end = kafka_input.begins(settings, topic), kafka_input.ends(settings, topic)
    source = TopicInput(topic, judge, begin, end, kafka_input.is_compacted(settings, topic), told.notes)
    source.take(kafka_input.read(settings, topic, begin, end), told.orders[topic])
    return source


def _compare(
    settings: Settings,
    tables: lake.Tables,
    told: Told,
    sources: list[TopicInput],
    view: ViewTopic,
    *,
    pick: Callable[[Expected], frozenset[str] | None],
    on_step: OnStep,
) -> tuple[list[Check], Expected]:
    """Make every check against the tables as they were opened."""
    purchases, profiles = sources
    on_step("comparing bronze")
    for source in sources:
        source.beyond, source.notes = 0, told.notes
    checks = [
        compare_landed(table.label, source, kind, lake.landed(tables, table, LANDED_COLUMNS[kind]))
        for table, source, kind in (
            (Table.PURCHASE_EVENTS, purchases, Purchase),
            (Table.PROFILE_EVENTS, profiles, Profile),
        )
    ]
    checks += [order.compare(topic, placed, told.notes.replays) for topic, placed in told.orders.items()]
    overflowing: list[str] = []
    quarantine = without_totals(lake.landed(tables, Table.QUARANTINE, ["reason"]), overflowing)
    refused = quarantined(sources, view.holding(settings.view_topic, quarantine))
    on_step("recomputing")
    expected = oracle.expect(
        purchases.log,
        profiles.log,
        purchase_topic=settings.purchase_topic,
        profile_topic=settings.profile_topic,
        currency=settings.currency,
    )
    on_step("comparing quarantine, silver and gold")
    checks += comparison.compare_quarantine(expected.quarantine, refused)
    if overflowing or expected.frozen:
        moving = _moving(sources)
        counted = [customer for customer in overflowing if customer not in moving]
        checks.append(comparison.compare_totals(expected.frozen.keys() - moving, counted))
    chosen = pick(expected)
    chosen = None if chosen is None else chosen - _moving(sources)
    wanted = expected if chosen is None else restrict(expected, chosen)
    for table, columns, rows in (
        (Table.PURCHASES, comparison.PURCHASE_COLUMNS, wanted.purchases),
        (Table.SUMMARIES, comparison.SUMMARY_COLUMNS, wanted.summaries),
        (Table.PROFILES, comparison.PROFILE_COLUMNS, wanted.profiles),
    ):
        checks.append(compare_rows(table.label, columns, rows, lake.rows(tables[table], columns, chosen)))
    position = ("landing", "partition", "offset")
    changes = lake.newest(tables[Table.PROFILE_CHANGES], comparison.PROFILE_COLUMNS, position, "is_tombstone", chosen)
    label = Table.PROFILE_CHANGES.label
    checks.append(compare_rows(label, comparison.PROFILE_COLUMNS, wanted.profiles, changes))
    version = ("view_version",)
    states = list(lake.newest(tables[Table.ACTIVITY_CHANGES], comparison.GOLD_COLUMNS, version, "is_gone", chosen))
    wanted.gold.update(totals.settled(states, wanted.frozen))
    checks.append(comparison.compare_gold(Table.ACTIVITY_CHANGES.label, wanted.gold, states)[0])
    gold_rows = lake.rows(tables[Table.ACTIVITY], comparison.GOLD_COLUMNS, chosen)
    gold, versions = comparison.compare_gold(Table.ACTIVITY.label, wanted.gold, gold_rows)
    largest = kafka_input.largest_record(settings, settings.view_topic)
    checks += [gold, *view.checks(wanted.gold, versions, chosen, largest)]
    has_arrived = {source.topic: bool(source.followed) and source.followed != source.end for source in sources}
    for topic, outcomes in expected.outcomes.items():
        checks.append(comparison.compare_accounting(topic, outcomes, told.commits, is_moving=has_arrived[topic]))
    return checks, expected


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Millions of tuples, none of them in a cycle: looking for cycles among them costs more than reading them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
