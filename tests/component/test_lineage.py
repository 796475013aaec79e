"""Lineage: what streams declare is whole, events follow OpenLineage's schemas, and a backend never stops a stream."""

from __future__ import annotations

import importlib.util
import json
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_static_uuid

from customer_activity import topology
from customer_activity.catalog import PROGRESS_ROLE, Table
from customer_activity.engine.observability import QueryStatus
from customer_activity.errors import TransientError
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lineage import datasets, origins, recording, sending
from customer_activity.lineage.events_file import events_file, keep_short
from customer_activity.lineage.recording import Telling
from customer_activity.lineage.sending import Sender
from customer_activity.lineage.told import Moment, Told, Verdict, new_run, now
from customer_activity.settings import PROJECT, Settings
from customer_activity.streams.registry import ALL
from customer_activity.topology import How, Spec, Topic, Writes
from support import addresses, lineage_events
from support.lineage_events import dataset
from support.waiting import until

SPECS = {stream.spec.name: stream.spec for stream in ALL}
PARENT, ROOT = f"airflow/dag.task/{uuid.UUID(int=1)}", f"airflow/dag/{uuid.UUID(int=2)}"
# Columns that are made of no column of a source, whatever reads them: coordinates, raw bytes, clocks, settings, counts.
OF_NOTHING = {
    *("key", "value", "headers", "topic", "partition", "offset", "kafka_timestamp", "ingested_at", "landing"),
    *("is_tombstone", "trace_context", "currency", "view_version", "decided_at", "reprocessed_at", "reason"),
    *("rules", "rules_version", "noted_at"),
}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Return settings of a process that OpenLineage's variables say nothing to; its client sets some itself."""
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    yield Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run", lineage_parent=PARENT, lineage_root=ROOT)
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE__")]:
        del os.environ[name]


def writes() -> list[Any]:
    return [
        pytest.param(spec, write, id=f"{spec.name} {write.target}")
        for spec in SPECS.values()
        for write in spec.writes
        if isinstance(write.target, Table) and write.target not in (Table.QUARANTINE, Table.PRODUCTS)
    ]


@pytest.mark.parametrize(("spec", "write"), writes())
def test_every_column_says_what_it_is_made_of(spec: Spec, write: Writes) -> None:
    assert isinstance(write.target, Table)
    columns = origins.columns(write.target)
    assert {made.column for made in write.made} <= {*columns}, "a column that is not there"
    made_of = origins.origins(spec, write)
    told = {made.column for made in write.made}
    assert set(columns) - made_of.keys() - told <= (OF_NOTHING if spec.topics else set())
    assert set(columns) - made_of.keys() <= OF_NOTHING
    for origin in (origin for of in made_of.values() for origin in of):
        assert origin.column in origins.columns(origin.end), "it is made of a column that is not there"
    for made in write.made:
        assert len(made_of.get(made.column, ())) >= len(made.of), "one of its columns is not found"


@pytest.mark.parametrize(
    ("stream", "table", "column", "made_of"),
    [
        ("bronze", Table.PURCHASE_EVENTS, "customer_id", {("purchases", "customerId", How.IDENTITY)}),
        ("silver", Table.PURCHASES, "amount", {("bronze/purchase_events", "amount", How.IDENTITY)}),
        ("gold", Table.ACTIVITY_CHANGES, "total_amount", {("silver/purchases", "amount", How.AGGREGATION)}),
        ("gold", Table.ACTIVITY_CHANGES, "address", {("silver/profile_changes", "address", How.IDENTITY)}),
        (
            "gold",
            Table.ACTIVITY_CHANGES,
            "as_of",
            {
                ("silver/purchases", "kafka_timestamp", How.AGGREGATION),
                ("silver/profile_changes", "kafka_timestamp", How.AGGREGATION),
            },
        ),
        ("enrichment", Table.ENRICHED, "brand", {("reference/products", "brand", How.IDENTITY)}),
        ("masked", Table.ACTIVITY_MASKED, "email_hash", {("gold/activity_changes", "email", How.MASKED)}),
        ("masked", Table.ACTIVITY_MASKED, "email_domain", {("gold/activity_changes", "email", How.TRANSFORMATION)}),
        ("payments", Table.PAID, "customer_id", {("silver/timed_purchases", "customer_id", How.IDENTITY)}),
    ],
)
def test_origins(stream: str, table: Table, column: str, made_of: set[tuple[str, str, How]]) -> None:
    found = origins.origins(SPECS[stream], SPECS[stream].how(table))[column]
    assert {
        (origin.end.role if isinstance(origin.end, Topic) else origin.end, *origin[1:]) for origin in found
    } == made_of


def test_a_hash_tells_a_backend_that_it_is_masked(settings: Settings) -> None:
    masked = SPECS["masked"]
    facet = datasets.column_lineage(settings, masked, masked.how(Table.ACTIVITY_MASKED))["columnLineage"]
    found = Serde.to_dict(facet)["fields"]
    for column, is_masked in (("name_hash", True), ("postcode", False), ("total_amount", False)):
        assert [each["masking"] for each in found[column]["inputFields"][0]["transformations"]] == [is_masked]


def test_the_view_s_fields_are_gold_s_columns() -> None:
    publish = SPECS["publish"]
    (view,) = (write for write in publish.writes if isinstance(write.target, Topic) and write.target.role == "view")
    found = origins.origins(publish, view)
    assert found["asOfEpochMillis"] == [origins.Origin(Table.ACTIVITY_CHANGES, "as_of", How.IDENTITY)]
    assert found.keys() == set(origins.columns(view.target))


@pytest.mark.parametrize(
    ("changed", "end", "name"),
    [
        ({"lake": "/data/lake"}, Table.PURCHASES, ("file", "/data/lake/silver/purchases")),
        ({"lake": "s3a://bucket/some/lake"}, Table.PURCHASES, ("s3://bucket", "some/lake/silver/purchases")),
        ({"kafka_bootstrap_servers": "b1:9093,b2:9093"}, Topic("view"), ("kafka://b1:9093", "customer-activity-view")),
        ({"kafka_bootstrap_servers": "SSL://b1"}, Topic("view"), ("kafka://b1:9092", "customer-activity-view")),
    ],
)
def test_datasets_are_named_as_openlineage_says(changed: dict[str, Any], end: Any, name: tuple[str, str]) -> None:
    assert datasets.named(Settings(**changed), end) == name


def batch(query: str, **more: Any) -> MicroBatch:
    return MicroBatch(query, "g-1", 0, rows=10, **more)


def told_by(settings: Settings, *, error: Exception | None = None, clock: Any = None) -> list[dict[str, Any]]:
    """Let a driver with all streams live, and return its events."""
    seconds = iter(range(0, 10_000, 30))
    sender = Sender(sending.opening(settings))
    with suppress(TransientError, ValueError):  # noqa: SIM117 - one is about the other
        with Telling(settings, sender, clock or (lambda: float(next(seconds)))) as recorder:
            status = {name: QueryStatus(name, state="stopped") for name in SPECS}
            for spec in SPECS.values():
                recorder.begin(spec, status[spec.name])
            recorder.take(batch("bronze", ranges={"purchase-events": {0: (5, 9), 1: (2, 2)}}))
            more = batch("bronze", ranges={"purchase-events": {0: (9, 12), 1: (2, 3)}})
            more.written[Table.PURCHASE_EVENTS] = 4
            recorder.take(more)
            recorder.take(batch("silver", versions={Table.PURCHASE_EVENTS: (-1, 3)}))
            recorder.take(batch("silver", versions={Table.PURCHASE_EVENTS: (3, 4)}))
            if error is not None:
                status["gold"].state, status["gold"].message = "failed", "gold: \x1b[31mfiles are gone"
                raise error
    return lineage_events.read(events_file(settings))


def of(events: list[dict[str, Any]], job: str, kind: str) -> dict[str, Any]:
    return [event for event in events if event["job"]["name"].endswith(f".{job}") and event["eventType"] == kind][-1]


def test_each_stream_has_a_run_from_start_to_end(settings: Settings) -> None:
    events = told_by(settings)
    for name in ("driver", *SPECS):
        of_job = [event for event in events if event["job"]["name"] == f"customer-activity.{name}"]
        assert len({event["run"]["runId"] for event in of_job}) == 1
        assert [of_job[0]["eventType"], of_job[-1]["eventType"]] == ["START", "COMPLETE"]
        assert {event["eventType"] for event in of_job[1:-1]} <= {"RUNNING"}


def test_what_was_read_and_written(settings: Settings) -> None:
    events = told_by(settings)
    bronze, silver = of(events, "bronze", "COMPLETE"), of(events, "silver", "COMPLETE")
    offsets = dataset(bronze, "purchase-events")["inputFacets"]["customerActivity_kafkaOffsets"]["partitions"]
    assert offsets == [{"partition": 0, "begin": 5, "end": 12}, {"partition": 1, "begin": 2, "end": 3}]
    assert dataset(bronze, "bronze/purchase_events")["facets"]["version"]["datasetVersion"] == "4"
    read = dataset(silver, "bronze/purchase_events")
    assert read["facets"]["version"]["datasetVersion"] == "4"
    assert read["inputFacets"]["customerActivity_tableVersions"].items() >= {"after": -1, "upto": 4}.items()
    assert silver["run"]["facets"]["customerActivity_progress"].items() >= {"batches": 2, "rows": 20}.items()
    amount = dataset(silver, "silver/purchases")["facets"]["columnLineage"]["fields"]["amount"]["inputFields"]
    assert [(field["name"], field["field"]) for field in amount] == [
        (f"{settings.lake}/bronze/purchase_events", "amount")
    ]
    assert not [each for event in events for each in event["outputs"] if each["name"] == settings.topics[PROGRESS_ROLE]]


def test_airflow_s_task_is_the_driver_s_parent_and_the_driver_the_streams(settings: Settings) -> None:
    events = told_by(settings)
    driver, gold = of(events, "driver", "START"), of(events, "gold", "START")
    assert driver["run"]["facets"]["parent"]["job"].items() >= {"namespace": "airflow", "name": "dag.task"}.items()
    assert driver["run"]["facets"]["parent"]["run"]["runId"] == str(uuid.UUID(int=1))
    assert gold["run"]["facets"]["parent"]["run"]["runId"] == driver["run"]["runId"]
    assert gold["run"]["facets"]["parent"]["root"]["run"]["runId"] == str(uuid.UUID(int=2))


def test_a_stream_that_fails_says_why(settings: Settings) -> None:
    events = told_by(settings, error=TransientError("gold stopped", remedy="start again"))
    assert of(events, "gold", "FAIL")["run"]["facets"]["errorMessage"]["message"] == r"gold: \x1b[31mfiles are gone"
    assert of(events, "driver", "FAIL")["run"]["facets"]["errorMessage"]["message"] == "gold stopped"
    assert of(events, "silver", "COMPLETE")


def test_of_an_error_that_nobody_foresaw_only_its_kind_is_told(settings: Settings) -> None:
    events = told_by(settings, error=ValueError("Ada, 1 Old Street"))
    assert of(events, "driver", "FAIL")["run"]["facets"]["errorMessage"]["message"] == "ValueError"


def test_between_its_start_and_its_end_a_run_is_told_of_at_a_pace(settings: Settings) -> None:
    at = [0.0]
    told: list[Told] = []

    class Kept(Sender):
        def put(self, event: Told) -> None:
            told.append(event)

    with Telling(settings, Kept(lambda: told.append), lambda: at[0]) as recorder:
        recorder.begin(SPECS["silver"], QueryStatus("silver"))
        for second in range(180):
            at[0] = second / 2
            recorder.take(batch("silver", versions={Table.PURCHASE_EVENTS: (second, second + 1)}))
    running = [event.progress.batches for event in told if event.moment is Moment.RUNNING and event.progress]
    assert running == [121]


def test_quality_tells_what_came_of_its_rules(settings: Settings) -> None:
    verdicts = [
        Verdict(Table.PURCHASES, "ids_are_unique", is_passed=True, severity="hold"),
        Verdict(Table.PURCHASES, "amounts_fit", is_passed=False, severity="warn"),
        Verdict(None, "join_match", is_passed=True, severity="warn"),
    ]
    with recording.judging(settings) as tell:
        tell({"silver.purchases": 7}, verdicts)
    start, end = lineage_events.read(events_file(settings))
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    judged = dataset(end, "silver/purchases")
    assert judged["facets"]["version"]["datasetVersion"] == "7"
    assert judged["inputFacets"]["dataQualityAssertions"]["assertions"] == [
        {"assertion": "ids_are_unique", "success": True, "severity": "hold", "params": {}},
        {"assertion": "amounts_fit", "success": False, "severity": "warn", "params": {}},
    ]


def test_off_it_tells_nothing(settings: Settings) -> None:
    off = settings.model_copy(update={"lineage": False})
    with recording.recorder(off) as recorder:
        recorder.begin(SPECS["silver"], QueryStatus("silver"))
        recorder.take(batch("silver"))
    with recording.judging(off) as tell:
        tell({}, [])
    assert not events_file(off).exists()


def test_no_event_has_a_secret_of_kafka(settings: Settings, tmp_path: Path) -> None:
    secrets = tmp_path / "kafka.properties"
    secrets.write_text("sasl.jaas.config=hush", encoding="utf-8")
    told_by(settings.model_copy(update={"kafka_config": secrets}))
    said = events_file(settings).read_text(encoding="utf-8")
    assert "hush" not in said
    assert str(secrets) not in said


def test_a_file_of_events_is_rotated(tmp_path: Path) -> None:
    file = tmp_path / "lineage" / "events.jsonl"
    keep_short(file, 5)
    file.write_text("123456", encoding="utf-8")
    keep_short(file, 5)
    assert (file.exists(), (tmp_path / "lineage" / "events.jsonl.1").read_text(encoding="utf-8")) == (False, "123456")


def test_a_backend_that_is_slow_costs_events_and_no_time(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()

    def slow(_event: Told) -> None:
        go_on.wait(30)

    sender = Sender(lambda: slow, waiting=2)
    event = Told(Moment.START, now(), new_run("n", "j"), "driver")
    for _ in range(10):
        sender.put(event)  # returns at once: the test has no time limit of its own, the queue has a bound
    until(lambda: sender.dropped >= 7, 10)
    sender.close(0.05)
    go_on.set()
    assert "events were not sent" in caplog.text


def test_a_backend_that_is_down_costs_events_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", f"http://user:hush@{addresses.free()}")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
    with Telling(settings, sender := Sender(sending.opening(settings))) as recorder:
        recorder.begin(SPECS["silver"], QueryStatus("silver"))
    assert sender.dropped == 4
    assert "hush" not in caplog.text
    assert not events_file(settings).exists()


@pytest.fixture
def backend() -> Iterator[tuple[str, list[bytes]]]:
    """Serve what takes events, and yield its address with what it was sent."""
    taken: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", taken
        server.shutdown()
        thread.join()


def test_openlineage_s_own_variables_say_where_events_go(
    settings: Settings, backend: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, taken = backend
    monkeypatch.setenv("OPENLINEAGE_URL", address)
    with Telling(settings, Sender(sending.opening(settings))) as recorder:
        recorder.begin(SPECS["silver"], QueryStatus("silver"))
    events = [json.loads(body) for body in taken]
    assert [event["eventType"] for event in events] == ["START", "START", "COMPLETE", "COMPLETE"]
    assert [fault for event in events for fault in lineage_events.faults(event)] == []
    assert not events_file(settings).exists()


def test_a_variable_that_is_empty_says_nothing(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "")
    with Telling(settings, Sender(sending.opening(settings))):
        pass
    assert len(lineage_events.read(events_file(settings))) == 2


def test_a_configuration_that_is_wrong_stops_nothing(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "openlineage.yml").write_text("transport: {type: nowhere}", encoding="utf-8")
    with Telling(settings, sender := Sender(sending.opening(settings))):
        pass
    assert sender.dropped == 2


@pytest.mark.parametrize("at", [datetime(2026, 11, 25, 16, 0, 0, 1_234, UTC), datetime(1999, 1, 1, tzinfo=UTC)])
def test_airflow_s_runs_have_the_ids_that_openlineage_gives_them(at: datetime) -> None:
    """DAGs have not its client: dags/activity_dags/lineage.py computes them itself."""
    found = importlib.util.spec_from_file_location("of_dags", PROJECT / "dags" / "activity_dags" / "lineage.py")
    assert found is not None
    assert found.loader is not None
    of_dags = importlib.util.module_from_spec(found)
    found.loader.exec_module(of_dags)
    assert of_dags.run_id(at, "default.dag.task.1.-1") == generate_static_uuid(at, b"default.dag.task.1.-1")


def test_no_stream_is_forgotten() -> None:
    assert {*topology.names()} <= SPECS.keys()
