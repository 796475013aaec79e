"""The checks: bronze, quarantine, silver, gold, the view and what streams declare, at the versions that are open."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from deltalake import DeltaTable

from customer_activity.catalog import Table
from customer_activity.settings import Settings
from customer_activity.verification import (
    comparison,
    declared,
    kafka_input,
    lake,
    masking,
    oracle,
    order,
    totals,
    traces,
)
from customer_activity.verification.comparison import BRONZE, PAYMENTS, Check, Commits, compare_rows
from customer_activity.verification.declared import Declared
from customer_activity.verification.landing import (
    LANDED_COLUMNS,
    TopicInput,
    compare_landed,
    is_too_large,
    quarantined,
    without_totals,
)
from customer_activity.verification.oracle import Expected
from customer_activity.verification.order import Notes, Order
from customer_activity.verification.records import Payment, Profile, Purchase
from customer_activity.verification.sampling import restrict
from customer_activity.verification.traces import Traces
from customer_activity.verification.view import Change, ViewTopic

OnStep = Callable[[str], None]

# The tables whose commits carry the accounting: what bronze and silver write.
COUNTED = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.QUARANTINE, Table.PURCHASES, Table.PROFILE_CHANGES)
# The tables that the oracle knows; of others their streams say what they must hold.
KNOWN = frozenset({*COUNTED, Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY_CHANGES, Table.ACTIVITY})
VIEW, ORDER, ACCOUNTING = "view", "landing order", "accounting"
OF_GOLD = frozenset({Table.ACTIVITY_CHANGES.label, Table.ACTIVITY.label, VIEW})
ALL = frozenset({*(table.label for table in KNOWN), VIEW, ORDER, ACCOUNTING})


def subject(check: Check) -> str:
    """Return what a check is about: its name without the part of it, and without the topic."""
    return check.name.partition(": ")[0].partition(" of ")[0]


class Input(NamedTuple):
    """An input topic: by which stream its records land, in which table, and what they are."""

    topic: str
    stream: str
    table: Table
    kind: type[Purchase | Profile | Payment]


def inputs(settings: Settings, tables: Collection[Table]) -> list[Input]:
    """Return the input topics: that of payments where their table is looked at."""
    found = [
        Input(settings.purchase_topic, BRONZE, Table.PURCHASE_EVENTS, Purchase),
        Input(settings.profile_topic, BRONZE, Table.PROFILE_EVENTS, Profile),
        Input(settings.payment_topic, PAYMENTS, Table.PAYMENT_EVENTS, Payment),
    ]
    return [each for each in found if each.table in tables]


class Told(NamedTuple):
    """What the lake says of itself at some versions of its tables."""

    versions: tuple[int, ...]
    commits: dict[Table, Commits]  # of the tables whose commits carry the accounting
    notes: Mapping[str, Notes]  # by input topic
    orders: dict[str, Order]  # by input topic, where bronze put its records


def tell(settings: Settings, tables: lake.Tables) -> Told:
    """Read what the lake says of itself."""
    landed = [table for table in lake.LANDED_AT if table in tables]
    commits = {table: lake.commits(settings.lake, table, tables[table]) for table in dict.fromkeys([*COUNTED, *landed])}
    metadata = [note for table in landed for note in commits[table].metadata]
    notes = {each.topic: Notes.of(metadata, each.stream) for each in inputs(settings, tables)}
    places = lake.places(tables)
    orders = {topic: order.read(places, topic, of_topic) for topic, of_topic in notes.items()}
    return Told(lake.versions(tables), commits, notes, orders)


def compare(
    settings: Settings,
    tables: lake.Tables,
    told: Told,
    sources: list[TopicInput],
    view: ViewTopic,
    *,
    only: frozenset[str],
    others: Sequence[Declared],
    pick: Callable[[Expected], frozenset[str] | None],
    on_step: OnStep,
) -> tuple[list[Check], Expected]:
    """Make the checks against the tables as they were opened; those of bronze in any case: they tell the order."""
    purchases, profiles, *payments = sources
    on_step("comparing bronze")
    checks = list(_compare_bronze(settings, tables, told, sources))
    checks += [order.compare(topic, placed, told.notes[topic].replays) for topic, placed in told.orders.items()]
    overflowing: list[str] = []
    quarantine = without_totals(lake.landed(tables, Table.QUARANTINE, ["reason"]), overflowing)
    quarantine = _looked_at(settings, sources, quarantine)
    refused = quarantined(sources, view.holding(settings.view_topic, quarantine))
    on_step("recomputing")
    expected = oracle.expect(
        purchases.log,
        profiles.log,
        purchase_topic=settings.purchase_topic,
        profile_topic=settings.profile_topic,
        currency=settings.currency,
    )
    for source in payments:
        expected = oracle.with_payments(expected, source.log, source.topic)
    on_step("comparing quarantine, silver and gold")
    checks += comparison.compare_quarantine(expected.quarantine, refused)
    if overflowing or expected.frozen:
        arrived = moving(sources)
        counted = [customer for customer in overflowing if customer not in arrived]
        checks.append(comparison.compare_totals(expected.frozen.keys() - arrived, counted))
    chosen = pick(expected)
    chosen = None if chosen is None else chosen - moving(sources)
    wanted = expected if chosen is None else restrict(expected, chosen)
    changes = Table.PROFILE_CHANGES
    position = ("landing", "partition", "offset")
    for table, columns, rows in (
        (Table.PURCHASES, comparison.PURCHASE_COLUMNS, wanted.purchases),
        (Table.SUMMARIES, comparison.SUMMARY_COLUMNS, wanted.summaries),
        (Table.PROFILES, comparison.PROFILE_COLUMNS, wanted.profiles),
        (changes, comparison.PROFILE_COLUMNS, wanted.profiles),
    ):
        if table.label not in only:
            continue
        found = (
            lake.newest(tables[table], columns, position, "is_tombstone", chosen)
            if table is changes
            else lake.rows(tables[table], columns, chosen)
        )
        checks.append(compare_rows(table.label, columns, rows, found))
    states: list[tuple[Any, ...]] = []
    if only & OF_GOLD or wanted.frozen:
        changed, version = tables[Table.ACTIVITY_CHANGES], ("view_version",)
        states = list(lake.newest(changed, comparison.GOLD_COLUMNS, version, "is_gone", chosen))
        wanted.gold.update(totals.settled(states, wanted.frozen))
    if only & OF_GOLD:
        wanted_traces = traces.expected(wanted, purchases.traces, profiles.traces)
        checks += _compare_gold(settings, tables, wanted, states, view, chosen=chosen, wanted_traces=wanted_traces)
    checks += _compare_others(settings, tables, expected, [each for each in others if each.table.label in only], chosen)
    has_arrived = {source.topic: bool(source.followed) and source.followed != source.end for source in sources}
    landed = {each.topic: each.table for each in inputs(settings, tables)}
    for topic, outcomes in expected.outcomes.items():
        checks.append(
            comparison.compare_accounting(topic, landed[topic], outcomes, told.commits, is_moving=has_arrived[topic])
        )
    return checks, expected


def _compare_bronze(settings: Settings, tables: lake.Tables, told: Told, sources: list[TopicInput]) -> Iterator[Check]:
    """Compare each table of landed records with its topic."""
    for source, (_, _, table, kind) in zip(sources, inputs(settings, tables), strict=True):
        source.beyond, source.notes = 0, told.notes[source.topic]
        if source.is_compacted:
            for where in (table, Table.QUARANTINE):
                source.know_tombstones(lake.tombstones(tables[where], source.topic))
        yield compare_landed(table.label, source, kind, lake.landed(tables, table, LANDED_COLUMNS[kind]))


def _looked_at(
    settings: Settings, sources: list[TopicInput], quarantine: Iterable[lake.Landed]
) -> Iterator[lake.Landed]:
    """Pass on what is compared of quarantine.

    Not what is too large for an optional stream's topic, which has no coordinates there: it is compared with that, by
    the name that the topic has now. Nor payments where their streams are off that were on once.
    """
    ours = {settings.view_topic, *(source.topic for source in sources)}
    for row in quarantine:
        if row.topic in ours or not (is_too_large(row) or row.topic == settings.payment_topic):
            yield row


def _compare_gold(
    settings: Settings,
    tables: lake.Tables,
    wanted: Expected,
    states: Collection[tuple[Any, ...]],
    view: ViewTopic,
    *,
    chosen: frozenset[str] | None,
    wanted_traces: Traces,
) -> list[Check]:
    # Which state a frozen row has depends on how batches were cut, and so does its trace.
    known = {customer: row for customer, row in wanted.gold.items() if customer not in wanted.frozen}
    changes, _ = comparison.compare_gold(Table.ACTIVITY_CHANGES.label, wanted.gold, states)
    newest = {customer: version for customer, *row, version in states if wanted.gold.get(customer) == (customer, *row)}
    rows = lake.rows(tables[Table.ACTIVITY], comparison.GOLD_COLUMNS, chosen)
    gold, versions = comparison.compare_gold(Table.ACTIVITY.label, wanted.gold, rows, newest)
    largest = kafka_input.largest_record(settings, settings.view_topic)
    of_view = [
        *view.checks(wanted.gold, versions, chosen, largest, partial(_changed, tables[Table.ACTIVITY_CHANGES])),
        *view.trace_checks(wanted_traces, known, chosen, largest),
    ]
    return [changes, gold, *of_view]


def _changed(changes: DeltaTable, customers: Collection[str]) -> dict[str, list[Change]]:
    """Return how gold changed the rows of customers."""
    found: dict[str, list[Change]] = {}
    for customer, *change in lake.rows(changes, ("customer_id", *Change._fields), frozenset(customers)):
        if change[0] is not None:  # else it is damaged, which another check finds
            found.setdefault(customer, []).append(Change(*change))
    return found


def _compare_others(
    settings: Settings,
    tables: lake.Tables,
    expected: Expected,
    others: Sequence[Declared],
    chosen: frozenset[str] | None,
) -> Iterator[Check]:
    """Compare tables of added streams with what they declare; without a declared query a check is not possible."""
    if chosen is not None or not others:
        why = "a sample is of customers, and this table need not be"
        yield from (Check(each.table.label, 0, 0, 0, impossible=why) for each in others)
        return
    with declared.opened(expected, tables, settings.mask_key) as database:
        for each in others:
            if each.query:
                notes = lake.commits(settings.lake, each.table, tables[each.table]).metadata
                masking.require_same(each.table.label, notes, settings.mask_key)
                yield declared.compare(database, each, tables[each.table], notes)
            else:
                why = "its stream does not say what it must hold"
                yield Check(each.table.label, 0, 0, 0, impossible=why)


def moving(sources: list[TopicInput]) -> frozenset[str]:
    """Return the customers of whom records arrived after the end that was noted."""
    return frozenset(customer for source in sources for customer in source.moving)
