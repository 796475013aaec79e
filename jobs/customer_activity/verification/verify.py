"""Run every check once, or until the pipeline has caught up with the input."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from customer_activity.catalog import Table
from customer_activity.errors import TransientError
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input, lake, oracle, settling
from customer_activity.verification.checking import (
    ALL,
    KNOWN,
    VIEW,
    OnStep,
    Told,
    compare,
    inputs,
    moving,
    subject,
    tell,
)
from customer_activity.verification.comparison import Check
from customer_activity.verification.declared import Declared
from customer_activity.verification.landing import TopicInput
from customer_activity.verification.published import PublishedTopic, Seen, camel_case, must_have
from customer_activity.verification.published import compare as compare_published
from customer_activity.verification.records import Payment, Place, Profile, Purchase, RawRecord, Record
from customer_activity.verification.sampling import choose
from customer_activity.verification.view import ViewTopic

Judge = Callable[[RawRecord, Place], Record]


@dataclass(frozen=True)
class Report:
    """What a verification found."""

    checks: list[Check]
    records: dict[str, int]  # read from Kafka, by topic
    from_lake: dict[str, int]  # records that only the lake still has, by topic
    # By topic and partition, the first offset that was seen, where neither Kafka nor the lake has what was before.
    covers: dict[str, dict[int, int]]
    purchases: int  # that count
    customers: int  # customers in the view
    turnover: int  # sum of the counted purchases, in cents
    currency: str
    sample: int | None  # how many customers were chosen to be compared, None for all
    moving: int  # how many of them were not, because records of theirs arrived while it ran
    growth: int  # how many input records arrived while it ran
    seconds: float

    @property
    def differences(self) -> int:
        """Differences of all checks together."""
        return sum(check.differences for check in self.checks)


def verify(
    settings: Settings,
    *,
    settle_seconds: float,
    sample: int | None = None,
    seed: int = 0,
    only: frozenset[str] | None = None,
    others: Sequence[Declared] = (),
    published: Sequence[PublishedTopic] = (),
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
        only: what is compared: tables by their labels, the view, the order of landings, the accounting; all of it when
            not given.
        others: tables that the oracle does not know, with what their streams say that they must hold; with that of
            payment records among them their topic is read, too.
        published: topics that publish tables, beside the view.
        on_step: told what is being done.

    Raises:
        TerminalError: there is no lake.
        ActivityError: Kafka does not answer, or a topic is not there.
        TransientError: records of every customer of the sample arrived meanwhile.
    """
    started = time.monotonic()
    named = {*(each.table.label for each in others), *(each.topic for each in published)}
    only = ALL.union(named) if only is None else only
    published = [each for each in published if each.topic in only]
    added = dict.fromkeys([*(each.table for each in others), *(each.table for each in published)])
    added |= dict.fromkeys(each.outdated for each in published if each.outdated)
    wanted = [*sorted(KNOWN), *added]
    others = [each for each in others if each.table not in lake.LANDED_AT]
    tables = lake.open_tables(settings, wanted)  # before a million records are read for nothing
    with _without_garbage_collection():
        on_step("reading the order of bronze")
        told = tell(settings, tables)
        judge_purchase = partial(oracle.judge_purchase, currency=settings.currency)
        judges: dict[type, Judge] = {
            Purchase: judge_purchase,
            Profile: oracle.judge_profile,
            Payment: oracle.judge_payment,
        }
        sources = [_read(settings, each.topic, judges[each.kind], told, on_step) for each in inputs(settings, tables)]
        view, positions = ViewTopic(), kafka_input.begins(settings, settings.view_topic)
        seen = {each.topic: Seen(tuple(map(camel_case, each.order))) for each in published}
        deadline = None
        while True:
            tables = lake.open_tables(settings, wanted)
            ends = kafka_input.ends(settings, settings.view_topic)
            state = settling.state(settings, tables, seen)
            if told.versions != lake.versions(tables):
                told = tell(settings, tables)
            if VIEW in only:
                on_step(f"reading {settings.view_topic}")
                view.take(settings.view_topic, kafka_input.read(settings, settings.view_topic, positions, ends))
                positions = ends
            for source in sources:  # after the tables were opened: nothing is in them that is not on the topics by now
                source.present = kafka_input.ends(settings, source.topic)
                if sample is not None:
                    _follow(settings, source)
            pick = partial(choose, sample=sample, seed=seed)
            made, expected = compare(
                settings, tables, told, sources, view, only=only, others=others, pick=pick, on_step=on_step
            )
            checks = [check for check in made if subject(check) in only]
            for each in published:
                on_step(f"reading {each.topic}")
                checks.append(_compare_published(settings, each, tables, seen[each.topic], sample=sample))
            if all(check.ok or check.impossible for check in checks):
                break
            deadline = deadline or time.monotonic() + settle_seconds
            on_step("waiting for the pipeline")
            if not settling.has_moved(settings, wanted, seen, state, deadline):
                break
    chosen = choose(expected, sample=sample, seed=seed) or frozenset()
    settled = chosen - moving(sources)
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
        growth=sum(
            sum(kafka_input.ends(settings, source.topic).values()) - sum(source.end.values()) for source in sources
        ),
        seconds=time.monotonic() - started,
    )


def _compare_published(
    settings: Settings, published: PublishedTopic, tables: lake.Tables, seen: Seen, *, sample: int | None
) -> Check:
    if sample is not None:
        why = "a sample is of customers, and this topic need not be"
        return Check(published.topic, 0, 0, 0, impossible=why)
    seen.read(settings, published.topic)
    seen.hold(lake.too_large(tables[Table.QUARANTINE], published.topic))
    largest = kafka_input.largest_record(settings, published.topic, *published.beside)
    return compare_published(published, tables, seen, largest, must_have(settings.lake, published, tables, seen))


def _follow(settings: Settings, source: TopicInput) -> None:
    """Read on, for whose records arrive."""
    records = kafka_input.read(settings, source.topic, source.followed or source.end, source.present)
    source.follow(records, source.present)


def _read(settings: Settings, topic: str, judge: Judge, told: Told, on_step: OnStep) -> TopicInput:
    """Read an input topic up to its present end."""
    on_step(f"reading {topic}")
    begin, end = kafka_input.begins(settings, topic), kafka_input.ends(settings, topic)
    source = TopicInput(topic, judge, begin, end, kafka_input.is_compacted(settings, topic), told.notes[topic])
    source.take(kafka_input.read(settings, topic, begin, end), told.orders[topic])
    return source


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
