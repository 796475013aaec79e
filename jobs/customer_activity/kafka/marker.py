"""A publisher's marker on the progress topic: how far a table is published, and whose table it is.

A deployment has a view topic and a progress topic of its own: the markers say whose they are. Inputs may be shared.
Optional streams that publish have a publisher, and so a marker, each.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from customer_activity.errors import TerminalError
from customer_activity.kafka import clients, settled
from customer_activity.settings import Settings

PUBLISH = "-publish-"  # between the pipeline's name and its view topic's, which may be called otherwise
PUBLISHES = "-publishes-"  # between the pipeline's name and that of an optional stream that publishes
BEFORE_THE_FIRST = -1  # the version of a marker that says whose the topics are, when nothing is out yet


class Marker(NamedTuple):
    """How far a table is published.

    Attributes:
        table_id: the table's id; a rebuilt table has another, and its versions start at 0 again.
        version: the newest version of the table whose changes are all on the topic.
        rows: how many rows of the next version are on the topic, in the order of its commit's files; 0 unless that
            version is larger than a transaction may be.
        commit: the own id of the commit that made the version, or of a table that is published by its changes the one
            whose `rows` are on the topic; empty where it is not known.
        snapshot: the version whose rows are being published as the beginning: `rows` counts those; 0 once that is done.
        topics: those that have it; empty for the view's, whose topic is in its publisher's identity.
        begun: of the view's, the own id of the commit whose `rows` are on the topic; empty where there are none.
        is_resyncing: whether a resync has sent some of what differs, and not all: these are on the topic, too.
    """

    table_id: str
    version: int
    rows: int = 0
    commit: str = ""
    snapshot: int = 0
    topics: tuple[str, ...] = ()
    begun: str = ""
    is_resyncing: bool = False

    def text(self) -> bytes:
        """Return the marker as it is on the topic."""
        always = {"table_id": self.table_id, "version": self.version}
        return json.dumps(always | {name: value for name, value in self._asdict().items() if value}).encode()


def parse(value: bytes | None) -> Marker | None:
    """Return a marker from the topic, of this release or one before or after; None where there is none.

    Raises:
        TerminalError: the record is no marker.
    """
    if value is None:
        return None
    try:
        told = json.loads(value)
        rows, commit, topics = int(told.get("rows", 0)), str(told.get("commit", "")), told.get("topics", [])
        snapshot, named = int(told.get("snapshot", 0)), tuple(map(str, topics))
        begun, is_resyncing = str(told.get("begun", "")), bool(told.get("is_resyncing", False))
        return Marker(str(told["table_id"]), int(told["version"]), rows, commit, snapshot, named, begun, is_resyncing)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TerminalError(
            "a record on the progress topic is no marker of a publisher: something else writes to that topic",
            remedy="give the deployment a progress topic of its own (ACTIVITY_PROGRESS_TOPIC)",
        ) from None


class Outlet(NamedTuple):
    """Where a publisher publishes.

    Attributes:
        pipeline: whose it is.
        label: what tells it from the pipeline's other publishers.
        topics: that it writes to; the first one is meant where a record names none.
    """

    pipeline: str
    label: str
    topics: tuple[str, ...]

    @property
    def identity(self) -> str:
        """The publisher's transactional id, which is also the key of its markers."""
        return f"{self.pipeline}{self.label}"

    @property
    def is_of_view(self) -> bool:
        """Whether it is the view's: each deployment has that one."""
        return self.label.startswith(PUBLISH)

    def of_other_names(self, markers: Mapping[str, Marker]) -> dict[str, Marker]:
        """Return the markers of this outlet that a pipeline of another name left: another one, or this one before."""
        return {key: marker for key, marker in markers.items() if key.endswith(self.label) and key != self.identity}


def of_view(settings: Settings) -> Outlet:
    """Return where the view is published."""
    return Outlet(settings.pipeline, f"{PUBLISH}{settings.view_topic}", (settings.view_topic,))


def of_stream(settings: Settings, stream: str, topics: Sequence[str]) -> Outlet:
    """Return where an optional stream publishes."""
    return Outlet(settings.pipeline, f"{PUBLISHES}{stream}", tuple(topics))


def identity(settings: Settings) -> str:
    """Return the transactional id of the view's publisher, which is also the key of its markers."""
    return of_view(settings).identity


def read(settings: Settings) -> dict[str, Marker]:
    """Return the newest marker of each publisher that has written to the progress topic, by its identity.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TransientError: a transaction stays open, behind which a newer marker may be.
    """
    settled.settle(settings, settings.progress_topic)
    return readable(settings)


def readable(settings: Settings) -> dict[str, Marker]:
    """Return what `read` returns, of what can be read now: an open transaction may hide a newer marker.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    values = clients.last_values(settings, settings.progress_topic)
    found = {key.decode(errors="replace"): parse(value) for key, value in values.items()}
    return {key: marker for key, marker in found.items() if marker is not None}
