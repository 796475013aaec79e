"""Somebody else's topics: which of their settings are refused, which are told, and which do not matter."""

from __future__ import annotations

import pytest

from customer_activity.catalog import PAYMENTS_ROLE, PROFILES_ROLE, PROGRESS_ROLE, PURCHASES_ROLE, VIEW_ROLE
from customer_activity.kafka import policy
from customer_activity.kafka.policy import Found

# What Kafka has for a topic that nobody said anything about.
DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "delete.retention.ms": "86400000",
    "min.insync.replicas": "1",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "unclean.leader.election.enable": "false",
}
COMPACTED = {"cleanup.policy": "compact", "delete.retention.ms": "604800000"}
EVER = {"retention.ms": "-1"}
BOTH = {"cleanup.policy": "compact,delete"}


# By role: what differs from Kafka's defaults, what is refused of it, and what is told.
JUDGED: dict[str, dict[str, tuple[dict[str, str], str, str]]] = {
    PURCHASES_ROLE: {
        "Kafka's defaults": ({}, "", "keeps records for 7 days: `verify`"),
        "kept for ever": (EVER, "", ""),
        "an hour": ({"retention.ms": "3600000"}, "", "for 1.0 h"),
        "by size": ({**EVER, "retention.bytes": "1024"}, "", "1,024 bytes a partition"),
        "compacted": (COMPACTED, "a repeat would remove", ""),
        "both": (BOTH, "a repeat would remove", "keeps records"),
        "broker's clock": ({**EVER, "message.timestamp.type": "LogAppendTime"}, "", ""),
        "producers' affair": ({**EVER, "min.insync.replicas": "9"}, "", ""),
    },
    PAYMENTS_ROLE: {
        "kept for ever": (EVER, "", ""),
        "compacted": (COMPACTED, "remove the payment that counts", ""),
    },
    PROFILES_ROLE: {
        "Kafka's defaults": ({}, "", "keeps records for 7 days"),
        "as the file says": (COMPACTED, "", ""),
        "compacted by default": (
            {"cleanup.policy": "compact"},
            "",
            "keeps deletions for 24.0 h: a deletion may be gone before it lands",
        ),
        "both": ({**COMPACTED, "cleanup.policy": "delete, compact"}, "", "keeps records for 7 days"),
    },
    "daily": {
        "as the file says": (COMPACTED, "", ""),
        "Kafka's defaults": ({}, "", "figures that do not change for long are removed from it"),
        "cannot be written": ({**COMPACTED, "min.insync.replicas": "9"}, "nothing can be written", ""),
    },
    "daily_final": {"Kafka's defaults": ({}, "", "")},
    VIEW_ROLE: {
        "as the file says": (COMPACTED, "", ""),
        "Kafka's defaults": ({}, "cleanup.policy=delete: it must be compact", "keeps deletions"),
        "expires": (COMPACTED | BOTH, "rows that do not change would be removed", ""),
        "never expires": (COMPACTED | EVER | BOTH, "", ""),
        "expires by size": ({**COMPACTED, **EVER, **BOTH, "retention.bytes": "1"}, "would be removed", ""),
        "compacted by default": ({"cleanup.policy": "compact"}, "", "a consumer that is off for longer"),
        "cannot be written": (
            {**COMPACTED, "min.insync.replicas": "3"},
            "min.insync.replicas=3 and 2 replicas: nothing can be written",
            "",
        ),
        "can just be written": ({**COMPACTED, "min.insync.replicas": "2"}, "", ""),
        "no room": ({**COMPACTED, "max.message.bytes": "999"}, "a row may need 4,096", ""),
        "unclean": ({**COMPACTED, "unclean.leader.election.enable": "true"}, "", "may be lost when a broker fails"),
    },
    PROGRESS_ROLE: {
        "as the file says": ({"cleanup.policy": "compact"}, "", ""),
        "Kafka's defaults": ({}, "it must be compact", ""),
        "expires": (BOTH, "the publisher's markers would be removed", ""),
    },
}


@pytest.mark.parametrize(
    ("role", "changes", "refused", "told"),
    [pytest.param(role, *case, id=f"{role}: {name}") for role, cases in JUDGED.items() for name, case in cases.items()],
)
def test_settings(role: str, changes: dict[str, str], refused: str, told: str) -> None:
    found = policy.judge(role, Found("t", 1, 2, DEFAULTS | changes))
    for words, said in ((refused, found.refused), (told, found.told)):
        assert len(said) == bool(words)
        assert words in "".join(said)
        assert all(sentence.startswith("topic t ") for sentence in said)


@pytest.mark.parametrize(
    ("role", "refused"), [(PURCHASES_ROLE, False), (PROFILES_ROLE, False), (VIEW_ROLE, False), (PROGRESS_ROLE, True)]
)
def test_partitions_may_be_as_many_as_they_are_but_for_markers(role: str, refused: bool) -> None:
    config = DEFAULTS | (EVER if role == PURCHASES_ROLE else COMPACTED)
    assert bool(policy.judge(role, Found("t", 13, 1, config)).refused) is refused


@pytest.mark.parametrize(
    ("role", "refused"), [(PURCHASES_ROLE, False), (PROFILES_ROLE, False), (VIEW_ROLE, True), (PROGRESS_ROLE, True)]
)
def test_settings_that_we_may_not_see_are_told_of_inputs_and_refused_of_outputs(role: str, refused: bool) -> None:
    found = policy.judge(role, Found("t", 1, 1, {}))
    assert (len(found.refused), len(found.told)) == ((1, 0) if refused else (0, 1))
