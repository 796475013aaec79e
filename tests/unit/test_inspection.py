"""Status, one customer, and the topology, from hand-made tables, checkpoints and status files."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from rich.console import Console

from customer_activity import catalog, checkpoints, cli
from customer_activity.catalog import FLOWS, PROFILES_ROLE, PURCHASES_ROLE, Query, Table
from customer_activity.commands import inspection
from customer_activity.errors import BrokerUnavailable, CheckpointMismatch
from customer_activity.inspection import describe, screens, show, status, tables, topics
from customer_activity.inspection.doctor import Finding
from customer_activity.inspection.topics import Topic
from customer_activity.observability import QueryStatus
from customer_activity.settings import PREFIX, Settings
from customer_activity.storage import filesystem

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIMESTAMP = pa.timestamp("us", "UTC")
NO_PROCESS = 2**22 + 1  # above the greatest process number that Linux gives out


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run", kafka_bootstrap_servers="localhost:1")


def write(settings: Settings, table: Table, rows: list[dict[str, Any]], **columns: pa.DataType) -> DeltaTable:
    path = catalog.table_path(settings.lake, table)
    write_deltalake(path, pa.Table.from_pylist(rows, schema=pa.schema(columns.items())), mode="append")
    return DeltaTable(path)


def write_times(settings: Settings, table: Table, *seconds: int) -> DeltaTable:
    column = tables.TIME_COLUMN[table]
    return write(settings, table, [{column: NOON + timedelta(seconds=s)} for s in seconds], **{column: TIMESTAMP})


def write_batch(
    settings: Settings, query: Query, batch_id: int, *sources: dict[str, Any] | str, is_committed: bool = True
) -> None:
    root = Path(catalog.checkpoint_path(settings.lake, query))
    lines = [source if isinstance(source, str) else json.dumps(source) for source in sources]
    (root / "offsets").mkdir(parents=True, exist_ok=True)
    (root / "commits").mkdir(exist_ok=True)
    (root / "offsets" / str(batch_id)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *lines]))
    if is_committed:
        (root / "commits" / str(batch_id)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        (root / "commits" / f".{batch_id}.crc").write_bytes(b"crc")


def delta_offset(table: DeltaTable, version: int, index: int = -1, *, is_snapshot: bool = False) -> dict[str, Any]:
    return {
        "sourceVersion": 1,
        "reservoirId": table.metadata().id,
        "reservoirVersion": version,
        "index": index,
        "isStartingVersion": is_snapshot,
    }


def write_status(settings: Settings, query: Query, **changed: Any) -> None:
    written = {
        "query": query,
        "state": "running",
        "pid": os.getpid(),
        "updated_at": datetime.now(UTC).isoformat(),
        "batch_id": 7,
        "batch_rows": 1000,
        "rows_per_second": 500.0,
        "batch_seconds": 2.0,
        "last_batch_at": NOON.isoformat(),
        "rows_total": 9000,
        "phases": {},
        "message": "",
    }
    path = settings.run_dir / "status" / f"{query}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written | changed))


def of(report: status.Report, query: Query) -> status.QueryReport:
    return next(found for found in report.queries if found.query is query)


def text(renderable: Any) -> str:
    console = Console(width=160, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


@pytest.fixture
def kafka(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, Topic]:
    """Topics that answer as this dict says."""
    there: dict[str, Topic] = {}
    monkeypatch.setattr(
        topics, "topics", lambda _settings, names: {name: there[name] for name in names if name in there}
    )
    return there


class TestCheckpoints:
    def test_progress_is_that_of_the_newest_committed_batch(self, settings: Settings) -> None:
        write_batch(settings, Query.BRONZE, 9, {"purchase-events": {"0": 5, "1": 6}})
        write_batch(settings, Query.BRONZE, 10, {"purchase-events": {"0": 50, "1": 60}})
        write_batch(settings, Query.BRONZE, 11, {"purchase-events": {"0": 500, "1": 600}}, is_committed=False)

        progress = checkpoints.progress(settings.lake, Query.BRONZE)

        assert progress is not None
        assert (progress.batch_id, progress.topic_offsets) == (10, {"purchase-events": {0: 50, 1: 60}})

    def test_there_is_none_before_the_first_commit(self, settings: Settings) -> None:
        assert checkpoints.progress(settings.lake, Query.GOLD) is None
        write_batch(settings, Query.GOLD, 0, "-", is_committed=False)
        assert checkpoints.progress(settings.lake, Query.GOLD) is None

    @pytest.mark.parametrize(
        ("version", "index", "is_snapshot", "read"),
        [
            pytest.param(12, -1, False, 11, id="the version is the next to read"),
            pytest.param(12, 0, False, 12, id="a commit with change files was read whole"),
            pytest.param(12, 4, True, 11, id="a snapshot is read up to a file of it"),
        ],
    )
    def test_a_delta_offset_tells_the_newest_version_read(
        self, settings: Settings, version: int, index: int, is_snapshot: bool, read: int
    ) -> None:
        table = write_times(settings, Table.SUMMARIES, 0)
        write_batch(settings, Query.GOLD, 3, delta_offset(table, version, index, is_snapshot=is_snapshot), "-")

        progress = checkpoints.progress(settings.lake, Query.GOLD)

        assert progress is not None
        assert progress.table_versions == {str(table.metadata().id): read}

    @pytest.mark.parametrize("line", ['{"purchase-events": {"0":', "[1]", '{"reservoirId": "x"}'])
    def test_a_damaged_offsets_file_is_named(self, settings: Settings, line: str) -> None:
        write_batch(settings, Query.SILVER, 2, line)
        with pytest.raises(CheckpointMismatch, match=r"silver.*offsets/2"):
            checkpoints.progress(settings.lake, Query.SILVER)

    def test_an_s3_lake_is_on_the_file_system_of_s3(self) -> None:
        pytest.importorskip("pyarrow.fs").S3FileSystem  # noqa: B018 - not every build of pyarrow has it
        files, path = filesystem("s3a://bucket/lake/_checkpoints/bronze?region=eu-west-1")
        assert (files.type_name, path) == ("s3", "bucket/lake/_checkpoints/bronze")


class TestTopics:
    def test_behind_counts_what_comes_after_the_offsets_read(self) -> None:
        topic = Topic("t", {0: (0, 100), 1: (40, 60), 2: (0, 0)}, NOON)
        assert topic.records == 120
        assert topic.behind({}) == 120
        assert topic.behind({0: 90, 1: 10, 2: 0}) == 10 + 20  # partition 1 begins after what was read
        assert topic.behind({0: 100, 1: 61, 2: 0}) == 0

    def test_a_broker_that_is_down_is_said_at_once(self, settings: Settings) -> None:
        with pytest.raises(BrokerUnavailable, match="localhost:1"):
            topics.topics(settings, ["purchase-events"])


class TestTables:
    def test_contents_come_from_the_log(self, settings: Settings) -> None:
        write_times(settings, Table.PURCHASES, 0, 30)
        write_times(settings, Table.PURCHASES, 10)

        found = tables.contents(settings.lake, Table.PURCHASES)

        assert found is not None
        assert (found.rows, found.files, found.version, found.newest) == (3, 2, 1, NOON + timedelta(seconds=30))

    def test_files_without_statistics_are_read(self, settings: Settings) -> None:
        write_times(settings, Table.PURCHASES, 0, 30)
        log = Path(catalog.table_path(settings.lake, Table.PURCHASES)) / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        log.write_text("\n".join(json.dumps(strip(action)) for action in actions))

        found = tables.contents(settings.lake, Table.PURCHASES)

        assert found is not None
        assert (found.rows, found.newest) == (2, NOON + timedelta(seconds=30))

    def test_an_empty_table_has_no_newest_row(self, settings: Settings) -> None:
        write_times(settings, Table.ACTIVITY)
        found = tables.contents(settings.lake, Table.ACTIVITY)
        assert found is not None
        assert (found.rows, found.newest) == (0, None)


def strip(action: dict[str, Any]) -> dict[str, Any]:
    """Take the statistics out of an action of a Delta log."""
    return {"add": {**action["add"], "stats": None}} if "add" in action else action


class TestStatus:
    def test_a_fresh_lake_has_not_started(self, settings: Settings) -> None:
        report = status.report(settings)

        assert {query.state for query in report.queries} == {"not started"}
        assert not report.is_caught_up
        assert report.tables == []
        assert "lag behind Kafka and freshness are unknown" in report.notes[0]
        assert "not started yet" in text(screens.status(report))
        assert json.loads(json.dumps(report.as_json(), default=str))["caught_up"] is False

    @pytest.mark.parametrize(
        ("written", "state"),
        [
            pytest.param({}, "running", id="alive and talking"),
            pytest.param({"pid": NO_PROCESS}, "dead", id="its process is gone"),
            pytest.param({"updated_at": "2026-01-01T00:00:00+00:00"}, "silent", id="it has not written for long"),
            pytest.param({"state": "stopped", "pid": NO_PROCESS}, "stopped", id="it said goodbye"),
            pytest.param({"state": "failed", "pid": NO_PROCESS, "message": "bad deploy"}, "failed", id="it said why"),
        ],
    )
    def test_the_state_is_that_of_the_process(self, settings: Settings, written: dict[str, Any], state: str) -> None:
        write_status(settings, Query.SILVER, **written)
        found = status.states(settings)[1]
        assert (found.query, found.state) == (Query.SILVER, state)
        assert written.get("message", "") in found.message

    def test_a_checkpoint_without_a_status_file_is_a_query_that_stopped(self, settings: Settings) -> None:
        write_batch(settings, Query.GOLD, 4, "-")
        found = of(status.report(settings), Query.GOLD)
        assert (found.state, found.batch and found.batch["id"]) == ("stopped", 4)

    def test_a_status_file_that_cannot_be_read_is_said(self, settings: Settings) -> None:
        write_status(settings, Query.GOLD)
        (settings.run_dir / "status" / "gold.json").write_text("{")
        assert status.states(settings)[2].state == "unknown"

    def test_lag_is_exact_while_nothing_runs(self, settings: Settings, kafka: dict[str, Topic]) -> None:
        kafka[settings.purchase_topic] = Topic(settings.purchase_topic, {0: (0, 100), 1: (0, 50)}, NOON)
        kafka[settings.profile_topic] = Topic(settings.profile_topic, {0: (0, 7)}, NOON)
        write_batch(settings, Query.BRONZE, 0, {settings.purchase_topic: {"0": 90, "1": 50}})
        landed = write_times(settings, Table.PURCHASE_EVENTS, 0)
        write_times(settings, Table.PURCHASE_EVENTS, 1)
        write_times(settings, Table.PURCHASE_EVENTS, 2)
        profiles = write_times(settings, Table.PROFILE_EVENTS, 0)
        write_batch(settings, Query.SILVER, 0, delta_offset(landed, 1), delta_offset(profiles, 1))

        report = status.report(settings)

        bronze, silver = of(report, Query.BRONZE), of(report, Query.SILVER)
        assert bronze.lag == {settings.purchase_topic: 10, settings.profile_topic: 7}
        assert (bronze.lag_records, bronze.lag_versions) == (17, None)
        assert silver.lag == {"bronze.purchase_events": 2, "bronze.customer_profiles": 0}
        assert (silver.lag_records, silver.lag_versions) == (None, 2)

    def test_freshness_is_the_worst_over_the_input_topics(self, settings: Settings, kafka: dict[str, Topic]) -> None:
        kafka[settings.purchase_topic] = Topic(settings.purchase_topic, {0: (0, 2)}, NOON + timedelta(seconds=60))
        kafka[settings.profile_topic] = Topic(settings.profile_topic, {0: (0, 2)}, NOON + timedelta(seconds=20))
        write_times(settings, Table.PURCHASE_EVENTS, 55)
        write_times(settings, Table.PROFILE_EVENTS, 5)
        assert of(status.report(settings), Query.BRONZE).freshness_seconds == 15

    def test_what_is_published_is_as_fresh_as_the_version_of_gold_that_is_out(
        self, settings: Settings, kafka: dict[str, Topic]
    ) -> None:
        kafka[settings.purchase_topic] = Topic(settings.purchase_topic, {0: (0, 2)}, NOON + timedelta(seconds=60))
        gold = write_times(settings, Table.ACTIVITY_CHANGES, 10)
        write_times(settings, Table.ACTIVITY_CHANGES, 50)
        write_batch(settings, Query.PUBLISH, 0, delta_offset(gold, 1))

        report = status.report(settings)

        assert of(report, Query.GOLD).freshness_seconds == 10
        assert of(report, Query.PUBLISH).freshness_seconds == 50

    def test_a_layer_that_read_everything_is_current_whatever_its_newest_row(
        self, settings: Settings, kafka: dict[str, Topic]
    ) -> None:
        catch_up(settings, kafka)
        report = status.report(settings)
        assert report.is_caught_up
        assert {query.freshness_seconds for query in report.queries} == {0}
        assert "current" in text(screens.status(report))

    def test_a_layer_behind_a_late_one_is_not_current(self, settings: Settings, kafka: dict[str, Topic]) -> None:
        catch_up(settings, kafka)
        write_times(settings, Table.PURCHASE_EVENTS, 70)  # landed, and silver has not read it
        report = status.report(settings)
        assert not report.is_caught_up
        assert of(report, Query.GOLD).is_caught_up
        assert [query.query for query in report.queries if query.is_current] == [Query.BRONZE]
        assert of(report, Query.GOLD).freshness_seconds == 100

    def test_phases_say_where_the_last_batch_spent_its_time(self, settings: Settings) -> None:
        path = settings.run_dir / "status" / "silver.json"
        found = QueryStatus(Query.SILVER, spark_phases={"triggerExecution": 300, "addBatch": 230})
        found.finished(7, 500, 0.2, {"read": 80.04, "commit": 60.0, "turn": 20.0})
        found.write(settings.run_dir)

        report = status.report(settings)

        assert path.exists()
        assert of(report, Query.SILVER).phases == {"read": 80.0, "commit": 60.0, "turn": 20.0, "spark": 70.0}
        shown = text(screens.status(report, phases=True)).splitlines()
        heading = next(line for line in shown if "ms of the last batch" in line)
        assert heading.split()[-7:] == ["read", "compute", "write", "commit", "publish", "turn", "spark"]
        assert any(line.split() == ["silver", "80", "-", "-", "60", "-", "20", "70"] for line in shown)

    def test_a_damaged_table_is_a_note(self, settings: Settings) -> None:
        write_times(settings, Table.PURCHASES, 0)
        for entry in (Path(catalog.table_path(settings.lake, Table.PURCHASES)) / "_delta_log").iterdir():
            entry.write_text("{")
        assert any("silver.purchases cannot be read" in note for note in status.report(settings).notes)


def catch_up(settings: Settings, kafka: dict[str, Topic]) -> None:
    """Make a lake in which every query has read everything, and whose newest record shows in no table."""
    kafka[settings.purchase_topic] = Topic(settings.purchase_topic, {0: (0, 2)}, NOON + timedelta(seconds=100))
    kafka[settings.profile_topic] = Topic(settings.profile_topic, {0: (0, 2)}, NOON + timedelta(seconds=100))
    held = {table: write_times(settings, table, 0) for table in Table}
    write_batch(settings, Query.BRONZE, 0, {topic.name: {"0": 2} for topic in kafka.values()})
    for flow in FLOWS[1:]:
        upstream = [held[Table(name)] for name in flow.reads if not name.startswith("topic:")]
        write_batch(settings, flow.query, 0, *(delta_offset(table, 1) for table in upstream))


class TestShow:
    def purchases(self, settings: Settings, number: int, customer_id: str = "C-1") -> None:
        rows = [
            {
                "purchase_id": f"P-{n}",
                "customer_id": customer_id,
                "product_id": None,
                "amount": Decimal("1.25"),
                "currency": "EUR",
                "occurred_at": NOON + timedelta(minutes=n),
                "offset": n,
                "kafka_timestamp": NOON,
            }
            for n in range(number)
        ]
        ids = dict.fromkeys(("purchase_id", "customer_id", "product_id", "currency"), pa.string())
        times = dict.fromkeys(("occurred_at", "kafka_timestamp"), TIMESTAMP)
        write(settings, Table.PURCHASES, rows, **ids, amount=pa.decimal128(18, 2), **times, offset=pa.int64())

    def profile(self, settings: Settings, *, is_tombstone: bool) -> None:
        rows = [{"customer_id": "C-1", "offset": 3, "is_tombstone": is_tombstone}]
        write(settings, Table.PROFILE_EVENTS, rows, customer_id=pa.string(), offset=pa.int64(), is_tombstone=pa.bool_())

    def gold(self, settings: Settings) -> None:
        rows = [{"customer_id": "C-1", "name": "[b]Ann[/b]", "view_version": 4, "as_of": NOON}]
        columns = {"customer_id": pa.string(), "name": pa.string(), "view_version": pa.int64(), "as_of": TIMESTAMP}
        write(settings, Table.ACTIVITY, rows, **columns)
        write(settings, Table.PROFILES, rows, **columns)

    def test_a_customer_in_gold_with_the_last_ten_purchases(self, settings: Settings) -> None:
        self.gold(settings)
        self.purchases(settings, 12)
        self.purchases(settings, 3, customer_id="C-2")

        found = show.customer(settings.lake, "C-1")

        assert found.gold is not None
        assert found.profile is not None
        assert [row["purchase_id"] for row in found.purchases] == [f"P-{n}" for n in range(11, 1, -1)]
        assert found.explanation == "in gold as of 2026-03-01 12:00:00 UTC, version 4"
        assert "[b]Ann[/b]" in text(screens.customer(found))  # data is never markup

    def test_purchases_without_a_profile_wait(self, settings: Settings) -> None:
        self.purchases(settings, 2)
        found = show.customer(settings.lake, "C-1")
        assert found.is_known
        assert "no profile has come yet" in found.explanation
        assert "2 purchases wait in silver" in found.explanation

    @pytest.mark.parametrize(
        ("is_tombstone", "says"), [(True, "the profile was deleted"), (False, "silver has still to follow")]
    )
    def test_a_profile_that_is_not_current(self, settings: Settings, is_tombstone: bool, says: str) -> None:
        self.profile(settings, is_tombstone=is_tombstone)
        found = show.customer(settings.lake, "C-1")
        assert found.is_known
        assert says in found.explanation

    def test_an_unknown_customer(self, settings: Settings) -> None:
        self.gold(settings)
        found = show.customer(settings.lake, "C-404")
        assert not found.is_known
        assert "nothing is known" in found.explanation
        assert show.customer(str(Path(settings.lake) / "none"), "C-404").is_known is False


class TestDescribe:
    def test_every_form_names_each_query_table_and_topic_of_this_deployment(self, settings: Settings) -> None:
        renamed = settings.model_copy(update={"view_topic": "view.v2"})
        forms = ["\n".join(describe.lines(renamed)), describe.mermaid(renamed), json.dumps(describe.topology(renamed))]
        names = [*Query, *(table.label for table in Table), *renamed.topics.values()]
        assert [name for form in forms for name in names if name not in form] == []

    def test_text_and_json_say_where_and_what_is_promised(self, settings: Settings) -> None:
        for form in ("\n".join(describe.lines(settings)), json.dumps(describe.topology(settings))):
            for flow in FLOWS:
                assert flow.guarantee in form
                assert catalog.checkpoint_path(settings.lake, flow.query) in form
            assert catalog.table_path(settings.lake, Table.ACTIVITY) in form

    def test_a_chart_draws_an_edge_for_each_end_once(self, settings: Settings) -> None:
        edges = [line.strip() for line in describe.mermaid(settings).splitlines() if "-->" in line]
        assert len(edges) == len(set(edges))
        assert "topic_progress" in describe.mermaid(settings)
        assert "publish <--> topic_progress" in edges
        assert f"topic_{PURCHASES_ROLE} --> bronze" in edges
        assert f"topic_{PROFILES_ROLE} --> bronze" in edges


class TestCommands:
    @pytest.fixture(autouse=True)
    def _deployment(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in [name for name in os.environ if name.startswith(PREFIX)]:
            monkeypatch.delenv(variable)
        for variable, value in settings.environment().items():
            monkeypatch.setenv(variable, value)

    def call(self, *arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main([*arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code

    def test_status_is_complete_in_json_while_the_broker_is_down(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.call("status", "--json") == 0
        found = json.loads(capsys.readouterr().out)
        assert [query["query"] for query in found["queries"]] == list(Query)
        assert found["queries"][0]["lag_records"] is None
        assert found["notes"]

    def test_show_fails_when_nothing_is_known(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.call("show", "C-404", "--json") == 1
        assert json.loads(capsys.readouterr().out)["is_known"] is False

    @pytest.mark.parametrize(("output", "begin"), [("text", "lake "), ("mermaid", "flowchart LR"), ("json", "{")])
    def test_describe_prints_every_format(self, output: str, begin: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.call("describe", "--format", output) == 0
        assert capsys.readouterr().out.startswith(begin)

    @pytest.mark.parametrize(("ok", "code"), [(True, 0), (False, 2)])
    def test_doctor_fails_when_something_is_wrong(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ok: bool, code: int
    ) -> None:
        finding = Finding("java", ok, "11 [odd]", "" if ok else "install Java 17")
        monkeypatch.setattr(inspection, "diagnose", lambda _settings: [finding])
        assert self.call("doctor") == code
        printed = capsys.readouterr()
        assert "11 [odd]" in printed.out
        assert ("install Java 17" in printed.err) is not ok

    def test_doctor_lists_every_setting(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert self.call("doctor", "--settings", "--json") == 0
        listed = json.loads(capsys.readouterr().out)
        assert [entry["variable"] for entry in listed] == [f"{PREFIX}{name.upper()}" for name in Settings.model_fields]
        assert self.call("doctor", "--settings") == 0
        assert "ACTIVITY_CURRENCY=EUR\n" in capsys.readouterr().out
