"""A deployment under a real Airflow, as its REST API and the machine's processes show it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil
from tenacity import Retrying, stop_after_delay, wait_fixed

from customer_activity.demo.run import local_airflow
from customer_activity.settings import Settings
from customer_activity.supervision import driver, processes
from customer_activity.supervision.driver import Driver, State

STREAM_DAG = "customer_activity_stream"  # of the default pipeline
TASK = "driver"
T = TypeVar("T")


def settings_in(folder: Path, address: str, port: int, **own: Any) -> Settings:
    """Return settings of a deployment whose files are in a folder, with its broker's address and Airflow's port."""
    places: dict[str, Any] = {
        "lake": str(folder / "lake"),
        "run_dir": folder / "run",
        "quality_docs": str(folder / "quality"),
        "broker_dir": folder / "kafka",
        "airflow_dir": folder / "airflow",
    }
    return Settings(kafka_bootstrap_servers=address, kafka_config=None, airflow_port=port, **places | own)


class Deployment:
    """Broker, Airflow and the stream's driver."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stream_dag = local_airflow.stream_dag(settings)
        self.started: list[subprocess.Popen[bytes]] = []

    def start_airflow(self) -> None:
        """Start all of Airflow."""
        if (process := local_airflow.start(self.settings).process) is not None:
            self.started.append(process)

    def start_part(self, part: str) -> subprocess.Popen[bytes]:
        """Start one part of Airflow anew, as whoever supervises it would; it stays beside the others."""
        program = str(local_airflow.ENVIRONMENT / "bin" / "airflow")
        variables = local_airflow.environment(self.settings, local_airflow._passwords(self.settings))
        self.started.append(processes.launch(self.settings, part, [program, part], variables))
        return self.started[-1]

    def stop_airflow(self) -> None:
        """Stop all of Airflow, and wait for what was started here."""
        local_airflow.stop(self.settings)
        while self.started:
            process = self.started.pop()
            processes.stop(process.pid, seconds=20)
            process.wait(30)

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        with local_airflow.client(self.settings) as api:
            return dict(api.get(f"/api/v2{path}", params=parameters).raise_for_status().json())

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with local_airflow.client(self.settings) as api:
            return dict(api.post(f"/api/v2{path}", json=body).raise_for_status().json())

    def patch(self, path: str, body: dict[str, Any]) -> None:
        with local_airflow.client(self.settings) as api:
            api.patch(f"/api/v2{path}", json=body).raise_for_status()

    def pause(self, dag: str | None = None, *, is_paused: bool) -> None:
        """Pause a DAG, the stream's when none is named, or let it go on."""
        self.patch(f"/dags/{dag or self.stream_dag}", {"is_paused": is_paused})

    def task(self) -> dict[str, Any]:
        """The stream's task in its newest run."""
        run = self.newest_run(self.stream_dag)["dag_run_id"]
        return self.get(f"/dags/{self.stream_dag}/dagRuns/{run}/taskInstances/{TASK}")

    def newest_run(self, dag: str) -> dict[str, Any]:
        """The newest run of a DAG."""
        return dict(self.get(f"/dags/{dag}/dagRuns", order_by="-run_after", limit=1)["dag_runs"][0])

    def runs(self, dag: str) -> int:
        """How often a DAG has been run."""
        return int(self.get(f"/dags/{dag}/dagRuns", limit=1)["total_entries"])

    def ended(self, dag: str, *, after: int, seconds: float = 240) -> dict[str, Any]:
        """Wait until a run of a DAG that came after so many others has ended, and return it."""

        def look() -> dict[str, Any]:
            assert self.runs(dag) > after
            return _ended(self.newest_run(dag))

        return until(look, seconds)

    def driver(self) -> Driver:
        return driver.observe(self.settings)

    def has_stopped(self, seconds: float = 120) -> None:
        """Wait until its driver has stopped gracefully."""

        def look() -> None:
            assert self.driver().state is State.STOPPED

        until(look, seconds)

    def is_streaming(self, *, but: int | None = None, seconds: float = 180) -> Driver:
        """Wait until the task is deferred and its driver is well, and watched: whoever marks the task stops it then.

        It is another driver than `but`, where that is given.
        """

        def look() -> Driver:
            found = self.driver()
            assert found.state is State.RUNNING
            assert found.pid != but
            assert self.task()["state"] == "deferred"
            assert self.commands("driver", "watch")
            return found

        return until(look, seconds)

    def run(self, dag: str, *, conf: dict[str, Any] | None = None, seconds: float = 240) -> dict[str, Any]:
        """Run another DAG once, with what its form asks for, and return how its run ended."""
        self.pause(dag, is_paused=False)
        begun = self.post(f"/dags/{dag}/dagRuns", {"logical_date": None, "conf": conf or {}})
        return until(lambda: _ended(self.get(f"/dags/{dag}/dagRuns/{begun['dag_run_id']}")), seconds)

    def log(self, dag: str, run: str, task: str, attempt: int = 1) -> str:
        """A task's log, as its page shows it."""
        content = self.get(f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/logs/{attempt}")["content"]
        return "\n".join(str(line.get("event", line)) if isinstance(line, dict) else str(line) for line in content)

    def parts_of_airflow(self, *words: str) -> list[psutil.Process]:
        """Airflow's processes whose command line has one of these words; all of them when none is given."""
        members = [member for process in self.started for member in processes.family(process.pid)]
        return [member for member in members if not words or any(word in line(member) for word in words)]

    def commands(self, *words: str) -> list[psutil.Process]:
        """Every process on this machine that runs `activity` with these words on this lake."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                named = process.cmdline()
                if set(words) <= set(named) and process.environ().get("ACTIVITY_LAKE") == self.settings.lake:
                    found.append(process)
        return found

    def drivers(self) -> set[int]:
        """Every driver of this lake."""
        return {process.pid for process in self.commands("stream")}


def _ended(run: dict[str, Any]) -> dict[str, Any]:
    assert run["state"] in ("success", "failed")
    return run


def line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def kill(*victims: psutil.Process) -> None:
    """End processes as a machine that runs out of memory does."""
    for victim in victims:
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
    psutil.wait_procs(victims, timeout=30)


def kill_driver(deployment: Deployment) -> int:
    """Kill a deployment's driver with all that it has started; return its number."""
    pid = deployment.driver().pid
    assert pid is not None
    kill(*processes.family(pid))
    return pid


def until(look: Callable[[], T], seconds: float) -> T:
    """Return what a look returns that does not fail."""
    for attempt in Retrying(stop=stop_after_delay(seconds), wait=wait_fixed(0.5), reraise=True):
        with attempt:
            return look()
    raise AssertionError("never looked")
