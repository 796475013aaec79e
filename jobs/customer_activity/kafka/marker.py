"""The publisher's marker on the progress topic: how far gold is published, and whose gold it is.

A deployment has a view topic and a progress topic of its own: the markers say whose they are. Inputs may be shared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from customer_activity.errors import TerminalError
from customer_activity.kafka import clients, settled
from customer_activity.settings import Settings

PUBLISH = "-publish-"  # between the pipeline's name and its view topic's, which may be called otherwise
BEFORE_THE_FIRST = -1  # the version of a marker that says whose the topics are, when nothing is out yet


class Marker(NamedTuple):
    """How far gold is published.

    Attributes:
        table_id: the gold table's id; a rebuilt table has another, and its versions start at 0 again.
        version: the newest gold version whose changes are all on the topic.
        rows: how many rows of the next version are on the topic, in the order of its commit's files; 0 unless that
            version is larger than a transaction may be.
        commit: the own id of the commit that made the version; empty where it is not known.
    """

    table_id: str
    version: int
    rows: int = 0
    commit: str = ""

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
        rows, commit = int(told.get("rows", 0)), str(told.get("commit", ""))
        return Marker(str(told["table_id"]), int(told["version"]), rows, commit)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TerminalError(
            "a record on the progress topic is no marker of a publisher: something else writes to that topic",
            remedy="give the deployment a progress topic of its own (ACTIVITY_PROGRESS_TOPIC)",
        ) from None


def identity(settings: Settings) -> str:
    """Return the publisher's transactional id, which is also the key of its markers."""
    return f"{settings.pipeline}{PUBLISH}{settings.view_topic}"


def of_other_names(settings: Settings, markers: Mapping[str, Marker]) -> dict[str, Marker]:
    """Return the markers of this view topic that a pipeline of another name left: another one, or this one before."""
    same_view = f"{PUBLISH}{settings.view_topic}"
    return {key: marker for key, marker in markers.items() if key.endswith(same_view) and key != identity(settings)}


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
