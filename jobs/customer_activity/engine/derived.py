"""What streams behind the hot path have in common: their tables follow from all rows of others, of one as a rule.

So a table can be computed a second time, compared and repaired, whatever the stream does batch by batch. Some need to
know more than the rows: what their windows are, or what was decided when rows landed. They note it in their commits,
and `as_noted` gives the stream that goes by it.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import pyarrow as pa

from customer_activity.catalog import Table, table_path
from customer_activity.errors import SettingsError, TerminalError
from customer_activity.topology import Spec

if TYPE_CHECKING:
    from customer_activity.settings import Settings

Named = TypeVar("Named", bound=tuple[Any, ...])
DEFINITION = "definition"  # in the note of a commit: what windows are
TAKEN_IN = "taken_in"  # likewise: how many late purchases had been taken in, which are only ever added to
MICROS_A_MINUTE = 60_000_000
MICROS_AN_HOUR = 60 * MICROS_A_MINUTE


class Definition(NamedTuple):
    """What windows are: as the settings say, and as the tables were computed.

    Attributes:
        time_zone: of calendar days, as IANA names it.
        grace_hours: how late a purchase may be, in event time.
        session_gap_minutes: how long a customer buys nothing, at most, within a session; in event time.
    """

    time_zone: str = "UTC"
    grace_hours: float = 24.0
    session_gap_minutes: float = 30.0

    @property
    def grace(self) -> int:
        """The grace in microseconds."""
        return round(self.grace_hours * MICROS_AN_HOUR)

    @property
    def session_gap(self) -> int:
        """The gap of sessions in microseconds."""
        return round(self.session_gap_minutes * MICROS_A_MINUTE)

    @classmethod
    def of(cls, settings: Settings) -> Definition:
        """Return what the settings say."""
        return cls(settings.time_zone, settings.grace_hours, settings.session_gap_minutes)

    def __str__(self) -> str:
        """Say it as settings."""
        return (
            f"ACTIVITY_TIME_ZONE={self.time_zone}, ACTIVITY_GRACE_HOURS={self.grace_hours:g}, "
            f"ACTIVITY_SESSION_GAP_MINUTES={self.session_gap_minutes:g}"
        )


@runtime_checkable
class Derived(Protocol):
    """A stream whose table follows from all rows of its source."""

    @property
    def spec(self) -> Spec:
        """What it is."""

    @property
    def source(self) -> Table:
        """The table that it follows."""

    @property
    def target(self) -> Table:
        """The table that follows from it."""

    @property
    def columns(self) -> Sequence[str]:
        """What is read of the source."""

    def as_noted(self, lake: str) -> Self:
        """Return it as a lake's table was computed, with what was taken in since."""

    def as_set(self, settings: Settings) -> Self:
        """Return it as it is to be computed."""

    def rows(self, changes: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return the rows of the table, made of all rows of the source."""

    def besides(self) -> Mapping[Table, pa.Table]:
        """Return what other tables of the stream lack of the rows that were made last."""

    def note(self, rows: pa.Table) -> Mapping[str, Any]:
        """Return what a commit notes that leaves the table with these rows."""


class OfOneTable:
    """Which table a stream follows, and which one it makes: it has one of each."""

    spec: Spec

    @property
    def source(self) -> Table:
        """The table that it follows."""
        (source,) = self.spec.sources
        return source

    @property
    def target(self) -> Table:
        """The table that follows from it."""
        (edge,) = self.spec.edges
        return edge.made


class Windowed(OfOneTable):
    """How a stream comes to the definition of windows that its table is computed by, where it has one.

    Attributes:
        definition: what the rows are by.
        define: makes the stream for a definition and for late purchases that are taken in.
        taken_in: how many these are.
    """

    definition: Definition | None
    define: Callable[[Definition, frozenset[str]], Any] | None
    taken_in: int

    def as_noted(self, lake: str) -> Self:
        """Return it as its table was computed."""
        found = None if self.define is None else definition_noted(lake, self.spec, self.target, Definition)
        return self if found is None else self._defined(found, lake)

    def as_set(self, settings: Settings) -> Self:
        """Return it as the settings have it."""
        return self._defined(Definition.of(settings), settings.lake)

    def bound(self, settings: Settings) -> Self:
        """Return it as the settings have it, for a driver.

        Raises:
            SettingsError: its table was computed by another definition.
            TerminalError: late purchases were taken in while it was off, or its turn did not come.
        """
        found = self.as_set(settings)
        if found.definition is not None:
            require_same(settings.lake, self.spec, self.target, found.definition)
            _require_taken_in(settings.lake, self.spec, self.target, found.taken_in)
        return found

    def defined(self) -> Mapping[str, Any]:
        """Return what a commit notes of what the rows are by."""
        return {} if self.definition is None else {DEFINITION: self.definition._asdict(), TAKEN_IN: self.taken_in}

    def _defined(self, definition: Definition, lake: str) -> Self:
        if self.define is None:
            return self
        ids = reprocessed(lake)
        found: Self = replace(self.define(definition, ids), taken_in=len(ids))
        return found


class Computed(NamedTuple):
    """The tables of a stream, computed from all rows of its sources.

    Attributes:
        tables: their rows; the table that tells how far the stream is comes last.
        note: what their commits note.
    """

    tables: Mapping[Table, pa.Table]
    note: Mapping[str, Any]


@runtime_checkable
class Joined(Protocol):
    """A stream whose tables follow from all rows of several sources."""

    @property
    def spec(self) -> Spec:
        """What it is."""

    @property
    def columns(self) -> Mapping[Table, Sequence[str]]:
        """What is read of each source."""

    def as_noted(self, lake: str) -> Self:
        """Return it as a lake's tables were computed."""

    def as_set(self, settings: Settings) -> Self:
        """Return it as it is to be computed."""

    def require_same(self, lake: str) -> None:
        """Make sure that a lake's tables have been computed as it is, as far as they have been.

        Raises:
            SettingsError: they were computed otherwise.
        """

    def computed(self, changes: Mapping[Table, Iterable[pa.RecordBatch]]) -> Computed:
        """Return the rows of its tables, made of all rows of its sources."""


def noted(lake: str, spec: Spec, table: Table) -> Mapping[str, Any]:
    """Return what a stream's newest commit to its table notes."""
    from customer_activity.lake import history  # noqa: PLC0415 - executors look into no log

    return history.latest_metadata(lake, table, spec.name)


def definition_noted(lake: str, spec: Spec, table: Table, kind: type[Named]) -> Named | None:
    """Return by which definition, of a kind, a table was computed; None where nothing was."""
    found = noted(lake, spec, table).get(DEFINITION)
    return None if found is None else kind(**found)


def reprocessed(lake: str) -> frozenset[str]:
    """Return the ids of late purchases that were taken in on purpose: windows count them whatever their stamps."""
    from deltalake import DeltaTable  # noqa: PLC0415 - executors read none

    found = DeltaTable(table_path(lake, Table.REPROCESSED)).to_pyarrow_dataset().to_table(columns=["purchase_id"])
    return frozenset(found.column("purchase_id").to_pylist())


def require_same(lake: str, spec: Spec, table: Table, wanted: tuple[Any, ...]) -> None:
    """Make sure that a table has been computed by a definition, as far as it has been.

    Raises:
        SettingsError: it was computed by another one.
    """
    found = definition_noted(lake, spec, table, type(wanted))
    if found is not None and found != wanted:
        raise SettingsError(
            f"{table.label} was computed with {found}, and the settings say {wanted}",
            remedy=f"`activity rebuild --stream {spec.name}` recomputes it from {spec.sources[0].label}; or set "
            "them as they were",
        )


def _require_taken_in(lake: str, spec: Spec, table: Table, wanted: int) -> None:
    """Refuse to go on with rows of before late purchases were taken in: nothing else would add these.

    Raises:
        TerminalError: the table was computed with others.
    """
    found = noted(lake, spec, table).get(TAKEN_IN)
    if found not in {None, wanted}:  # releases before noted nothing
        raise TerminalError(
            f"{table.label} was computed with {found} late purchases taken in, and {Table.REPROCESSED.label} has "
            f"{wanted}",
            remedy=f"`activity rebuild --stream {spec.name}` recomputes it from {spec.sources[0].label}",
        )
