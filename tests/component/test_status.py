"""The status: each query's state, lag and freshness."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.engine import pids
from customer_activity.engine.observability import QueryStatus
from customer_activity.inspection import query_status, status, topics
from customer_activity.inspection import tables as inspected
from customer_activity.inspection.topics import Topic
from customer_activity.lake import corrections
from customer_activity.lake.microbatch import Place, Placement
from customer_activity.lease.epochs import ProcessLock
from customer_activity.lease.lease import Lease
from customer_activity.metrics.looks import Looking
from customer_activity.settings import Settings
from customer_activity.supervision import readiness
from customer_activity.terminal import screens
from support import tables
from support.corrections import correction_of
from support.inspected import NO_PROCESS, NOON, catch_up, delta_offset, of, text, write_batch, write_status, write_times
from support.streams import Query

PID = os.getpid()
START = pids.start_time(PID) or 0.0
FIRST = NOON + timedelta(seconds=90)  # when the first record was sent that has not landed


@pytest.fixture
def kafka(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, Topic]:
    """Topics that answer as this dict says."""
    there: dict[str, Topic] = {}
    monkeypatch.setattr(
        topics, "topics", lambda _settings, names: {name: there[name] for name in names if name in there}
    )
    monkeypatch.setattr(topics, "oldest", lambda *_: FIRST)
    return there


def millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def told(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


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
        found = query_status.states(settings)[1]
        assert (found.query, found.state) == (Query.SILVER, state)
        assert written.get("message", "") in found.message

    @pytest.mark.parametrize(
        ("written", "state", "pid"),
        [
            pytest.param({}, "running", PID, id="of an older release"),
            pytest.param({"process_start": START}, "running", PID, id="the process itself"),
            pytest.param({"process_start": START - 1}, "dead", None, id="its number is another process's"),
            pytest.param({"process_start": START - 1, "state": "stopped"}, "stopped", None, id="likewise, stopped"),
            pytest.param({"process_start": START - 1, "state": "failed"}, "failed", None, id="likewise, failed"),
            pytest.param({"host": "another"}, "running", None, id="another host's"),
            pytest.param({"host": "before", "process_start": START}, "running", PID, id="the host was renamed"),
        ],
    )
    def test_a_number_of_another_process_is_not_the_drivers(
        self, settings: Settings, written: dict[str, Any], state: str, pid: int | None
    ) -> None:
        write_status(settings, Query.SILVER, **written)
        found = query_status.read(settings, Query.SILVER)
        assert (found.state, found.pid) == (state, pid)

    @pytest.mark.parametrize(("state", "message"), [("running", "waits for the hot path"), ("stopped", "")])
    def test_how_far_a_batch_is_is_said_while_it_is_at_work(self, settings: Settings, state: str, message: str) -> None:
        write_status(settings, Query.SILVER, state=state, progress="waits for the hot path")
        assert query_status.states(settings)[1].message == message

    def test_a_checkpoint_without_a_status_file_is_a_query_that_stopped(self, settings: Settings) -> None:
        write_batch(settings, Query.GOLD, 4, "-")
        found = of(status.report(settings), Query.GOLD)
        assert (found.state, found.batch and found.batch["id"]) == ("stopped", 4)

    def test_a_status_file_that_cannot_be_read_is_said(self, settings: Settings) -> None:
        write_status(settings, Query.GOLD)
        (settings.run_dir / "status" / "gold.json").write_text("{")
        assert query_status.states(settings)[2].state == "unknown"

    def test_lag_is_exact_while_nothing_runs(self, settings: Settings, kafka: dict[str, Topic]) -> None:
        kafka[settings.purchase_topic] = Topic(settings.purchase_topic, {0: (0, 100), 1: (0, 50)}, NOON)
        kafka[settings.profile_topic] = Topic(settings.profile_topic, {0: (0, 7)}, NOON)
        write_batch(settings, Query.BRONZE, 0, {settings.purchase_topic: {"0": 90, "1": 50}})
        landed = write_times(settings, Table.PURCHASE_EVENTS, 0)
        write_times(settings, Table.PURCHASE_EVENTS, 1)
        write_times(settings, Table.PURCHASE_EVENTS, 2)
        tables.date(settings.lake, Table.PURCHASE_EVENTS, millis(NOON + timedelta(seconds=1)), 1)
        tables.date(settings.lake, Table.PURCHASE_EVENTS, millis(NOON + timedelta(seconds=2)), 2)
        profiles = write_times(settings, Table.PROFILE_EVENTS, 0)
        write_batch(settings, Query.SILVER, 0, delta_offset(landed, 1), delta_offset(profiles, 1))

        report = status.report(settings)

        bronze, silver = of(report, Query.BRONZE), of(report, Query.SILVER)
        assert bronze.lag == {settings.purchase_topic: 10, settings.profile_topic: 7}
        assert (bronze.lag_records, bronze.lag_versions) == (17, None)
        assert silver.lag == {"bronze.purchase_events": 2, "bronze.customer_profiles": 0}
        assert (silver.lag_records, silver.lag_versions) == (None, 2)
        assert silver.unread_since == (NOON + timedelta(seconds=1)).isoformat(timespec="milliseconds")
        assert bronze.unread_since is None

    @pytest.mark.parametrize(
        ("written", "left"),
        [
            pytest.param({"batch_id": 5}, 0, id="its driver has finished what Spark has not noted yet"),
            pytest.param({"batch_id": 4}, 1, id="its driver is at work on it"),
            pytest.param({"batch_id": 5, "state": "held"}, 0, id="the next one is held"),
            pytest.param({"batch_id": 5, "pid": NO_PROCESS}, 1, id="the driver that says so is gone"),
            pytest.param({"batch_id": 5, "state": "stopped"}, 1, id="it was stopped before"),
            pytest.param({"batch_id": 6}, 1, id="the checkpoint has another past"),
            pytest.param({"batch_id": None}, 1, id="it has finished none"),
        ],
    )
    def test_a_batch_is_read_when_its_driver_has_finished_it(
        self, settings: Settings, written: dict[str, Any], left: int
    ) -> None:
        held = write_times(settings, Table.PURCHASES, 0)
        profiles = write_times(settings, Table.PROFILE_CHANGES, 0)
        write_batch(settings, Query.GOLD, 4, delta_offset(held, 1), delta_offset(profiles, 1))
        held = write_times(settings, Table.PURCHASES, 1)
        write_batch(settings, Query.GOLD, 5, delta_offset(held, 2), delta_offset(profiles, 1), is_committed=False)
        write_status(settings, Query.GOLD, **written)

        assert of(status.report(settings), Query.GOLD).lag_versions == left

    def test_what_waits_is_as_old_as_the_oldest_input_that_is_not_through(
        self, settings: Settings, kafka: dict[str, Topic]
    ) -> None:
        catch_up(settings, kafka)
        write_times(settings, Table.PURCHASE_EVENTS, 70, 40)  # landed, and silver has not read it

        report = status.report(settings)

        waiting = {query.query: query.waiting_since for query in report.queries}
        assert waiting.pop(Query.BRONZE) is None
        assert set(waiting.values()) == {told(NOON + timedelta(seconds=40))}, "all that is behind silver waits, too"
        behind = of(report, Query.PUBLISH).freshness_seconds
        assert behind == pytest.approx((datetime.now(UTC) - NOON).total_seconds() - 40, abs=60)

    def test_what_has_not_landed_is_asked_of_kafka(self, settings: Settings, kafka: dict[str, Topic]) -> None:
        catch_up(settings, kafka)
        topic = kafka[settings.purchase_topic]
        kafka[settings.purchase_topic] = topic._replace(offsets={0: (0, 3)})
        waiting = {query.waiting_since for query in status.report(settings).queries}
        assert waiting == {told(FIRST)}

    @pytest.mark.parametrize(
        ("ahead", "kept"),
        [
            pytest.param(0, 40, id="the input is older than its commit"),
            pytest.param(3_600, 60, id="a producer's clock is ahead: the commit is what is known"),
        ],
    )
    def test_an_input_has_not_waited_for_longer_than_it_was_there(
        self, settings: Settings, kafka: dict[str, Topic], ahead: int, kept: int
    ) -> None:
        catch_up(settings, kafka)
        write_times(settings, Table.PURCHASE_EVENTS, 40 + ahead)
        tables.date(settings.lake, Table.PURCHASE_EVENTS, millis(NOON + timedelta(seconds=60)), 1)
        silver = of(status.report(settings), Query.SILVER)
        assert silver.waiting_since == told(NOON + timedelta(seconds=kept))
        assert silver.unread_since == told(NOON + timedelta(seconds=60))

    def test_rewritten_files_do_not_make_it_older(self, settings: Settings, kafka: dict[str, Topic]) -> None:
        catch_up(settings, kafka)
        write_times(settings, Table.PURCHASES, 50)
        write_batch(
            settings,
            Query.GOLD,
            1,
            *(
                delta_offset(DeltaTable(table_path(settings.lake, table)), version)
                for table, version in ((Table.PURCHASES, 2), (Table.PROFILE_CHANGES, 1))
            ),
        )
        DeltaTable(table_path(settings.lake, Table.PURCHASES)).optimize.compact()
        tables.date(settings.lake, Table.PURCHASES, millis(NOON + timedelta(seconds=80)), 2)
        assert of(status.report(settings), Query.GOLD).waiting_since == told(NOON + timedelta(seconds=80))

    @pytest.mark.parametrize(
        "what",
        [pytest.param("source", id="a table cannot be opened"), pytest.param("checkpoint", id="what it has read")],
    )
    def test_what_cannot_be_read_is_unknown_and_not_read(
        self, settings: Settings, kafka: dict[str, Topic], monkeypatch: pytest.MonkeyPatch, what: str
    ) -> None:
        def fails(lake: str, which: Any, *more: Any) -> Any:
            if which in (Table.PURCHASE_EVENTS, Query.SILVER):
                raise OSError("the storage does not answer")
            return asked(lake, which, *more)

        catch_up(settings, kafka)
        module, name = (inspected, "position") if what == "source" else (checkpoint, "progress")
        asked = getattr(module, name)
        monkeypatch.setattr(module, name, fails)

        report = status.report(settings)

        silver = of(report, Query.SILVER)
        assert (silver.lag, silver.lag_versions, silver.unread_since, silver.freshness_seconds) == (
            {},
            None,
            None,
            None,
        )
        assert not report.is_caught_up
        assert not of(report, Query.GOLD).is_current
        assert {query.freshness_seconds for query in report.queries[1:]} == {None}, "nor is how long what follows waits"
        assert [note for note in report.notes if note.startswith("silver: its lag is unknown: ")]
        assert readiness.stuck_for(silver, report.at, 9_999.0, 120.0, settings) == "", "it is left to itself"

    @pytest.mark.parametrize(("state", "left"), [("failed", None), ("stopped", None), ("running", 0)])
    def test_a_topic_that_was_made_anew_is_not_read(
        self, settings: Settings, kafka: dict[str, Topic], state: str, left: int | None
    ) -> None:
        catch_up(settings, kafka)
        write_batch(settings, Query.BRONZE, 1, {topic.name: {"0": 5_000} for topic in kafka.values()})
        write_status(settings, Query.BRONZE, state=state, batch_id=1)
        report = status.report(settings)
        assert of(report, Query.BRONZE).lag_records == left
        told_so = [note for note in report.notes if "ends before what bronze has read of it" in note]
        assert bool(told_so) == (left is None), "one that runs may have read on since"

    def test_half_of_the_topics_are_not_all(self, settings: Settings, kafka: dict[str, Topic]) -> None:
        catch_up(settings, kafka)
        del kafka[settings.profile_topic]
        assert of(status.report(settings), Query.BRONZE).lag_records is None

    def test_a_wait_that_kafka_does_not_tell_is_unknown_for_all(
        self, settings: Settings, kafka: dict[str, Topic], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catch_up(settings, kafka)
        write_times(settings, Table.PURCHASE_EVENTS, 70)
        kafka[settings.purchase_topic] = kafka[settings.purchase_topic]._replace(offsets={0: (0, 3)})
        monkeypatch.setattr(topics, "oldest", lambda *_: None)
        report = status.report(settings)
        assert {query.freshness_seconds for query in report.queries} == {None}, (
            "none is as fresh as what silver waits for"
        )
        assert any(
            note.startswith("how long records of purchase-events have waited is unknown") for note in report.notes
        )

    def test_a_topic_that_was_asked_before_a_batch_is_asked_again(
        self, settings: Settings, kafka: dict[str, Topic], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        catch_up(settings, kafka)
        write_batch(settings, Query.BRONZE, 1, {topic.name: {"0": 5} for topic in kafka.values()})
        answers = iter([2, 5, 5])
        monkeypatch.setattr(
            topics,
            "topics",
            lambda _, names: {
                name: kafka[name]._replace(offsets={0: (0, end)})
                for end in [next(answers)]
                for name in names
                if name in kafka
            },
        )
        report = status.report(settings)
        assert of(report, Query.BRONZE).lag_records == 0
        assert not [note for note in report.notes if "ends before" in note]

    def test_a_driver_does_not_take_its_own_leases_for_anothers(
        self, settings: Settings, kafka: dict[str, Topic]
    ) -> None:
        catch_up(settings, kafka)
        with Lease(ProcessLock, settings.lake, list(Query)):
            found = Looking(settings, dict.fromkeys(Query, 1)).take()
        assert set(found.not_ready) == set(Query)
        assert {query.state for query in found.report.queries} == {"stopped"}

    @pytest.mark.parametrize(("open_for", "left"), [(59.0, 0), (61.0, 5)])
    def test_what_a_transaction_holds_back_is_not_through(
        self,
        settings: Settings,
        kafka: dict[str, Topic],
        monkeypatch: pytest.MonkeyPatch,
        open_for: float,
        left: int,
    ) -> None:
        catch_up(settings, kafka)
        kafka[settings.purchase_topic] = kafka[settings.purchase_topic]._replace(ends={0: 7})
        since = datetime.now(UTC) - timedelta(seconds=open_for)
        monkeypatch.setattr(topics, "oldest", lambda *_, held_back: since if held_back else None)
        write_status(settings, Query.BRONZE, batch_id=0)

        report = status.report(settings)

        bronze = of(report, Query.BRONZE)
        assert (bronze.held_back, bronze.lag_records, report.is_caught_up) == (left, 0, True)
        assert {query.is_current for query in report.queries} == {not left}
        behind = [query.freshness_seconds for query in report.queries]
        assert behind == [pytest.approx(open_for if left else 0.0, abs=30)] * len(behind)
        told_so = [note for note in report.notes if "behind a transaction that has been open since" in note]
        assert bool(told_so) == bool(left)
        assert readiness.stuck_for(bronze, report.at, 9_999.0, 120.0, settings) == "", "a restart would not end it"
        why = readiness.not_ready(report, [Query.BRONZE], 9.0, settings)
        assert why == ({Query.BRONZE: "5 offsets are behind an open transaction"} if left else {})

    def test_a_driver_of_another_machine_is_seen_by_its_leases(
        self, settings: Settings, kafka: dict[str, Topic]
    ) -> None:
        catch_up(settings, kafka)
        write_status(settings, Query.GOLD, state="failed", message="bad deploy", pid=NO_PROCESS)
        write_status(settings, Query.SILVER, state="stopped", pid=NO_PROCESS)
        assert {query.state for query in status.report(settings).queries} == {"stopped", "failed"}
        with Lease(ProcessLock, settings.lake, list(Query)):
            seen = {query.query: query.state for query in status.report(settings).queries}
        assert (seen.pop(Query.GOLD), seen.pop(Query.SILVER)) == ("failed", "stopped"), "they said so themselves"
        assert set(seen.values()) == {"running"}

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
        assert of(report, Query.GOLD).waiting_since == told(NOON + timedelta(seconds=70))

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

    def test_a_batch_of_executors_is_said_to_be_one_and_why(self, settings: Settings) -> None:
        found = QueryStatus(Query.SILVER)
        found.finished(7, 60_000, 2.0, {}, Placement(Place.EXECUTORS, "60,000 rows are many"))
        found.write(settings.run_dir)

        report = status.report(settings)

        assert (of(report, Query.SILVER).batch or {})["placement"] == "executors: 60,000 rows are many"
        assert "7: 60,000 rows, 2.0 s on executors: 60,000 rows are many, 0 s ago" in text(screens.status(report))

    def test_a_damaged_table_is_a_note(self, settings: Settings) -> None:
        write_times(settings, Table.PURCHASES, 0)
        for entry in (Path(table_path(settings.lake, Table.PURCHASES)) / "_delta_log").iterdir():
            entry.write_text("{")
        assert any("silver.purchases cannot be read" in note for note in status.report(settings).notes)

    def test_a_correction_that_is_not_through_is_a_note(self, settings: Settings) -> None:
        corrections.begin(settings.lake, correction_of({}))
        assert any("correction 20261122T101500Z is at work" in note for note in status.report(settings).notes)
