"""What the streams are to one another: each declares a `Spec` in its own module, and everybody else asks here.

Whoever needs the topology (turns, status, quality's pins, VACUUM's guard, leases, `describe`) derives it from the specs
and names no stream. The specs come from the registry, which is looked up by its name when somebody asks first, as a
plugin is: layers below the streams know of them by their specs alone, and import none.

Optional streams are known and take part in nothing until a deployment switches them on by name, for the whole process
(`switch_on`); what they read comes with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple

from customer_activity.catalog import Table
from customer_activity.errors import SettingsError


@dataclass(frozen=True)
class Topic:
    """A Kafka topic, by its role in `infra/kafka/topics.yaml`; its name is a setting."""

    role: str


End = Table | Topic


class Reads(NamedTuple):
    """A source of a stream.

    Attributes:
        source: what is read.
        progress: where it is noted, exactly once, up to where this source was read: a table that the stream writes,
            whose commits tell it, or a topic whose records do.
    """

    source: End
    progress: End


class Writes(NamedTuple):
    """What a stream writes.

    Attributes:
        target: a table or a topic.
        key: the columns that tell one row from another, or whose changes they are; empty where rows are only appended.
        order: of a table of changes, the columns by which those of a key are in order.
        ended: of such a table, the column that says that a change leaves no row of its key.
        uneven: the columns that depend on how batches were cut: computed a second time, they may be others.
        frozen: a query for the keys whose newest row depends on that, too; `{tables}` stands for where the tables of
            the streams are, by their names without the layer. Empty where there are no such keys.
        with_every_batch: a commit to this table tells which batch is the stream's newest, as those to the tables of
            `Reads.progress` do. Of quarantine that is so where a batch may consist of nothing else.
        sources: of a table that is no source's progress, the sources whose rows come to it; empty: all of them.
        expected: what the table must hold, as a query over the purchases and profiles that `activity verify` recomputes
            from Kafka; see `verification/declared.py`. Empty where the verifier knows it by itself. Of a topic that
            publishes a table, which of its rows are there, as a query over `stored`.
    """

    target: End
    key: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    ended: str = ""
    uneven: tuple[str, ...] = ()
    frozen: str = ""
    with_every_batch: bool = False
    sources: tuple[Table, ...] = ()
    expected: str = ""


@dataclass(frozen=True)
class Spec:
    """What a stream is.

    Attributes:
        name: of its query, its checkpoint, its lease, and its label in logs and metrics.
        reads: its sources, in the order in which its checkpoint has their offsets.
        writes: in no order: a batch writes to quarantine first.
        promises: what holds whatever happens, in words.
        is_behind: whether it is behind the hot path, and so paced: what it writes is not on the way to the view.
        is_gated: whether its batches wait while quality holds publishing.
        is_spread: whether Spark's executors can do its batches, or a part of them.
        is_optional: whether it runs only where it is switched on by its name.
        paced_by: the setting that tells how many seconds there are between two batches of a stream behind the path.
    """

    name: str
    reads: tuple[Reads, ...]
    writes: tuple[Writes, ...]
    promises: str
    is_behind: bool = False
    is_gated: bool = False
    is_spread: bool = False
    is_optional: bool = False
    paced_by: str = "merge_seconds"

    @property
    def sources(self) -> list[Table]:
        """The tables whose change feeds it reads."""
        return [read.source for read in self.reads if isinstance(read.source, Table)]

    @property
    def topics(self) -> list[str]:
        """The roles of the topics that it reads as input."""
        return [read.source.role for read in self.reads if isinstance(read.source, Topic)]

    @property
    def roles(self) -> list[str]:
        """The roles of the topics that it reads or writes."""
        return self.topics + [write.target.role for write in self.writes if isinstance(write.target, Topic)]

    @property
    def tables(self) -> list[Table]:
        """The tables that it writes."""
        return [write.target for write in self.writes if isinstance(write.target, Table)]

    @property
    def telling(self) -> list[Table]:
        """Those of them whose newest commit tells which batch is the newest."""
        progress = {read.progress for read in self.reads}
        return [
            write.target
            for write in self.writes
            if isinstance(write.target, Table) and (write.with_every_batch or write.target in progress)
        ]

    @property
    def is_publisher(self) -> bool:
        """Whether a topic, and no table, tells how far it is."""
        return not self.telling

    def sources_of(self, table: Table) -> list[Table] | None:
        """Return the sources whose rows come to one of its tables; None: all of them."""
        named = next((write.sources for write in self.writes if write.target is table), ())
        told = [read.source for read in self.reads if read.progress is table and isinstance(read.source, Table)]
        return list(named) or told or None

    def how(self, table: Table) -> Writes:
        """Return how it writes one of its tables."""
        return next(write for write in self.writes if write.target is table)

    @property
    def edges(self) -> list[Edge]:
        """Which of its tables is made from which."""
        return [
            Edge(self.name, read.progress, read.source)
            for read in self.reads
            if isinstance(read.source, Table) and isinstance(read.progress, Table)
        ]


class Edge(NamedTuple):
    """A table that is made from another one: by which stream, which table tells, and which one was read."""

    stream: str
    made: Table
    read: Table


REGISTRY = "customer_activity.streams.registry"

_installed: dict[str, Spec] = {}  # all that this release has
_wanted: list[str] = []  # names of optional ones, as they were asked for


def install(found: Iterable[Spec]) -> None:
    """Make these the streams of this process, each after those whose tables it reads; called once, by the registry.

    Raises:
        ValueError: two have one name, or one reads what only a later one, or only an optional one, writes.
    """
    specs_by_name: dict[str, Spec] = {}
    written: set[End] = set()
    always: set[End] = set()
    for each in found:
        if each.name in specs_by_name:
            raise ValueError(f"two streams are called {each.name}")
        known = written if each.is_optional else always
        if missing := [table.label for table in each.sources if table not in known]:
            raise ValueError(f"{each.name} reads {', '.join(missing)}, which no stream before it writes")
        targets = {write.target for write in each.writes}
        written |= targets
        always |= set() if each.is_optional else targets
        specs_by_name[each.name] = each
    _installed.clear()
    _installed.update(specs_by_name)


def switch_on(wanted: Iterable[str]) -> None:
    """Switch these optional streams on in this process, and others off; a name that is unknown is refused when used."""
    _wanted[:] = wanted


def switched_on() -> list[str]:
    """Return the names of optional streams that were switched on, as they were asked for."""
    return list(_wanted)


def specs() -> tuple[Spec, ...]:
    """Return the streams that are on, a stream after all that it reads from.

    Raises:
        SettingsError: one that was to be switched on is unknown.
    """
    if not _installed:
        import_module(REGISTRY)  # which installs them
    on = _switched_on() if _wanted else frozenset()
    return tuple(each for each in _installed.values() if not each.is_optional or each.name in on)


def _switched_on() -> frozenset[str]:
    """Return the optional streams that are on: those that were asked for, and those that write what they read."""
    known = [each.name for each in optional()]
    if unknown := [name for name in _wanted if name not in known]:
        raise SettingsError(
            f"{unknown[0]} is no optional stream", remedy=f"ACTIVITY_STREAMS takes some of: {', '.join(known)}"
        )
    on, read = set(_wanted), set[End]()
    for each in reversed(optional()):  # a stream is after all that it reads from
        if each.name in on or read & set(each.tables):
            on.add(each.name)
            read |= set(each.sources)
    return frozenset(on)


def optional() -> list[Spec]:
    """Return the streams that can be switched on, whether they are or not."""
    if not _installed:
        import_module(REGISTRY)
    return [each for each in _installed.values() if each.is_optional]


def tables() -> list[Table]:
    """Return the tables of the streams that are on, in their order."""
    written = {table for each in specs() for table in each.tables}
    return [table for table in Table if table in written]


def spec(name: str) -> Spec:
    """Return a stream that is on by its name.

    Raises:
        KeyError: there is none of that name.
    """
    return {each.name: each for each in specs()}[name]


def names() -> list[str]:
    """Return the names of the streams that are on."""
    return [each.name for each in specs()]


def hot_path() -> list[Spec]:
    """Return the streams from Kafka to the view, in their order."""
    return [each for each in specs() if not each.is_behind]


def behind() -> list[Spec]:
    """Return the streams behind the hot path."""
    return [each for each in specs() if each.is_behind]


def following() -> list[Spec]:
    """Return the streams behind the hot path whose tables follow from other tables, so that they can be recomputed."""
    return [each for each in behind() if each.edges]


def upstream(stream: Spec) -> list[Spec]:
    """Return the streams that write what a stream reads."""
    return [each for each in specs() if set(each.tables) & set(stream.sources)]


def roles() -> set[str]:
    """Return the roles of the topics that the streams which are on read or write."""
    return {role for each in specs() for role in each.roles}


def published_roles() -> set[str]:
    """Return the roles of the topics that optional streams which are on publish to."""
    own = {target for write in publishing().writes if isinstance(target := write.target, Topic)}
    written = {target for each in publishers() for write in each.writes if isinstance(target := write.target, Topic)}
    return {topic.role for topic in written - own}


def publishers() -> list[Spec]:
    """Return the streams that publish, that of the view first."""
    return [each for each in specs() if each.is_publisher]


def readers(table: Table) -> list[str]:
    """Return the names of the streams that read a table's change feed."""
    return [each.name for each in specs() if table in each.sources]


def writers(table: Table) -> list[str]:
    """Return the names of the streams that write a table."""
    return [each.name for each in specs() if table in each.tables]


def edges() -> list[Edge]:
    """Return which table is made from which, by stream."""
    return [edge for each in specs() for edge in each.edges]


def landing() -> Spec:
    """Return the stream of the hot path that lands its input topics."""
    (found,) = (each for each in hot_path() if each.topics)
    return found


def landings() -> list[Spec]:
    """Return all streams that land topics: that of the hot path, and those of optional topics."""
    return [each for each in specs() if each.topics]


def publishing() -> Spec:
    """Return the stream that publishes the view."""
    (found,) = (each for each in hot_path() if each.is_publisher)
    return found


def rebuilt() -> list[Spec]:
    """Return the streams of the hot path that make tables of tables: a rebuild runs them once more, in their order."""
    return [each for each in hot_path() if each.edges]


def judging() -> list[Edge]:
    """Return which table they make from which one of records that have landed."""
    return [edge for each in rebuilt() for edge in each.edges if edge.read in landing().tables]


def with_followers(name: str) -> list[str]:
    """Return a stream with those behind it, and behind these: what runs when somebody names it."""
    found = [name]
    for each in behind():
        if each.name not in found and any(above.name in found for above in upstream(each)):
            found.append(each.name)
    return found


def chosen(named: Sequence[str]) -> list[str]:
    """Return the streams that run when some are named; all that are on without a name.

    With one of the hot path run those that follow it, and with an optional one the optional ones that it follows.
    """
    if not named:
        return names()
    wanted = {name for one in named for name in with_followers(one)}
    for each in reversed(optional()):  # a stream is after all that it reads from
        if each.name in wanted and each.name in named:
            named = [*named, *(above.name for above in upstream(each) if above.is_optional)]
            wanted.update(named)
    return [name for name in names() if name in wanted]


def reflected(role: str) -> dict[str, Table]:
    """Return, by stream, the table that shows how far it has come on an input topic: what it makes of what came in."""
    found: dict[str, Table] = {}
    carriers: set[End] = {Topic(role)}
    for each in specs():
        for read in each.reads:
            if read.source in carriers and isinstance(read.progress, Table):
                found.setdefault(each.name, read.progress)
                carriers.add(read.progress)
    return found
