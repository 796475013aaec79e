"""Airflow runs the stream: scheduler, triggerer, worker and driver may die, and whoever clicks gets what is meant.

After each of it there is one driver, no more and no less, and the independent verifier finds nothing. In CI
are the kill of the driver and who can read secrets; the others, a minute each and more, are nightly.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from operator import itemgetter
from pathlib import Path

import pytest

from customer_activity.catalog import Table
from customer_activity.demo.run import local_airflow
from customer_activity.settings import Settings
from customer_activity.supervision import processes
from support.airflow import STREAM_DAG, TASK, Deployment, kill, kill_driver, line, until
from support.broker import assert_verified, rows, send
from support.records import profile, purchase

pytestmark = pytest.mark.timeout(900)  # each waits for what Airflow does in its own time
ATTENDED_SECONDS = 120.0  # as dags/activity_dags/driver.py starts it
Timed = Callable[[str], AbstractContextManager[None]]


def a_purchase_arrives(settings: Settings) -> None:
    """Send one, wait until gold has it, and see that everything is right."""
    name = f"P-{time.time_ns()}"
    send(settings, profile("C-1"), purchase(name, "C-1"))

    def look() -> None:
        assert name in {row["purchase_id"] for row in rows(settings, Table.PURCHASES)}
        counted = sum(row["purchase_count"] for row in rows(settings, Table.ACTIVITY))
        assert counted == len(rows(settings, Table.PURCHASES))

    until(look, 90)
    assert_verified(settings)


@pytest.fixture
def timed(record_property: Callable[[str, object], None]) -> Timed:
    """Return what puts the seconds that something took into the report, and below it: they are no assertion."""

    @contextmanager
    def taking(what: str) -> Iterator[None]:
        started = time.monotonic()
        yield
        record_property(what, round(time.monotonic() - started, 1))

    return taking


@pytest.mark.nightly
def test_no_worker_waits_while_it_streams(running: Deployment) -> None:
    a_purchase_arrives(running.settings)
    pool = running.get("/pools/default_pool")
    assert (pool["running_slots"], pool["queued_slots"], pool["deferred_slots"]) == (0, 0, 1)
    assert running.drivers() == {running.driver().pid}


def test_a_driver_that_is_killed_is_started_again(running: Deployment, timed: Timed) -> None:
    with timed("driver killed, until all queries run"):
        after = running.is_streaming(but=kill_driver(running))
    assert running.drivers() == {after.pid}
    a_purchase_arrives(running.settings)


@pytest.mark.parametrize("part", ["triggerer", "scheduler"])
@pytest.mark.nightly
def test_a_part_of_airflow_that_is_killed_leaves_the_driver_to_the_one_after_it(
    running: Deployment, part: str, timed: Timed
) -> None:
    before = running.driver()
    victims = running.parts_of_airflow(f"airflow {part}", *(["airflow worker"] if part == "scheduler" else []))
    assert victims
    kill(*victims)
    running.start_part(part)
    until(lambda: _is_healthy(running, part), 120)
    assert running.is_streaming().pid == before.pid
    with timed(f"driver killed under a new {part}, until all queries run"):
        running.is_streaming(but=kill_driver(running))
    a_purchase_arrives(running.settings)


def _is_healthy(deployment: Deployment, part: str) -> None:
    assert deployment.get("/monitor/health")[part]["status"] == "healthy"


@pytest.mark.nightly
def test_a_worker_that_is_killed_while_it_starts_the_driver_leaves_one(running: Deployment) -> None:
    before = running.driver()
    clear(running)

    def starting() -> None:
        assert running.commands("driver", "start")

    until(starting, 90)
    # The one that has the task. An idle one waits with the executor's queue locked: killed, it blocks all others.
    kill(*(worker for worker in running.parts_of_airflow("airflow worker") if "<idle>" not in line(worker)))
    after = running.is_streaming(but=before.pid, seconds=300)
    assert running.drivers() == {after.pid}
    a_purchase_arrives(running.settings)


@pytest.mark.nightly
def test_with_all_of_airflow_gone_the_driver_stops_by_itself(running: Deployment) -> None:
    try:
        kill(*running.parts_of_airflow())
        running.has_stopped(2 * ATTENDED_SECONDS)
        assert running.drivers() == set()
    finally:
        running.stop_airflow()
        running.start_airflow()
    running.is_streaming()
    a_purchase_arrives(running.settings)


def clear(deployment: Deployment) -> None:
    """Clear the stream's task, as the button on its page does."""
    run = deployment.task()["dag_run_id"]
    deployment.post(
        f"/dags/{STREAM_DAG}/clearTaskInstances",
        {"dry_run": False, "task_ids": [TASK], "dag_run_id": run, "only_failed": False, "reset_dag_runs": True},
    )


@pytest.mark.nightly
def test_clearing_the_task_stops_the_driver_gracefully_and_starts_one(running: Deployment, timed: Timed) -> None:
    before = running.driver()
    with timed("cleared, until all queries run"):
        clear(running)
        after = running.is_streaming(but=before.pid)
    assert running.drivers() == {after.pid}
    log = processes.log_path(running.settings, "stream").with_name("stream.log.1").read_text(encoding="utf-8")
    assert "Traceback" not in log
    a_purchase_arrives(running.settings)


@pytest.mark.nightly
def test_marking_its_run_failed_stops_the_driver_and_the_next_run_starts_one(running: Deployment, timed: Timed) -> None:
    before, run = running.driver(), running.newest_run(STREAM_DAG)["dag_run_id"]
    with timed("marked failed, until all queries run"):
        running.patch(f"/dags/{STREAM_DAG}/dagRuns/{run}", {"state": "failed"})
        after = running.is_streaming(but=before.pid)
    assert running.newest_run(STREAM_DAG)["dag_run_id"] != run
    assert running.drivers() == {after.pid}
    a_purchase_arrives(running.settings)


@pytest.mark.nightly
def test_pausing_stops_the_driver_and_going_on_starts_one(running: Deployment, timed: Timed) -> None:
    with timed("paused, until the driver has stopped"):
        running.pause(is_paused=True)
        running.has_stopped()
    assert running.drivers() == set()
    with timed("goes on, until all queries run"):
        running.pause(is_paused=False)
        running.is_streaming()
    a_purchase_arrives(running.settings)


@pytest.mark.nightly
def test_maintenance_is_done_by_the_driver_while_it_streams(running: Deployment) -> None:
    before = running.driver()
    run = running.run("customer_activity_maintenance")
    log = running.log("customer_activity_maintenance", run["dag_run_id"], "maintain")
    assert run["state"] == "success", log
    assert "by the driver, between its batches" in log
    assert running.is_streaming().pid == before.pid
    a_purchase_arrives(running.settings)


@pytest.mark.nightly
def test_a_rebuild_corrects_what_is_live_while_the_stream_is_paused(running: Deployment) -> None:
    a_purchase_arrives(running.settings)
    rebuild = "customer_activity_rebuild"
    early = running.run(rebuild, conf={"apply": True})
    assert early["state"] == "failed"
    assert "corrected while no stream runs" in running.log(rebuild, early["dag_run_id"], "compare")
    running.pause(is_paused=True)
    try:
        running.has_stopped()
        before = sorted(rows(running.settings, Table.ACTIVITY), key=itemgetter("customer_id"))
        done = running.run(rebuild, conf={"apply": True})
        log = running.log(rebuild, done["dag_run_id"], "compare")
        assert done["state"] == "success", log
        assert sorted(rows(running.settings, Table.ACTIVITY), key=itemgetter("customer_id")) == before
    finally:
        running.pause(is_paused=False)
    assert "equal: nothing to correct" in log
    running.is_streaming()
    a_purchase_arrives(running.settings)


@pytest.mark.nightly
def test_quality_judges_and_proves_while_it_streams(running: Deployment) -> None:
    a_purchase_arrives(running.settings)
    run = running.run("customer_activity_quality")
    words = [running.log("customer_activity_quality", run["dag_run_id"], task) for task in ("judge", "prove")]
    assert run["state"] == "success", "\n".join(words)


@pytest.mark.nightly
def test_the_batch_dag_is_turned_away_while_the_stream_runs(running: Deployment) -> None:
    dag, path = "customer_activity_batch", "/dags/customer_activity_batch/dagRuns"
    running.pause(dag, is_paused=False)
    running.post(path, {"logical_date": None})

    def refused() -> str:
        """Return one that was turned away: on the hour the schedule starts a run of its own, which goes first."""
        tasks = running.get(f"{path}/~/taskInstances")["task_instances"]
        found = [task["dag_run_id"] for task in tasks if task["state"] in ("up_for_retry", "failed")]
        return str(found[0])

    turned_away = until(refused, 120)
    running.pause(dag, is_paused=True)
    for run in running.get(path)["dag_runs"]:
        running.patch(f"{path}/{run['dag_run_id']}", {"state": "failed"})
    assert "already runs on" in running.log(dag, turned_away, "drain")
    a_purchase_arrives(running.settings)


def test_secrets_are_in_no_file_that_others_can_read(running: Deployment) -> None:
    folder = running.settings.airflow_dir
    for name in ("passwords.json", "keys.json"):
        assert (folder / name).stat().st_mode & 0o077 == 0
    password = local_airflow._passwords(running.settings)[local_airflow.PEOPLE]
    logs = [Path(parent, file) for parent, _, files in os.walk(folder / "logs") for file in files]
    assert not [log for log in logs if password in log.read_text(encoding="utf-8", errors="replace")]
