"""A local Airflow: `airflow standalone` from its own environment, on loopback, with passwords made for it.

For laptops and tests; a team's Airflow needs the folder `dags/` and two connections (docs/OPERATIONS.md). Two users:
`admin` for people, and `watcher`, who may only look, with which the stream's trigger asks whether its DAG is paused.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from customer_activity.errors import EnvironmentFault, TransientError
from customer_activity.settings import PROJECT, Settings
from customer_activity.supervision import processes

if TYPE_CHECKING:
    import httpx

NAME = "airflow"  # of its log and pid file
ENVIRONMENT = PROJECT / ".venv-airflow"
DAGS = PROJECT / "dags"
PIPELINES = "CUSTOMER_ACTIVITY_PIPELINES"  # a folder with the settings of each, where it runs several
PEOPLE, WATCHER = "admin", "watcher"
START_SECONDS = 300.0  # half a minute, and several beside other work on a small machine
STOP_SECONDS = 20.0
LOOK_SECONDS = 0.5
PARTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
WORKER_LOST_SECONDS = 60  # Airflow's default is five minutes
KILL_SECONDS = 75  # a driver that is told to stop may finish a batch; Airflow's default cuts that short


class Airflow(NamedTuple):
    """A local Airflow that runs: its pages, the password of `admin`, and its process when it was started just now."""

    url: str
    password: str
    process: subprocess.Popen[bytes] | None

    @property
    def is_new(self) -> bool:
        """Whether it was started just now."""
        return self.process is not None


def start(settings: Settings) -> Airflow:
    """Start it and wait until all its parts are well; one that runs already is it.

    Raises:
        EnvironmentFault: it is not installed, something else has its port, or it ended; carries its last words.
        TransientError: it is not well in time.
    """
    program = ENVIRONMENT / "bin" / "airflow"
    if not program.exists():
        raise EnvironmentFault(
            f"Airflow is not installed at {ENVIRONMENT}", remedy="`make setup` in a source tree installs it"
        )
    passwords, process = _passwords(settings), None
    if processes.running(settings, NAME) is None:
        _require_free(settings.airflow_port)
        process = processes.launch(settings, NAME, [str(program), "standalone"], environment(settings, passwords))
    deadline = time.monotonic() + START_SECONDS
    while not is_well(settings):
        if processes.running(settings, NAME) is None:
            raise EnvironmentFault(
                f"Airflow ended:\n{processes.last_lines(settings, NAME)}",
                remedy=f"the whole log is {processes.log_path(settings, NAME)}",
            )
        if time.monotonic() > deadline:
            raise TransientError(
                f"Airflow is not healthy after {START_SECONDS:.0f} s",
                remedy=f"it is still starting; its log is {processes.log_path(settings, NAME)}",
            )
        time.sleep(LOOK_SECONDS)
    return Airflow(url(settings), passwords[PEOPLE], process)


def _require_free(port: int) -> None:
    """Make sure that nobody listens on a port: Airflow would go on without its pages, and be waited for in vain."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise EnvironmentFault(
                f"something else listens on port {port}, which Airflow's pages need",
                remedy="stop it, or set ACTIVITY_AIRFLOW_PORT to another port; `activity run --no-airflow` needs none",
            )


def stop(settings: Settings) -> bool:
    """Stop it, and not the driver, which is a process of its own; return whether it ran."""
    leader = processes.recorded(settings, NAME)
    if leader is None or not processes.family(leader):
        return False
    # Ctrl-C is what `airflow standalone` takes for "stop your parts".
    processes.stop(leader, seconds=STOP_SECONDS, how=signal.SIGINT)
    processes.pid_path(settings, NAME).unlink(missing_ok=True)
    return True


def is_well(settings: Settings) -> bool:
    """Whether its API answers and says that all its parts are healthy."""
    import httpx  # noqa: PLC0415 - takes a sixth of a second, which every look at the driver would pay

    try:
        health = httpx.get(f"{url(settings)}/api/v2/monitor/health", timeout=5).raise_for_status().json()
    except httpx.HTTPError:
        return False
    return all(health.get(part, {}).get("status") == "healthy" for part in PARTS)


def switch_on(settings: Settings) -> None:
    """Unpause the streams' DAG, as the switch on its page does; it may not have been read yet.

    Raises:
        TransientError: Airflow does not know the DAG in time.
    """
    dag, deadline = stream_dag(settings), time.monotonic() + START_SECONDS
    while True:
        with client(settings) as api:
            answer = api.patch(f"/api/v2/dags/{dag}", json={"is_paused": False}, params={"update_mask": "is_paused"})
        if answer.is_success:
            return
        if answer.status_code != HTTPStatus.NOT_FOUND or time.monotonic() > deadline:
            raise TransientError(
                f"Airflow did not unpause the DAG {dag}: HTTP {answer.status_code}",
                remedy=f"look at {url(settings)}, “Dag import errors”",
            )
        time.sleep(LOOK_SECONDS)


def has_given_up(settings: Settings) -> bool:
    """Whether the streams' DAG, switched on, is paused: it is after failures in a row. Not when Airflow is silent."""
    import httpx  # noqa: PLC0415 - as above

    try:
        with client(settings) as api:
            return bool(api.get(f"/api/v2/dags/{stream_dag(settings)}").raise_for_status().json()["is_paused"])
    except httpx.HTTPError:
        return False


@contextmanager
def client(settings: Settings) -> Iterator[httpx.Client]:
    """Yield a client of its REST API that is signed in as the one who may do everything."""
    import httpx  # noqa: PLC0415 - as above

    who = {"username": PEOPLE, "password": _passwords(settings)[PEOPLE]}
    with httpx.Client(base_url=url(settings), timeout=30) as api:
        token = api.post("/auth/token", json=who).raise_for_status().json()["access_token"]
        api.headers["Authorization"] = f"Bearer {token}"
        yield api


def stream_dag(settings: Settings) -> str:
    """Return the id of the DAG that runs the streams."""
    return f"{settings.airflow_prefix}_stream"


def url(settings: Settings) -> str:
    """Where its pages are."""
    return f"http://localhost:{settings.airflow_port}"


def environment(settings: Settings, passwords: dict[str, str]) -> dict[str, str]:
    """Return what it is started with: nothing of it is on a command line, and nothing outside its folder is touched."""
    port = settings.airflow_port
    keys = _kept(settings.airflow_dir / "keys.json", ["api", "tokens"], 64)
    login = {"host": "localhost", "port": port, "login": WATCHER, "password": passwords[WATCHER]}
    mine = {
        "AIRFLOW_HOME": str(settings.airflow_dir),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://localhost:{port}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{PEOPLE}:admin,{WATCHER}:viewer",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(_passwords_file(settings)),
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://localhost:{port}",
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": keys["api"],
        "AIRFLOW__API_AUTH__JWT_SECRET": keys["tokens"],
        # Airflow has fixed ones for these, and a second Airflow on this machine would show the logs of the first.
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(port + 1),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(port + 2),
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": str(WORKER_LOST_SECONDS),
        "AIRFLOW__TRIGGERER__ON_KILL_TIMEOUT": str(KILL_SECONDS),
        f"AIRFLOW_CONN_{settings.airflow_prefix.upper()}_SPARK": json.dumps(
            {"conn_type": "spark", "host": settings.spark_master}
        ),
        # Buttons of tasks lead there; a browser follows no link of a page to a file on this machine.
        "ACTIVITY_PORTAL_URL": settings.portal_page,
        "ACTIVITY_QUALITY_URL": settings.quality_url or settings.portal_data_docs,
        "CUSTOMER_ACTIVITY_PROGRAM": str(Path(sys.executable).with_name("activity")),
        "PATH": f"{ENVIRONMENT / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(DAGS),  # the triggerer imports what a DAG file imports, and reads no DAG file
    }
    watch = json.dumps({"conn_type": "http", **login})
    connections = {f"AIRFLOW_CONN_{prefix.upper()}_AIRFLOW": watch for prefix in _prefixes(settings)}
    theirs = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    return {**theirs, **settings.environment(), **mine, **connections}


def _prefixes(settings: Settings) -> list[str]:
    """Return what the ids of each pipeline that it runs begin with: this one's, or those that are declared to it."""
    folder = os.environ.get(PIPELINES)
    names = [file.stem for file in Path(folder).glob("*.env")] if folder else [settings.pipeline]
    return [name.replace("-", "_") for name in names]


def _passwords(settings: Settings) -> dict[str, str]:
    """Return the users' passwords, by the file that Airflow reads them from."""
    return _kept(_passwords_file(settings), [PEOPLE, WATCHER], 16)


def _passwords_file(settings: Settings) -> Path:
    return settings.airflow_dir / "passwords.json"


def _kept(path: Path, names: list[str], size: int) -> dict[str, str]:
    """Return secrets that were made on the first call, in a file that only this user can read."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({name: secrets.token_urlsafe(size) for name in names}, file)
    return dict(json.loads(path.read_text(encoding="utf-8")))
