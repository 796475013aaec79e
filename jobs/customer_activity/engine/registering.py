"""What a stream must be for the engine to run, rebuild and recover it: looked at when the streams are registered."""

from __future__ import annotations

from collections.abc import Sequence

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.contracts.tables import TABLES
from customer_activity.engine.derived import Derived, Joined
from customer_activity.engine.stream import Stream
from customer_activity.topology import Spec


def install(streams: Sequence[Stream]) -> None:
    """Make these the streams of this process, each after those whose tables it reads; called once, by the registry.

    Raises:
        ValueError: one of them cannot be run, rebuilt or recovered as it declares itself; `topology.install` has more.
    """
    _require_names([stream.spec for stream in streams])
    for stream in streams:
        _require_appended(stream.spec)
        if stream.spec.is_behind and stream.spec.edges and not isinstance(stream, Derived | Joined):
            raise ValueError(
                f"{stream.spec.name} is behind the hot path, and does not say what all rows of its sources come to, "
                "which `rebuild` and `recover` compute: make it `Derived` or `Joined` (engine/derived.py), as "
                "`CurrentRows` and `Appended` are"
            )
    topology.install(stream.spec for stream in streams)


def _require_names(specs: Sequence[Spec]) -> None:
    """Refuse two tables that streams make and whose names differ in the layer alone: a rebuild drops it."""
    found: dict[str, Table] = {}
    for table in {table for spec in specs if not spec.topics for table in spec.tables}:
        if (other := found.setdefault(table.value.rpartition("/")[2], table)) is not table:
            both = " and ".join(sorted([table.label, other.label]))
            raise ValueError(f"{both} have the same name but for the layer: give one of them another")


def _require_appended(spec: Spec) -> None:
    """Refuse a source whose rows are replaced: only a publisher reads the change feed of current rows."""
    for table in () if spec.is_publisher else spec.sources:
        if TABLES[table].is_current:
            raise ValueError(
                f"{spec.name} reads {table.label}, whose rows are replaced: a stream reads append-only tables, such as "
                "the table of changes that these rows are of"
            )
