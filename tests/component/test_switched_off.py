"""Streams that are off and have run before: whoever looks after the pipeline is told, and nobody else's are."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from customer_activity import application, topology
from customer_activity.catalog import Table, lock_path, table_path
from customer_activity.engine import session
from customer_activity.errors import StorageUnavailable
from customer_activity.inspection import doctor, status, switched_off, tables, topics
from customer_activity.inspection.topics import Topic
from customer_activity.kafka import topics as broker_topics
from customer_activity.lake import delta, holds
from customer_activity.lease import epochs
from customer_activity.lease.epochs import GIVEN_BACK, ProcessLock
from customer_activity.lease.lease import AT_WORK_SECONDS, Lease
from customer_activity.metrics import families
from customer_activity.metrics.looks import Looking
from customer_activity.settings import Settings
from customer_activity.storage import s3
from customer_activity.terminal import screens
from support.inspected import NOON, catch_up, delta_offset, text, write_batch, write_times
from support.tables import entry

HOLD = """
import fcntl, sys
with open(sys.argv[1], "a") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""
MASKED = "masked is off and no longer updates gold.customer_activity_masked"

EVENT_TIME = "ops.watermarks, silver.timed_purchases, ops.reprocessed_purchases"


@pytest.fixture(autouse=True)
def nothing_optional() -> Iterator[None]:
    """Leave every optional stream off."""
    yield
    topology.switch_on([], [])


@pytest.fixture
def kafka(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, Topic]:
    """Topics that answer as this dict says."""
    there: dict[str, Topic] = {}
    monkeypatch.setattr(topics, "topics", lambda _, names: {name: there[name] for name in names if name in there})
    monkeypatch.setattr(topics, "oldest", lambda *_: NOON)
    return there


def was_on(settings: Settings, *streams: str, with_settings: tuple[str, ...] = ()) -> None:
    """Have streams been on once, and switch them off."""
    topology.switch_on(streams, with_settings)
    delta.ensure_tables(settings.lake)
    topology.switch_on([], [])


def masked_was_on(settings: Settings) -> None:
    was_on(settings, with_settings=("mask_key_file",))


def words(settings: Settings) -> list[str]:
    return [each.what.partition(" (")[0] for each in switched_off.left(settings)]


@pytest.mark.parametrize(
    ("streams", "with_settings", "expected", "remedy"),
    [
        pytest.param([], [], [], "to go on, ", id="none"),
        pytest.param([], ["mask_key_file"], [MASKED], "to go on, set ACTIVITY_MASK_KEY_FILE", id="by a setting"),
        pytest.param(
            ["daily"],
            ["mask_key_file"],
            [
                MASKED,
                f"event_time is off and no longer updates {EVENT_TIME}",
                "daily is off and no longer updates gold.daily_customer_purchases",
            ],
            "to go on, set ACTIVITY_MASK_KEY_FILE and add event_time,daily to ACTIVITY_STREAMS",
            id="by name, with what it reads",
        ),
        pytest.param(
            ["payment_events"],
            [],
            ["payment_events is off and no longer updates bronze.payment_events"],
            "to go on, add payment_events to ACTIVITY_STREAMS",
            id="but for the quarantine that others write",
        ),
    ],
)
def test_what_was_on_is_known_by_its_tables(
    settings: Settings, streams: list[str], with_settings: list[str], expected: list[str], remedy: str
) -> None:
    was_on(settings, *streams, with_settings=tuple(with_settings))
    assert words(settings) == expected
    assert switched_off.remedy(switched_off.left(settings)) == remedy
    topology.switch_on(streams, with_settings)
    assert words(settings) == []


def test_a_lake_that_is_not_there_has_nothing(settings: Settings) -> None:
    assert switched_off.idle(settings) == []


def test_of_a_publisher_its_topic_is_told_though_it_keeps_a_table(settings: Settings) -> None:
    was_on(settings, "publish_alerts")
    before = [each for each in words(settings) if "publish_alerts" in each]
    write_batch(settings, "publish_alerts", 0, "-")
    now = [each for each in words(settings) if "publish_alerts" in each]
    assert (before, now) == (
        [],
        ["publish_alerts is off and no longer updates topic customer-activity-fraud-alerts"],
    )


def test_a_topic_that_is_no_longer_written_is_known_by_its_publishers_checkpoint(settings: Settings) -> None:
    delta.ensure_tables(settings.lake)
    write_batch(settings, "publish_daily", 0, "-")
    write_batch(settings, "publish_weekly", 0, '{"reservoirId": "a", "reservoirVersion": 1, "index": -1}')
    assert words(settings) == [
        "publish_daily is off and no longer updates topic customer-activity-daily",
        "publish_weekly is off and no longer updates topic customer-activity-weekly",
    ]


def test_when_it_was_written_last_is_the_commits_own_time(settings: Settings) -> None:
    masked_was_on(settings)
    (entry,) = Path(table_path(settings.lake, Table.ACTIVITY_MASKED), "_delta_log").glob("*.json")
    os.utime(entry, (0, 0))  # as a copy may have it
    (found,) = switched_off.left(settings)
    assert found.at is not None
    assert datetime.now(UTC) - found.at < timedelta(minutes=5)
    assert f"(last written at {found.at:%Y-%m-%d %H:%M:%S} UTC)" in found.what


def test_a_damaged_table_is_told_and_ends_nothing(settings: Settings) -> None:
    masked_was_on(settings)
    for each in Path(table_path(settings.lake, Table.ACTIVITY_MASKED), "_delta_log").iterdir():
        each.write_text("{")
    assert [each.what for each in switched_off.left(settings)] == [MASKED]


def test_a_folder_without_a_table_is_none(settings: Settings) -> None:
    Path(table_path(settings.lake, Table.ACTIVITY_MASKED)).mkdir(parents=True)
    assert switched_off.left(settings) == []


@pytest.mark.parametrize(
    ("seconds", "said", "is_told"),
    [
        pytest.param(0, "", False, id="at work"),
        pytest.param(2 * AT_WORK_SECONDS, "", True, id="gone"),
        pytest.param(0, GIVEN_BACK, True, id="has given it back"),
    ],
)
def test_a_stream_that_a_driver_of_other_settings_runs_is_not_off(
    settings: Settings, seconds: float, said: str, is_told: bool
) -> None:
    masked_was_on(settings)
    topology.switch_on([], ["mask_key_file"])
    with Lease(ProcessLock, settings.lake, ["masked"]):
        pass
    topology.switch_on([], [])
    place = epochs.of(settings.lake, ProcessLock)
    place.renew("masked", 1, said)
    at = time.time() - seconds
    os.utime(Path(settings.lake, "_locks", "masked.1"), (at, at))
    assert bool(switched_off.idle(settings)) is is_told


def test_a_driver_that_starts_leaves_streams_alone_that_another_runs(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """One that has stopped a moment ago is told of: to start without a key at once is how it comes about.

    What local state held that was being brought on when its driver was killed, is released: logs would grow for ever.
    """
    masked_was_on(settings)
    holds.hold(settings.lake, "masked", "killed", {Table.ACTIVITY_CHANGES: 1})
    lock = Path(lock_path(settings.lake, "masked"))
    lock.parent.mkdir()
    command = [sys.executable, "-c", HOLD, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"held\n"
        assert switched_off.unattended(settings) == []
        application.see_to_what_is_off(settings)
        assert holds.held(settings.lake, Table.ACTIVITY_CHANGES) == {"masked": 1}
        assert "masked is off" not in caplog.text
        driver.communicate()
    assert [each.spec.name for each in switched_off.unattended(settings)] == ["masked"]
    application.see_to_what_is_off(settings)
    assert holds.held(settings.lake, Table.ACTIVITY_CHANGES) == {}
    assert "masked is off" in caplog.text


def test_a_driver_that_takes_a_stream_over_meanwhile_is_at_work(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked_was_on(settings)
    monkeypatch.setattr(epochs.Files, "newest", lambda _: {"masked": 7})  # whose file is gone by now
    Path(settings.lake, "_locks").mkdir()
    assert switched_off.idle(settings) == []


@pytest.mark.usefixtures("s3_server")
def test_on_s3_it_is_the_same(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "open_table", lambda *_: None)  # delta-rs waits for a server of its own process
    on_s3 = settings.model_copy(update={"lake": "s3a://lake/prefix"})
    s3.client().create_bucket(Bucket="lake")
    assert switched_off.idle(on_s3) == []
    topology.switch_on([], ["mask_key_file"])
    with Lease(ProcessLock, on_s3.lake, ["masked"]):
        topology.switch_on([], [])
        key = f"prefix/{Table.ACTIVITY_MASKED.value}/_delta_log/{0:020}.json"
        s3.client().put_object(Bucket="lake", Key=key, Body=b"{}")
        assert [each.what for each in switched_off.left(on_s3)] == [MASKED]
        assert switched_off.idle(on_s3) == []
    assert [each.what for each in switched_off.idle(on_s3)] == [MASKED]
    assert [each.what for each in switched_off.unattended(on_s3)] == [MASKED]
    monkeypatch.setattr(epochs.Objects, "newest", lambda _: {"masked": 7})  # whose object is gone by now
    assert switched_off.idle(on_s3) == []


def test_status_tells_how_far_behind_it_is(settings: Settings, kafka: dict[str, Topic]) -> None:
    catch_up(settings, kafka)
    write_times(settings, Table.ACTIVITY_MASKED, 0)
    report = status.report(settings)
    (off,) = report.off
    assert (off.query, off.state, off.waiting_since) == ("masked", "off", told(0))
    assert any(note.startswith(MASKED) and "set ACTIVITY_MASK_KEY_FILE" in note for note in report.notes)
    assert MASKED in text(screens.status(report)).replace("\n", " ")
    assert report.as_json()["off"][0]["query"] == "masked"
    assert "masked" not in {query.query for query in report.queries}
    assert report.is_caught_up, "of what is on"


def test_what_is_off_and_has_read_everything_is_not_behind(settings: Settings, kafka: dict[str, Topic]) -> None:
    catch_up(settings, kafka)
    write_times(settings, Table.ACTIVITY_MASKED, 0)
    changes = write_times(settings, Table.ACTIVITY_CHANGES, 1)
    write_batch(settings, "publish", 1, delta_offset(changes, 2))
    write_batch(settings, "activity", 1, delta_offset(changes, 2))
    write_batch(settings, "masked", 0, delta_offset(changes, 2))
    (off,) = status.report(settings).off
    assert (off.lag_versions, off.freshness_seconds) == (0, 0)
    write_times(settings, Table.ACTIVITY_CHANGES, 2)
    (off,) = status.report(settings).off
    assert (off.lag_versions, off.waiting_since) == (1, told(2))


def test_one_whose_input_is_no_longer_in_the_log_is_behind_since_it_wrote(
    settings: Settings, kafka: dict[str, Topic]
) -> None:
    catch_up(settings, kafka)
    written = write_times(settings, Table.ACTIVITY_MASKED, 0)
    write_times(settings, Table.ACTIVITY_CHANGES, 1).create_checkpoint()
    for version in (0, 1):
        entry(settings.lake, Table.ACTIVITY_CHANGES, version).unlink()
    (off,) = status.report(settings).off
    at = datetime.fromtimestamp(written.history(1)[0]["timestamp"] / 1000, UTC)
    assert (off.lag_versions, off.waiting_since) == (2, at.isoformat(timespec="milliseconds"))


def test_what_reads_a_stream_that_is_off_and_behind_is_behind_too(settings: Settings, kafka: dict[str, Topic]) -> None:
    topology.switch_on(["daily"])
    catch_up(settings, kafka)
    topology.switch_on([])
    found = {off.query: (off.lag_versions, off.freshness_seconds) for off in status.report(settings).off}
    assert found == {"event_time": (0, 0), "daily": (0, 0)}
    write_times(settings, Table.PURCHASES, 1)
    behind = {off.query: (off.lag_versions, off.waiting_since) for off in status.report(settings).off}
    assert behind == {"event_time": (1, told(1)), "daily": (0, told(1))}, "daily has read what event_time has written"


@pytest.mark.parametrize("error", [OSError("cannot list"), StorageUnavailable("S3 is away", remedy="wait")])
def test_where_it_cannot_be_known_the_rest_is_told(
    settings: Settings, kafka: dict[str, Topic], monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    catch_up(settings, kafka)
    monkeypatch.setattr(switched_off, "left", fails)
    report = status.report(settings)
    assert [note for note in report.notes if note.startswith("whether streams that are off have run before is unknown")]
    assert report.queries
    application.see_to_what_is_off(settings)


def test_a_hold_that_cannot_be_released_hides_no_stream_that_is_off(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError("not allowed")

    masked_was_on(settings)
    monkeypatch.setattr(holds, "take_back", fails)
    application.see_to_what_is_off(settings)
    assert "masked is off" in caplog.text
    assert "what streams that are off hold of tables' logs is not released" in caplog.text


def test_it_has_a_state_and_an_age_in_the_metrics(settings: Settings, kafka: dict[str, Topic]) -> None:
    catch_up(settings, kafka)
    write_times(settings, Table.ACTIVITY_MASKED, 0)
    found = {metric.name: metric.samples for metric in families.families(Looking(settings, {"gold": 1}).take())}
    states = {sample.labels["state"]: sample.value for sample in found["activity_stream_state"] if is_masked(sample)}
    assert (states["off"], sum(states.values())) == (1, 1)
    since_noon = pytest.approx((datetime.now(UTC) - NOON).total_seconds(), abs=60)
    assert [sample.value for sample in found["activity_behind_input_seconds"] if is_masked(sample)] == [since_noon]
    assert not any(map(is_masked, found["activity_stream_ready"])), "it is nobody's who would make it ready"


def told(seconds: int) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def is_masked(sample: object) -> bool:
    labels: dict[str, str] = getattr(sample, "labels", {})
    return labels.get("stream") == "masked"


def test_the_doctor_notes_it_with_a_remedy(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "is_reachable", lambda _: False)
    name = "streams that are off"

    def finding() -> doctor.Finding:
        return next(found for found in doctor.diagnose(settings) if found.check == name)

    assert finding() == doctor.Finding(name, ok=True, found="none of them has written before", remedy="")
    masked_was_on(settings)
    found = finding()
    assert (found.ok, found.remedy) == (True, "to go on, set ACTIVITY_MASK_KEY_FILE")
    assert found.found.startswith(MASKED)


def test_a_driver_warns_of_it_when_it_starts(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Reached(Exception):
        """Spark would start now."""

    def reached(*_: object) -> None:
        raise Reached

    monkeypatch.setattr(broker_topics, "check", lambda *_, **__: None)
    monkeypatch.setattr(broker_topics, "warning", lambda _: "")
    monkeypatch.setattr(session, "start", reached)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    masked_was_on(settings)
    with pytest.raises(Reached):
        application.run(settings, ["bronze"])
    (warned,) = (record for record in caplog.records if record.levelno == logging.WARNING)
    assert warned.getMessage().startswith(MASKED)
    assert warned.getMessage().endswith(": to go on, set ACTIVITY_MASK_KEY_FILE")
    assert warned.query == "masked"  # type: ignore[attr-defined]
