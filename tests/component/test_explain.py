"""A query's death becomes an error that says what happened and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from customer_activity.engine.failures import explain
from customer_activity.errors import (
    ActivityError,
    BadShareExceeded,
    ChangeFeedLost,
    KafkaRefused,
    LeaseLost,
    TransientError,
)
from customer_activity.settings import Settings
from support.streams import Query

NOTED = "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 6."
LOG_GONE = "[DELTA_MISSING_FILES_UNEXPECTED_VERSION] expected version 3, found 5; set failOnDataLoss to false"
LOST = LeaseLost("summaries: another driver has taken over")


@pytest.mark.parametrize(
    ("said", "cause", "is_lost", "expected", "words"),
    [
        ("Python said no", BadShareExceeded("too many"), False, BadShareExceeded, "too many"),
        (NOTED, None, True, LeaseLost, "another driver has taken over"),
        (NOTED, None, False, TransientError, "planned a batch in this query's checkpoint"),
        ("java.io.FileNotFoundException: part-1.parquet", None, False, ChangeFeedLost, "files are gone"),
        (LOG_GONE, None, False, ChangeFeedLost, "files are gone"),
        (
            "died\norg.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [p]",
            None,
            False,
            KafkaRefused,
            "refuses for summaries: org.apache.kafka.common.errors.TopicAuthorizationException",
        ),
        (
            "died\norg.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed",
            None,
            False,
            KafkaRefused,
            "does not let this client sign in",
        ),
        ("something else\n at a line", None, False, TransientError, "summaries stopped: something else"),
        ("Python said no", ValueError("a bug"), False, TransientError, "a bug"),
    ],
    ids=[
        "an error of ours",
        "the successor has planned a batch",
        "the one before has planned a batch",
        "a file is gone",
        "entries of a log are gone, which Delta tells in words that Kafka's connector has, too",
        "Kafka lacks a right for it",
        "Kafka does not know it any more",
        "Spark's",
        "Python's",
    ],
)
def test_what_happened_is_told(
    tmp_path: Path,
    said: str,
    cause: Exception | None,
    is_lost: bool,
    expected: type[ActivityError],
    words: str,
) -> None:
    def fencing_epoch() -> int:
        if is_lost:
            raise LOST
        return 1

    found = explain(Query.SUMMARIES, RuntimeError(said), cause, Settings(lake=str(tmp_path)), fencing_epoch)
    assert type(found) is expected
    assert words in str(found)
    assert "\n at a line" not in str(found)
