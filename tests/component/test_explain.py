"""A query's death becomes an error that says what happened and what to do."""

from __future__ import annotations

import sqlite3

import pytest

from customer_activity.engine.failures import explain
from customer_activity.errors import (
    ActivityError,
    BadShareExceeded,
    ChangeFeedLost,
    Corrected,
    DiskFull,
    EnvironmentFault,
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
CLEANED = "Lost task 0.3 in stage 4.0 (TID 12) (worker-0 executor 1): java.{}\n\tat java"
BLOCKS = "blockmgr-44a5bfdc-3489-4a00-b6e8-85b9711409a6/0d/temp_shuffle_1"
NAMED = "refuses for summaries: org.apache.kafka.common.errors.TopicAuthorizationException"
FETCH = "Most recent failure reason: org.apache.spark.shuffle.FetchFailedException at org.apache.spark.storage\n"
CAUSE = "Caused by: java.io.IOException: "


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
            CLEANED.format(
                f"io.FileNotFoundException: /mnt/spark-0c7f606f-a294-412e/{BLOCKS} (No such file or directory)"
            ),
            TransientError,
            "temporary files of Spark were removed from /mnt on worker-0 while it ran",
            id="an executor's local directory was emptied",
        ),
        pytest.param(
            CLEANED.format(f"nio.file.NoSuchFileException: /var/a b/appcache/application_1_2/{BLOCKS}"),
            TransientError,
            "temporary files of Spark were removed from /var/a b/appcache/application_1_2 on worker-0 while it ran",
            id="a local directory of YARN was removed",
        ),
        pytest.param(
            f"failed\njava.io.FileNotFoundException: /scratch/{BLOCKS}",
            TransientError,
            "temporary files of Spark were removed from /scratch while it ran",
            id="the driver's own were",
        ),
        pytest.param(
            FileNotFoundError(2, "No such file or directory", "/mnt/spark-0c7f606f-a294-412e-9/pyspark-1/tmp2"),
            TransientError,
            "temporary files of Spark were removed from /mnt while it ran",
            id="the driver's own of Python were",
        ),
        pytest.param(
            CLEANED.format(f"io.FileNotFoundException: /tmp/{BLOCKS} (Too many open files)"),
            TransientError,
            f"Too many open files: /tmp/{BLOCKS} on worker-0",
            id="an executor has too many open",
        ),
        pytest.param(
            "calling o71.commit.\n: java.io.FileNotFoundException: /lake/_delta_log/.12.json.tmp (Permission denied)",
            TransientError,
            "Permission denied: /lake/_delta_log/.12.json.tmp",
            id="a file of a log may not be written",
        ),
        pytest.param(
            CLEANED.format("io.IOException: No space left on device"),
            DiskFull,
            "no space left on a disk of the executor on worker-0",
            id="an executor's disk is full",
        ),
        pytest.param(
            CLEANED.format("RuntimeError: OSError in datafiles.py, line 3 (ENOSPC)"),
            DiskFull,
            "no space left on a disk of the executor on worker-0",
            id="a task in Python has met a full disk",
        ),
        pytest.param(
            OSError(28, "No space left on device"),
            DiskFull,
            "a disk of its driver or of executors",
            id="the driver has",
        ),
        pytest.param(
            sqlite3.OperationalError("database or disk is full"), DiskFull, "its driver or", id="local state has"
        ),
        pytest.param(
            CLEANED.format("io.FileNotFoundException: File file:/tmp/lake/silver/purchases/part-1.parquet"),
            ChangeFeedLost,
            "files are gone",
            id="a file is gone of a lake among temporary files",
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


@pytest.mark.parametrize(
    ("cause", "where"),
    [
        pytest.param("Failed to connect to worker-0/<unresolved>:7079", "worker-0, port 7079", id="its name"),
        pytest.param("Failed to connect to worker-0:7079", "worker-0, port 7079", id="its name alone"),
        pytest.param("Failed to connect to worker-0/10.0.0.7:7079", "worker-0, port 7079", id="its port"),
        pytest.param("Failed to connect to /10.0.0.7:7079", "10.0.0.7, port 7079", id="its address"),
        pytest.param("Connecting to w/10.0.0.7:7079 timed out (120000 ms)", "w, port 7079", id="packets are dropped"),
    ],
)
def test_an_executor_that_others_get_no_data_from_is_named(settings: Settings, cause: str, where: str) -> None:
    told = explain("silver", RuntimeError("a batch failed"), RuntimeError(FETCH + CAUSE + cause), settings, int)
    assert type(told) is TransientError
    assert told.what == f"silver: executors did not get data from the one on {where}"
    assert "names" in told.remedy


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{CAUSE}Failed to connect to kafka/10.0.0.7:9092", id="somebody else was not reached"),
        pytest.param(f"{FETCH}Caused by: java.io.EOFException", id="it was reached"),
    ],
)
def test_what_failed_otherwise_blames_no_executor(settings: Settings, text: str) -> None:
    told = explain("silver", RuntimeError("a batch failed"), RuntimeError(text), settings, int)
    assert told.what == "silver stopped: RuntimeError"


NO_PYTHON = 'Cannot run program "/opt/python": '


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(f"{NO_PYTHON}error=2, No such file or directory", EnvironmentFault, id="there is none"),
        pytest.param(f"{NO_PYTHON}Exec failed, error: 13 (Permission denied)", EnvironmentFault, id="it is another's"),
        pytest.param(f"{NO_PYTHON}error=12, Cannot allocate memory", TransientError, id="it has no memory"),
        pytest.param("ModuleNotFoundError: No module named 'msgspec'", EnvironmentFault, id="a library is missing"),
    ],
)
def test_executors_that_have_come_later_and_cannot_run_the_code_are_told(
    settings: Settings, text: str, expected: type[ActivityError]
) -> None:
    there = settings.model_copy(update={"spark_master": "spark://master:7077"})
    told = explain("silver", RuntimeError("a batch failed"), RuntimeError(text), there, int)
    assert type(told) is expected
    assert ("ACTIVITY_EXECUTOR_PYTHON" in str(told)) is (expected is EnvironmentFault)
    here = explain("silver", RuntimeError("a batch failed"), RuntimeError(text), settings, int)
    assert type(here) is TransientError, "a driver of this machine's own has the driver's Python"
