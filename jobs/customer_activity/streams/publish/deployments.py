"""Whether the topics are this deployment's to publish to: markers say whose they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from customer_activity.errors import TerminalError
from customer_activity.kafka import settled
from customer_activity.kafka.marker import PUBLISH, Marker, identity, of_other_names
from customer_activity.settings import Settings


def refuse_others(settings: Settings, markers: Mapping[str, Marker], ours: Collection[str]) -> None:
    """Make sure that no other deployment publishes to the view topic, or keeps markers on the progress topic.

    Args:
        settings: which topics.
        markers: the newest of each publisher on the progress topic, by its identity.
        ours: ids of this lake's gold, the live one's and those whose place it has taken.

    Raises:
        TerminalError: another deployment does.
    """
    others = {key: marker for key, marker in markers.items() if marker.table_id not in ours}
    own = others.get(identity(settings)) or next(iter(of_other_names(settings, others).values()), None)
    if own is not None:
        raise TerminalError(
            f"topic {settings.view_topic} is published to from another lake (its gold is table {own.table_id})",
            remedy="give this deployment topics of its own (ACTIVITY_VIEW_TOPIC, ACTIVITY_PROGRESS_TOPIC); where that "
            "lake is gone for good, `activity resync publish --reason …` makes the topic say what this one says",
        )
    if others:
        topics = ", ".join(sorted(key.partition(PUBLISH)[2] or key for key in others))
        raise TerminalError(
            f"topic {settings.progress_topic} has the markers of another deployment, which publishes to {topics}",
            remedy="give this deployment a progress topic of its own (ACTIVITY_PROGRESS_TOPIC)",
        )


def refuse_unmarked(settings: Settings) -> None:
    """Make sure that a view topic without a marker has no records.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TerminalError: it has: another deployment with another progress topic publishes there, or the markers are lost.
    """
    settled.settle(settings, settings.view_topic)
    if settled.has_records(settings, settings.view_topic):
        raise TerminalError(
            f"topic {settings.view_topic} has records, and {settings.progress_topic} has no marker of who published "
            "them: another deployment did, or the markers are lost",
            remedy="give this deployment a view topic of its own (ACTIVITY_VIEW_TOPIC); where nobody else publishes "
            "there, `activity resync publish --reason …` sends what differs and marks how far it is",
        )
