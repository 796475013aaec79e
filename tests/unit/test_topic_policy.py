"""Somebody else's topics: which of their settings are refused, which are told, and which do not matter."""

from __future__ import annotations

import pytest

from customer_activity.catalog import PROFILES_ROLE, PROGRESS_ROLE, PURCHASES_ROLE, VIEW_ROLE
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


@pytest.mark.parametrize(
    ("role", "changes", "refused", "told"),
    [
        pytest.param(PURCHASES_ROLE, {}, "", "keeps records for 7 days: `verify`", id="purchases: Kafka's defaults"),
        pytest.param(PURCHASES_ROLE, EVER, "", "", id="purchases: kept for ever"),
        pytest.param(PURCHASES_ROLE, {"retention.ms": "3600000"}, "", "for 1.0 h", id="purchases: an hour"),
        pytest.param(
            PURCHASES_ROLE, {**EVER, "retention.bytes": "1024"}, "", "1,024 bytes a partition", id="purchases: by size"
        ),
        pytest.param(PURCHASES_ROLE, COMPACTED, "a repeat would remove", "", id="purchases: compacted"),
        pytest.param(
            PURCHASES_ROLE,
            {"cleanup.policy": "compact,delete"},
            "a repeat would remove",
            "keeps records",
            id="purchases: both",
        ),
        pytest.param(
            PURCHASES_ROLE, {**EVER, "message.timestamp.type": "LogAppendTime"}, "", "", id="purchases: broker's clock"
        ),
        pytest.param(PURCHASES_ROLE, {**EVER, "min.insync.replicas": "9"}, "", "", id="purchases: producers' affair"),
        pytest.param(PROFILES_ROLE, {}, "", "keeps records for 7 days", id="profiles: Kafka's defaults"),
        pytest.param(PROFILES_ROLE, COMPACTED, "", "", id="profiles: as the file says"),
        pytest.param(
            PROFILES_ROLE,
            {"cleanup.policy": "compact"},
            "",
            "keeps deletions for 24.0 h: a deletion may be gone before it lands",
            id="profiles: compacted by default",
        ),
        pytest.param(
            PROFILES_ROLE,
            {**COMPACTED, "cleanup.policy": "delete, compact"},
            "",
            "keeps records for 7 days",
            id="profiles: both",
        ),
        pytest.param(VIEW_ROLE, COMPACTED, "", "", id="view: as the file says"),
        pytest.param(
            VIEW_ROLE, {}, "cleanup.policy=delete: it must be compact", "keeps deletions", id="view: Kafka's defaults"
        ),
        pytest.param(
            VIEW_ROLE,
            {**COMPACTED, "cleanup.policy": "compact,delete"},
            "rows that do not change would be removed",
            "",
            id="view: expires",
        ),
        pytest.param(
            VIEW_ROLE, {**COMPACTED, **EVER, "cleanup.policy": "compact,delete"}, "", "", id="view: never expires"
        ),
        pytest.param(
            VIEW_ROLE,
            {**COMPACTED, **EVER, "cleanup.policy": "compact,delete", "retention.bytes": "1"},
            "would be removed",
            "",
            id="view: expires by size",
        ),
        pytest.param(
            VIEW_ROLE,
            {"cleanup.policy": "compact"},
            "",
            "a consumer that is off for longer",
            id="view: compacted by default",
        ),
        pytest.param(
            VIEW_ROLE,
            {**COMPACTED, "min.insync.replicas": "3"},
            "min.insync.replicas=3 and 2 replicas: nothing can be written",
            "",
            id="view: cannot be written",
        ),
        pytest.param(VIEW_ROLE, {**COMPACTED, "min.insync.replicas": "2"}, "", "", id="view: can just be written"),
        pytest.param(
            VIEW_ROLE, {**COMPACTED, "max.message.bytes": "999"}, "a row may need 4,096", "", id="view: no room"
        ),
        pytest.param(
            VIEW_ROLE,
            {**COMPACTED, "unclean.leader.election.enable": "true"},
            "",
            "may be lost when a broker fails",
            id="view: unclean",
        ),
        pytest.param(PROGRESS_ROLE, {"cleanup.policy": "compact"}, "", "", id="progress: as the file says"),
        pytest.param(PROGRESS_ROLE, {}, "it must be compact", "", id="progress: Kafka's defaults"),
        pytest.param(
            PROGRESS_ROLE,
            {"cleanup.policy": "compact,delete"},
            "the publisher's markers would be removed",
            "",
            id="progress: expires",
        ),
    ],
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
