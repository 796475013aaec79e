"""A query's death becomes an error that says what happened and what to do."""

from __future__ import annotations

import pytest

from customer_activity.engine.failures import explain
from customer_activity.errors import (
    ActivityError,
    BadShareExceeded,
    ChangeFeedLost,
    Corrected,
    KafkaRefused,
    LeaseLost,
    TransientError,
)
from customer_activity.lake import feeds
from customer_activity.settings import Settings
from support.streams import Query

NOTED = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 6."
LOG_GONE = "[DELTA_MISSING_FILES_UNEXPECTED_VERSION] expected version 3, found 5; set failOnDataLoss to false"
KAFKA = "died\norg.apache.kafka.common.errors."
NO_RIGHT = f"{KAFKA}TopicAuthorizationException: Not authorized to access topics: [p]"
NO_USER = f"{KAFKA}SaslAuthenticationException: Authentication failed"
NAMED = "refuses for summaries: org.apache.kafka.common.errors.TopicAuthorizationException"


@pytest.mark.parametrize(
    ("fault", "expected", "words"),
    [
        pytest.param(BadShareExceeded("too many"), BadShareExceeded, "too many", id="an error of ours"),
        pytest.param(ValueError("Ada, 1 Old Street"), TransientError, "summaries stopped: ValueError", id="Python's"),
        pytest.param(
            NOTED,
            TransientError,
            "planned a batch in this stream's checkpoint",
            id="the one before has planned a batch",
        ),
        pytest.param(
            "java.io.FileNotFoundException: part-1.parquet", ChangeFeedLost, "files are gone", id="a file is gone"
        ),
        pytest.param(
            LOG_GONE,
            ChangeFeedLost,
            "files are gone",
            id="entries of a log are gone, which Delta tells in words that Kafka's connector has, too",
        ),
        pytest.param(
            "[DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE] If you never deleted it, it is likely lagging",
            ChangeFeedLost,
            "`activity recover summaries --reason …` builds its table again from silver.purchases",
            id="a log was shortened while the stream was off",
        ),
        pytest.param(
            ChangeFeedLost("silver.purchases: version 3 is gone from the log", remedy=feeds.LOST),
            ChangeFeedLost,
            "`activity recover summaries --reason …` builds its table again from silver.purchases",
            id="who reads the feed of a stream has found a gap in it",
        ),
        pytest.param(
            Corrected("silver.purchases: version 3 is a correction", remedy="rebuild"),
            Corrected,
            "`activity recover summaries --reason …` builds its table again from silver.purchases",
            id="rows were retracted while the stream was off",
        ),
        pytest.param(
            ChangeFeedLost("bronze.customer_profiles: version 3 is gone from the log", remedy=feeds.LOST),
            ChangeFeedLost,
            feeds.LOST,
            id="what a stream knows of the past is gone, which no table of its own brings back",
        ),
        pytest.param(NO_RIGHT, KafkaRefused, NAMED, id="Kafka lacks a right for it"),
        pytest.param(NO_USER, KafkaRefused, "authentication at Kafka", id="Kafka does not know it any more"),
        pytest.param(
            "TABLE_PUT_BACK: t ends at 3, and 7 was read", TransientError, "restored to an earlier", id="put back"
        ),
        pytest.param("Ada, 1 Old Street", TransientError, "summaries stopped: RuntimeError", id="Spark's"),
    ],
)
def test_what_happened_is_told(
    settings: Settings, fault: str | Exception, expected: type[ActivityError], words: str
) -> None:
    """Spark says it in words; what was raised in Python is at hand itself."""
    said, cause = (fault, None) if isinstance(fault, str) else ("Python said no", fault)
    found = explain(Query.SUMMARIES, RuntimeError(said), cause, settings, lambda: 1)
    assert type(found) is expected
    assert words in str(found)
    assert "Old Street" not in str(found), "words that nobody foresaw may hold a row"


def test_a_successor_that_has_planned_a_batch_is_told(settings: Settings) -> None:
    lost = LeaseLost("summaries: another driver has taken over")

    def fencing_epoch() -> int:
        raise lost

    assert explain(Query.SUMMARIES, RuntimeError(NOTED), None, settings, fencing_epoch) is lost
