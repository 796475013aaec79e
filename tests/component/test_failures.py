"""A stream's death in words: executors that do not get data from one another."""

from __future__ import annotations

import pytest

from customer_activity.engine import failures
from customer_activity.errors import TransientError
from customer_activity.settings import Settings

FETCH = "Most recent failure reason: org.apache.spark.shuffle.FetchFailedException at org.apache.spark.storage\n"
CAUSE = "Caused by: java.io.IOException: "


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
    told = failures.explain(
        "silver", RuntimeError("a batch failed"), RuntimeError(FETCH + CAUSE + cause), settings, int
    )
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
    told = failures.explain("silver", RuntimeError("a batch failed"), RuntimeError(text), settings, int)
    assert told.what == "silver stopped: RuntimeError"
