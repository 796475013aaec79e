"""A view record's `traceparent` leads to the record that its `asOfEpochMillis` names, through the whole pipeline."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity import application
from customer_activity.catalog import Table, checkpoint_path, table_path
from customer_activity.lake import failpoints
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lineage import recording
from customer_activity.lineage.events_file import events_file
from customer_activity.operations import recovery
from customer_activity.settings import Settings
from customer_activity.verification import kafka_input
from customer_activity.verification.verify import verify
from support import lineage_events
from support.broker import assert_verified, send
from support.lineage_events import dataset
from support.records import Record, profile, purchase, tombstone
from support.shell import environment
from support.streams import Query


class OnTopic(NamedTuple):
    """A record as a consumer sees it."""

    key: str
    value: dict[str, Any] | None
    timestamp: int | None
    trace: str
    state: str


def traced(record: Record, number: int, state: str = "") -> Record:
    """Give a record the trace of that number."""
    headers: tuple[tuple[str, bytes | None], ...] = (("traceparent", traceparent(number).encode()),)
    return replace(record, headers=(*headers, ("tracestate", state.encode())) if state else headers)


def traceparent(number: int) -> str:
    return f"00-{number:032x}-{number:016x}-01"


def read(settings: Settings, topic: str) -> Iterator[OnTopic]:
    """Yield the committed records of a topic, a partition's in their order."""
    begin, end = kafka_input.begins(settings, topic), kafka_input.ends(settings, topic)
    for raw in kafka_input.read(settings, topic, begin, end):
        headers = {name: (value or b"").decode() for name, value in raw.headers}
        value = None if raw.value is None else json.loads(raw.value)
        key = (raw.key or b"").decode()
        yield OnTopic(key, value, raw.timestamp, headers.get("traceparent", ""), headers.get("tracestate", ""))


def newest(settings: Settings) -> dict[str, OnTopic]:
    return {record.key: record for record in read(settings, settings.view_topic)}


def assert_each_leads_to_its_cause(settings: Settings) -> None:
    """Each trace on the view topic is that of a record of this customer, as old as the row says."""
    inputs = [*read(settings, settings.purchase_topic), *read(settings, settings.profile_topic)]
    for record in (each for each in read(settings, settings.view_topic) if each.trace):
        (cause,) = (each for each in inputs if each.trace == record.trace)
        of_customer = cause.key if cause.value is None else cause.value["customerId"]
        assert of_customer == record.key
        if record.value is not None:
            assert cause.timestamp == record.value["asOfEpochMillis"]


def assert_lineage_is_told(settings: Settings) -> None:
    """Each run of each stream is told from start to end, and where bronze stopped the next one went on."""
    events = lineage_events.read(events_file(settings))
    runs = Counter(event["run"]["runId"] for event in events)
    assert len(runs) == 4 * (1 + len(Query))  # four drivers, each with its streams
    assert {event["eventType"] for event in events} == {"START", "COMPLETE"}
    bronze = [
        event for event in events if event["job"]["name"].endswith(".bronze") and event["eventType"] == "COMPLETE"
    ]
    read = [
        {each["partition"]: (each["begin"], each["end"]) for each in facet["partitions"]}
        for event in bronze
        if (facet := dataset(event, settings.purchase_topic)["inputFacets"].get("customerActivity_kafkaOffsets"))
    ]
    for before, after in pairwise(read):
        assert all(after[partition][0] == before[partition][1] for partition in before.keys() & after.keys())
    newest = dataset(bronze[-1], "bronze/purchase_events")["facets"]["version"]["datasetVersion"]
    assert int(newest) == DeltaTable(table_path(settings.lake, Table.PURCHASE_EVENTS)).version()


def numbers(settings: Settings) -> Mapping[str, int]:
    """By customer, the number of the trace on the newest record."""
    return {key: int(record.trace.split("-")[1], 16) for key, record in newest(settings).items()}


@pytest.fixture
def settings(settings: Settings) -> Iterator[Settings]:
    """Take back what the client of OpenLineage has told this process."""
    yield settings
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE__")]:
        del os.environ[name]


def drain(spark: SparkSession, settings: Settings) -> None:
    """Let every hop take what is there, and tell of it, as a driver does."""
    with recording.recorder(settings) as recorder:
        application.host(spark, settings, list(Query), threading.Event(), available_now=True, recorder=recorder)


def test_a_view_record_leads_to_what_caused_it(spark: SparkSession, settings: Settings) -> None:
    send(settings, traced(profile("C-1"), 1), traced(profile("C-2"), 2), traced(profile("C-3"), 3))
    drain(spark, settings)
    assert numbers(settings) == {"C-1": 1, "C-2": 2, "C-3": 3}

    send(settings, traced(purchase("P-1", "C-1"), 4, "vendor=1"), traced(purchase("P-2", "C-2"), 5))
    drain(spark, settings)
    send(settings, traced(profile("C-2", updated=2_000), 6))  # its purchases' trace is in the state alone
    send(settings, traced(purchase("P-3", "C-1"), 7), traced(purchase("P-3", "C-1"), 8))  # the second one repeats
    send(settings, traced(tombstone("C-3"), 9))
    drain(spark, settings)
    assert numbers(settings) == {"C-1": 7, "C-2": 6, "C-3": 9}
    assert [each.state for each in read(settings, settings.view_topic) if each.trace == traceparent(4)] == ["vendor=1"]

    for query in (Query.PUBLISH, Query.GOLD):  # batches are cut elsewhere from here on
        shutil.rmtree(checkpoint_path(settings.lake, query))
    recovery.recover(settings.lake, Query.GOLD, "lost")
    shutil.rmtree(settings.index_dir)
    malformed = replace(purchase("P-5", "C-1"), headers=(("traceparent", b"00-x"),))
    send(settings, traced(purchase("P-4", "C-2"), 10), malformed)
    drain(spark, settings)
    found = newest(settings)
    assert (found["C-2"].trace, found["C-1"].trace) == (traceparent(10), ""), "what is malformed is not passed on"

    assert_lineage_is_told(settings)
    assert_each_leads_to_its_cause(settings)
    (check,) = (check for check in verify(settings, settle_seconds=0).checks if check.name == "view: traces")
    assert (check.expected, check.observed, check.differences) == (1, 1, 0)
    assert_verified(settings)


PLACES = (
    f"{Query.SILVER}:{FailPoint.COMMITTED}",
    f"{Query.GOLD}:{FailPoint.STAGED}",
    f"{Query.PUBLISH}:{FailPoint.SENDING}",
    f"{Query.PUBLISH}:{FailPoint.PUBLISHED}",
)


@pytest.mark.nightly
@pytest.mark.parametrize("place", PLACES)
def test_a_driver_that_is_killed_loses_no_trace(settings: Settings, place: str) -> None:
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    send(settings, traced(profile("C-1"), 1), traced(profile("C-2"), 2), traced(purchase("P-1", "C-1"), 3))
    (settings.run_dir / failpoints.ORDER).write_text(place, encoding="utf-8")
    assert stream(settings) < 0
    assert (settings.run_dir / failpoints.REACHED).exists()
    send(settings, traced(purchase("P-2", "C-2"), 4))
    assert stream(settings) == 0
    assert {key: record.trace for key, record in newest(settings).items()}["C-2"] == traceparent(4)
    assert_each_leads_to_its_cause(settings)
    assert_verified(settings)


def stream(settings: Settings) -> int:
    """Run a driver to its end, as `activity stream --available-now`; return its exit code."""
    command = [sys.executable, "-m", "customer_activity", "stream", "--available-now"]
    variables = environment(settings, ACTIVITY_FAIL_POINTS="true")
    nowhere = subprocess.DEVNULL  # a pipe is open for as long as anything that was started has it
    done = subprocess.run(command, check=False, stdout=nowhere, stderr=nowhere, env=variables, start_new_session=True)
    return done.returncode
