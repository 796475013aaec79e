"""Which streams there are, which of them are on, and what they are to one another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import import_module

from customer_activity.catalog import STREAM_NAME, Table
from customer_activity.errors import SettingsError
from customer_activity.topology.declared import Edge, End, Spec, Topic

REGISTRY = "customer_activity.streams.registry"

_installed: dict[str, Spec] = {}  # all that this release has
_wanted: list[str] = []  # names of optional ones, as they were asked for
_set: list[str] = []  # names of settings that have a value, by which some are on


def install(found: Iterable[Spec]) -> None:
    """Make these the streams of this process, each after those whose tables it reads; called once, by the registry.

    Raises:
        ValueError: a name is none, or is there twice, or a stream reads what only a later one, or only an optional one,
            writes.
    """
    specs_by_name: dict[str, Spec] = {}
    written: set[End] = set()
    always: set[End] = set()
    for each in found:
        if not re.fullmatch(STREAM_NAME, each.name):
            raise ValueError(f"{each.name} is no name of a stream: lower case letters, digits and _, a letter first")
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


def switch_on(wanted: Iterable[str], settings: Iterable[str] | None = None) -> None:
    """Switch these optional streams on in this process, and others off; a name that is unknown is refused when used.

    Args:
        wanted: their names.
        settings: names of settings that have a value, by which more of them are on; as before when not given.
    """
    _wanted[:] = wanted
    if settings is not None:
        _set[:] = settings


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
    on = _switched_on() if _wanted or _set else frozenset()
    return tuple(each for each in _installed.values() if not each.is_optional or each.name in on)


def _switched_on() -> frozenset[str]:
    """Return the optional streams that are on: those that were asked for, and those that write what they read."""
    known = [each.name for each in optional()]
    if unknown := [name for name in _wanted if name not in known]:
        raise SettingsError(
            f"{unknown[0]} is no optional stream", remedy=f"ACTIVITY_STREAMS takes some of: {', '.join(known)}"
        )
    by_settings = {each.name for each in optional() if each.on_with in _set}
    on, read = by_settings.union(_wanted), set[End]()
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


def off() -> list[Spec]:
    """Return the optional streams that are off."""
    on = specs()
    return [each for each in optional() if each not in on]


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


def upstream(stream: Spec, also: Sequence[Spec] = ()) -> list[Spec]:
    """Return the streams that write what a stream reads: those that are on, and some others."""
    return [each for each in (*specs(), *also) if set(each.tables) & set(stream.sources)]


def roles() -> set[str]:
    """Return the roles of the topics that the streams which are on read or write."""
    return {role for each in specs() for role in each.roles}


def published_roles() -> set[str]:
    """Return the roles of the topics that the streams which are on publish to, besides the view's own."""
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
