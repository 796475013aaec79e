"""What a stream publishes: which table, to which topics, and the records that its rows make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from customer_activity.catalog import PROGRESS_ROLE, Table
from customer_activity.engine.stream import Record
from customer_activity.kafka import marker as markers
from customer_activity.kafka.marker import Outlet
from customer_activity.settings import Settings
from customer_activity.streams.publish.changed import Changed
from customer_activity.topology import Spec, Topic


@dataclass(frozen=True)
class Publication:
    """A table that a stream publishes.

    Attributes:
        spec: what it is: one table is read, and its topics are written beside the progress topic.
        key: the columns that tell the table's rows apart; one where records stand by themselves.
        records: makes records of some of the rows, each with the number of its row among them.
    """

    spec: Spec
    key: tuple[str, ...]
    records: Callable[[Changed, Settings], Iterator[tuple[int, Record]]]

    @property
    def table(self) -> Table:
        """The table that is published."""
        (table,) = self.spec.sources
        return table

    @property
    def outdated(self) -> Table | None:
        """The table of records that stay though the published table no longer has them so.

        None where a record takes the place of the one before it of the same key.
        """
        return next((write.outdated for write in self.spec.writes if write.outdated), None)

    def outlet(self, settings: Settings) -> Outlet:
        """Return where it publishes."""
        roles = [write.target.role for write in self.spec.writes if isinstance(write.target, Topic)]
        topics = [settings.topics[role] for role in roles if role != PROGRESS_ROLE]
        return markers.of_stream(settings, self.spec.name, topics)
