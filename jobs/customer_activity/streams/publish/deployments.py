"""Whether the topics are this deployment's to publish to, and can be gone on with: markers say so."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from customer_activity.errors import TerminalError
from customer_activity.kafka import settled
from customer_activity.kafka.marker import PUBLISH, PUBLISHES, Marker, Outlet
from customer_activity.settings import Settings


def refuse_others(settings: Settings, outlet: Outlet, markers: Mapping[str, Marker], ours: Collection[str]) -> None:
    """Make sure that no other deployment publishes to the same topics, or keeps markers on the progress topic.

    Args:
        settings: which progress topic.
        outlet: where this publisher publishes.
        markers: the newest of each publisher on the progress topic, by its identity.
        ours: ids of this lake's table that is published, the live one's and those whose place it has taken.

    Raises:
        TerminalError: another deployment does.
    """
    others = {key: marker for key, marker in markers.items() if marker.table_id not in ours}
    own = others.get(outlet.identity) or next(iter(outlet.of_other_names(others).values()), None)
    if own is not None:
        raise TerminalError(
            f"{_named(outlet)} published to from another lake (its table there is {own.table_id})",
            remedy="give this deployment topics of its own (ACTIVITY_VIEW_TOPIC, ACTIVITY_PROGRESS_TOPIC, …); where "
            f"that lake is gone for good, `activity resync {_stream(outlet)} --reason …` makes the topic say what this "
            "one says",
        )
    # Each deployment has a marker of its view; those of optional streams say nothing more.
    others = {key: marker for key, marker in others.items() if outlet.is_of_view and PUBLISHES not in key}
    if others:
        topics = ", ".join(sorted(key.partition(PUBLISH)[2] or key for key in others))
        raise TerminalError(
            f"topic {settings.progress_topic} has the markers of another deployment, which publishes to {topics}",
            remedy="give this deployment a progress topic of its own (ACTIVITY_PROGRESS_TOPIC)",
        )


def refuse_unmarked(settings: Settings, outlet: Outlet) -> None:
    """Make sure that topics without a marker have no records.

    Raises:
        BrokerUnavailable: Kafka does not answer.
        TerminalError: one has: another deployment with another progress topic publishes there, or the markers are lost.
    """
    for topic in outlet.topics:
        settled.settle(settings, topic)
        if settled.has_records(settings, topic):
            raise TerminalError(
                f"topic {topic} has records, and {settings.progress_topic} has no marker of who published "
                "them: another deployment did, or the markers are lost",
                remedy="give this deployment a topic of its own; where nobody else publishes there, "
                f"`activity resync {_stream(outlet)} --reason …` sends what differs and marks how far it is",
            )


def refuse_resyncing(outlet: Outlet, markers: Mapping[str, Marker]) -> None:
    """Make sure that no resync is under way, or ended half way: rows that it has sent would be sent once more.

    Raises:
        TerminalError: one is.
    """
    own = markers.get(outlet.identity) or next(iter(outlet.of_other_names(markers).values()), None)
    if own is not None and own.is_resyncing:
        stream = _stream(outlet)
        raise TerminalError(
            f"a resync of {stream} has sent some of what differs to {', '.join(outlet.topics)}, and not all",
            remedy=f"let it end, or run it again (`activity resync {stream} --reason …` sends the rest); then start",
        )


def _named(outlet: Outlet) -> str:
    return f"topic {outlet.topics[0]} is" if len(outlet.topics) == 1 else f"topics {', '.join(outlet.topics)} are"


def _stream(outlet: Outlet) -> str:
    return "publish" if outlet.is_of_view else outlet.label.removeprefix(PUBLISHES)
