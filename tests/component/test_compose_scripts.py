"""The shell scripts of docker-compose.yml, with stand-ins for Airflow's commands that note how they were called."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from customer_activity.kafka import clients
from customer_activity.settings import Settings
from customer_activity.storage import s3
from customer_activity.supervision import endpoint, processes
from support import waiting
from support.images import PROJECT

Calls = Callable[[], list[str]]
MakeSecrets = Callable[[], dict[str, str]]
SCRIPTS = PROJECT / "infra" / "compose"
WAIT_SECONDS = 20.0
# Notes each call with what it reads; a part of Airflow stays until it is told to stop.
STAND_IN = """#!/usr/bin/env bash
echo "${0##*/} $*" >>"$CALLS"
case "$*" in
  scheduler|triggerer)
    trap 'echo "$1 stopped" >>"$CALLS"; exit 0' TERM
    sleep 600 &
    echo "$$ $!" >"$CALLS.$1"
    while true; do sleep 0.05; done ;;
  users*) while read -r line; do echo "read $line" >>"$CALLS"; done ;;
  "driver stop"*) env | grep ^ACTIVITY_ | sort >"$CALLS.activity.$$" ;;
  "db migrate") exit "${MIGRATE_CODE:-0}" ;;
esac
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which Airflow's command and the product's are stand-ins."""
    (tmp_path / "bin").mkdir()
    for name in ("airflow", "activity"):
        (tmp_path / "bin" / name).write_text(STAND_IN, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {"PATH": path, "CALLS": str(tmp_path / "calls"), "PAUSE_SECONDS": "0", "DRIVER_SECONDS": "7"}


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    """Return what tells what was called, in order."""

    def told() -> list[str]:
        return (tmp_path / "calls").read_text(encoding="utf-8").splitlines() if (tmp_path / "calls").exists() else []

    return told


until = partial(waiting.until, seconds=WAIT_SECONDS, every=0.02)


# --- supervise.sh


@pytest.fixture
def supervised(environment: dict[str, str], calls: Calls) -> Iterator[subprocess.Popen[bytes]]:
    """Start both parts."""
    with subprocess.Popen([SCRIPTS / "supervise.sh"], env=environment, start_new_session=True) as process:
        until(lambda: {"airflow scheduler", "airflow triggerer"} <= set(calls()))
        yield process
        process.terminate()  # it ends what it started


def numbers(tmp_path: Path, part: str) -> list[int]:
    """Return the processes of a part: itself and what it started."""
    noted = tmp_path / f"calls.{part}"
    until(lambda: noted.exists() and noted.read_text(encoding="utf-8").endswith("\n"))
    return [int(number) for number in noted.read_text(encoding="utf-8").split()]


@pytest.mark.parametrize("part", ["scheduler", "triggerer"])
def test_a_part_that_was_killed_is_started_again_and_the_other_goes_on(
    part: str, supervised: subprocess.Popen[bytes], calls: Calls, tmp_path: Path
) -> None:
    itself, left = numbers(tmp_path, part)
    worker = psutil.Process(left)
    os.kill(itself, signal.SIGKILL)
    until(lambda: calls().count(f"airflow {part}") == 2)
    assert len(calls()) == 3
    until(lambda: not processes.is_running(worker))  # what it had started is not left behind


def test_told_to_stop_it_stops_airflow_and_then_the_driver(
    supervised: subprocess.Popen[bytes], calls: Calls, tmp_path: Path
) -> None:
    workers = [psutil.Process(numbers(tmp_path, part)[1]) for part in ("scheduler", "triggerer")]
    supervised.terminate()
    assert supervised.wait(WAIT_SECONDS) == 0
    assert set(calls()[2:4]) == {"scheduler stopped", "triggerer stopped"}
    assert calls()[4:] == ["activity driver stop --seconds 7"]
    assert not [worker for worker in workers if processes.is_running(worker)]


def test_told_to_stop_it_stops_the_driver_of_every_pipeline(
    environment: dict[str, str], calls: Calls, tmp_path: Path
) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for name in ("orders-eu", "shop"):
        (folder / f"{name}.env").write_text(f"ACTIVITY_PIPELINE={name}\nACTIVITY_LAKE='/of {name}'\n", encoding="utf-8")
    known = {**environment, "CUSTOMER_ACTIVITY_PIPELINES": str(folder), "ACTIVITY_CURRENCY": "of nobody's"}
    with subprocess.Popen([SCRIPTS / "supervise.sh"], env=known, start_new_session=True) as process:
        until(lambda: {"airflow scheduler", "airflow triggerer"} <= set(calls()))
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0
    assert calls().count("activity driver stop --seconds 7") == 2
    seen = sorted(path.read_text(encoding="utf-8") for path in tmp_path.glob("calls.activity.*"))
    assert seen == [f"ACTIVITY_LAKE=/of {name}\nACTIVITY_PIPELINE={name}\n" for name in ("orders-eu", "shop")]


# --- prepare-airflow.sh


@pytest.fixture
def prepare(environment: dict[str, str], tmp_path: Path) -> Callable[..., int]:
    (tmp_path / "secrets").mkdir()
    for user in ("admin", "watcher"):
        (tmp_path / "secrets" / f"airflow_{user}_password").write_text(f"word-of-{user}", encoding="utf-8")

    def run(**variables: str) -> int:
        known = {**environment, "SECRETS": str(tmp_path / "secrets"), **variables}
        return subprocess.run([SCRIPTS / "prepare-airflow.sh"], env=known, check=False).returncode

    return run


def test_users_are_made_with_passwords_that_no_command_line_shows(prepare: Callable[..., int], calls: Calls) -> None:
    assert prepare() == 0
    commands = [call for call in calls() if call.startswith("airflow")]
    assert [call.split(" --")[0] for call in commands] == [
        "airflow db migrate",
        "airflow users create",
        "airflow users create",
        "airflow users reset-password",
    ]
    assert ["--role Admin" in commands[1], "--role Viewer" in commands[2]] == [True, True]
    assert not [call for call in commands if "word-of" in call]
    # Each is asked for twice; the watcher's is set once more, so that it is its secret's after a change.
    assert [call for call in calls() if call.startswith("read")] == ["read word-of-admin"] * 2 + [
        "read word-of-watcher"
    ] * 4


def test_without_a_database_it_fails_and_makes_nobody(prepare: Callable[..., int], calls: Calls) -> None:
    assert prepare(MIGRATE_CODE="3") == 3
    assert calls() == ["airflow db migrate"]


# --- healthy.sh

WELL = {"status": "healthy"}


@pytest.mark.parametrize(
    ("health", "parts", "words"),
    [
        pytest.param({"scheduler": WELL, "triggerer": WELL}, ["scheduler", "triggerer"], "", id="both are"),
        pytest.param({"scheduler": WELL, "triggerer": {"status": None}}, ["scheduler"], "", id="the one asked for is"),
        pytest.param(
            {"scheduler": WELL, "triggerer": {"status": "unhealthy"}},
            ["scheduler", "triggerer"],
            "triggerer: unhealthy",
            id="one is not",
        ),
        pytest.param({"dag_processor": {"status": None}}, ["dag_processor"], "dag_processor: None", id="never seen"),
        pytest.param({"triggerer": None}, ["triggerer"], "triggerer: None", id="there is none"),
        pytest.param({}, ["scheduler"], "scheduler: None", id="not told"),
        pytest.param(None, ["scheduler"], "503", id="the API server is not well itself"),
    ],
)
def test_a_part_is_well_when_the_api_server_says_so(
    health: dict[str, Any] | None, parts: list[str], words: str
) -> None:
    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if health is not None and self.path == "/api/v2/monitor/health" else 503)
            self.end_headers()
            self.wfile.write(json.dumps(health).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Api) as api:
        threading.Thread(target=api.handle_request, daemon=True).start()
        known = {**os.environ, "AIRFLOW_URL": f"http://127.0.0.1:{api.server_port}"}
        line = [str(SCRIPTS / "healthy.sh"), *parts]
        answer = subprocess.run(line, env=known, capture_output=True, text=True, check=False)
    assert (answer.returncode == 0) == (words == "")
    assert words in answer.stderr


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """Return the folder of a driver that was started."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "stream.pid").write_text("7", encoding="utf-8")
    return folder


READY = {"ready": True, "not_ready": {}, "message": "", "driver": {"pid": 7}}


def asked(
    run_dir: Path, body: dict[str, Any] | None, *, at: str = "127.0.0.1", told: str | None = None
) -> subprocess.CompletedProcess[str]:
    """Ask whether a driver is well that answers so at an address, or not at all; `told`: as the settings have it."""

    class Driver(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if body and body["ready"] and self.path == "/readyz" else 503)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    class Server(HTTPServer):
        address_family = socket.AF_INET6 if ":" in at else socket.AF_INET

    with Server((at, 0), Driver) as driver:
        if body is not None:
            threading.Thread(target=driver.handle_request, daemon=True).start()
        else:
            driver.socket.close()
        endpoint.tell(Settings(run_dir=run_dir), "127.0.0.1", driver.server_port)
        known = {**os.environ, "ACTIVITY_RUN_DIR": str(run_dir), **({"ACTIVITY_METRICS_ADDRESS": told} if told else {})}
        line = [str(SCRIPTS / "healthy.sh"), "driver"]
        return subprocess.run(line, env=known, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(READY, "", id="ready"),
        pytest.param(
            {"ready": False, "not_ready": {"gold": "it is failed"}, "message": ""}, "gold: it is failed", id="a stream"
        ),
        pytest.param({"ready": False, "not_ready": {}, "message": "nothing read"}, "nothing read", id="nothing known"),
        pytest.param(None, "connect", id="it does not answer"),
        pytest.param({**READY, "driver": {"pid": 4_242}}, "process 7, does not answer", id="another one is ready"),
        pytest.param({**READY, "driver": None}, "process 7, does not answer", id="who answers does not say who it is"),
    ],
)
def test_a_driver_is_well_when_it_says_so(run_dir: Path, body: dict[str, Any] | None, words: str) -> None:
    answer = asked(run_dir, body)
    assert (answer.returncode == 0) == (words == "")
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize(
    ("at", "told"),
    [
        pytest.param("127.0.0.2", "127.0.0.2", id="an address of its own"),
        pytest.param("127.0.0.1", "0.0.0.0", id="every address"),  # noqa: S104 - meant
        pytest.param("::1", "::1", id="IPv6"),
        pytest.param("::1", "::", id="every address of IPv6"),
    ],
)
def test_a_driver_is_asked_where_it_listens(run_dir: Path, at: str, told: str) -> None:
    assert asked(run_dir, READY, at=at, told=told).returncode == 0


@pytest.mark.parametrize("missing", ["stream.pid", "metrics.json"])
def test_a_driver_that_nobody_wants_has_no_say(run_dir: Path, missing: str) -> None:
    """None was started, or it was told to stop (a paused DAG), or it does not serve anything."""
    endpoint.tell(Settings(run_dir=run_dir), "127.0.0.1", 1)
    (run_dir / missing).unlink()
    known = {**os.environ, "ACTIVITY_RUN_DIR": str(run_dir)}
    assert subprocess.run([str(SCRIPTS / "healthy.sh"), "driver"], env=known, check=False).returncode == 0


def test_of_several_pipelines_each_driver_is_asked(run_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    for folder in (other, run_dir):
        (pipelines / f"{folder.name}.env").write_text(f"ACTIVITY_RUN_DIR={folder}\n", encoding="utf-8")
    endpoint.tell(Settings(run_dir=run_dir), "127.0.0.1", 1)
    known = {**os.environ, "CUSTOMER_ACTIVITY_PIPELINES": str(pipelines)}
    answer = subprocess.run([str(SCRIPTS / "healthy.sh"), "driver"], env=known, capture_output=True, check=False)
    assert answer.returncode != 0


# --- bin/activity

WITH_KEYS = {"AWS_ACCESS_KEY_ID": "lake", "AWS_SECRET_ACCESS_KEY": "a-b_c"}


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        pytest.param(
            "AWS_ACCESS_KEY_ID=lake\nAWS_SECRET_ACCESS_KEY=a-b_c", WITH_KEYS, id="of a part that is given some"
        ),
        pytest.param(None, {}, id="of a part that is given none"),
    ],
)
def test_the_command_has_the_keys(keys: str | None, found: dict[str, str], tmp_path: Path) -> None:
    place = tmp_path / "infra" / "compose" / "bin"
    shutil.copytree(SCRIPTS / "bin", place)
    program = tmp_path / ".venv" / "bin" / "activity"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$*"\nenv\n', encoding="utf-8")
    program.chmod(0o755)
    if keys is not None:
        (tmp_path / "lake_keys").write_text(keys, encoding="utf-8")
    known = {"PATH": os.environ["PATH"], "SECRETS": str(tmp_path)}
    line = [str(place / "activity"), "show", "two words"]
    said, *seen = subprocess.run(line, env=known, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == "show two words"
    assert dict(pair.split("=", 1) for pair in seen if pair.startswith("AWS")) == found


# --- secrets.sh


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """Return the folder in which a test's own secrets are made."""
    return tmp_path / "infra" / "compose" / "secrets"


@pytest.fixture
def make_secrets(secrets: Path) -> MakeSecrets:
    """Return what makes secrets in a folder of the test's own."""
    script = secrets.with_name("secrets.sh")
    script.parent.mkdir(parents=True)
    script.write_bytes((SCRIPTS / "secrets.sh").read_bytes())
    script.chmod(0o755)

    def make() -> dict[str, str]:
        subprocess.run([script], check=True, capture_output=True)
        return {file.name: file.read_text(encoding="utf-8") for file in secrets.iterdir()}

    return make


def test_it_makes_every_secret_that_compose_hands_out(make_secrets: MakeSecrets) -> None:
    wanted = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["secrets"]
    made = make_secrets()
    assert {f"infra/compose/secrets/{name}" for name in made} == {secret["file"] for secret in wanted.values()}
    assert len(set(made.values())) == len(made)
    random = {name: value for name, value in made.items() if not name.endswith("_webhook")}  # which people write
    assert min(len(value) for value in random.values()) >= 43  # 32 bytes
    assert not [name for name, value in made.items() if value != value.strip()]


def test_what_belongs_together_agrees(make_secrets: MakeSecrets) -> None:
    made = make_secrets()
    assert f":{made['postgres_password']}@" in made["airflow_database"]
    assert f"={made['minio_password']}" in made["minio_keys"]
    assert made["minio_password"] not in made["lake_keys"]
    for name, user in {
        "kafka_admin": "admin",
        "kafka_client": "activity",
        "kafka_portal": "portal",
        "kafka_producers": "producers",
    }.items():
        word = re.search(rf'username="{user}" password="([^"]+)";', made[name])[1]  # type: ignore[index]
        assert f'user_{user}="{word}"' in made["kafka_users"]
    assert (
        json.loads(made["airflow_connections.json"])["customer_activity_airflow"]["password"]
        == made["airflow_watcher_password"]
    )


@pytest.mark.parametrize("said", ["in the environment", "in .env"])
def test_the_connection_is_called_after_the_pipeline(
    said: str, make_secrets: MakeSecrets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if said == "in .env":
        monkeypatch.delenv("ACTIVITY_PIPELINE", raising=False)
        (tmp_path / ".env").write_text("AIRFLOW_PORT=8081\nACTIVITY_PIPELINE=orders-eu\n", encoding="utf-8")
    else:
        monkeypatch.setenv("ACTIVITY_PIPELINE", "orders-eu")
    assert list(json.loads(make_secrets()["airflow_connections.json"])) == ["orders_eu_airflow"]


def test_what_is_there_stays_and_what_is_missing_is_made(make_secrets: MakeSecrets, secrets: Path) -> None:
    first = make_secrets()
    (secrets / "airflow_database").unlink()
    (secrets / "airflow_token_key").unlink()
    second = make_secrets()
    assert {name for name in first if first[name] != second[name]} == {"airflow_token_key"}


def test_an_account_of_the_lake_that_was_the_stores_root_is_made_anew(make_secrets: MakeSecrets, secrets: Path) -> None:
    root = make_secrets()["minio_password"]
    keys = secrets / "lake_keys"
    keys.unlink()
    keys.write_text(f"AWS_ACCESS_KEY_ID=lake\nAWS_SECRET_ACCESS_KEY={root}", encoding="utf-8")
    made = make_secrets()
    assert root not in made["lake_keys"]
    assert make_secrets() == made


def test_users_of_kafka_that_lack_the_portal_are_made_anew_of_the_others(
    make_secrets: MakeSecrets, secrets: Path
) -> None:
    made = make_secrets()
    users = secrets / "kafka_users"
    users.unlink()
    without = "\n".join(line for line in made["kafka_users"].splitlines() if "user_portal" not in line)
    users.write_text(without, encoding="utf-8")
    (secrets / "kafka_portal").unlink()
    again = make_secrets()
    assert f'user_portal="{again["kafka_portal"].rpartition("password=")[2][1:-2]}"' in again["kafka_users"]
    assert {name for name in made if made[name] != again[name]} == {"kafka_portal", "kafka_users"}


@pytest.mark.parametrize("name", ["kafka_admin", "kafka_client", "kafka_portal", "kafka_producers"])
def test_who_signs_in_to_kafka_has_a_file_that_both_clients_take(
    name: str, make_secrets: MakeSecrets, secrets: Path
) -> None:
    make_secrets()
    java, other = clients.security(Settings(kafka_config=secrets / name))
    assert other["sasl.password"] in java["sasl.jaas.config"]


# --- lake-account.sh


@pytest.fixture
def make_account(tmp_path: Path, secrets: Path, make_secrets: MakeSecrets) -> Callable[..., Any]:
    """Return what makes the lake's account in a store whose `mc` notes what it is told, and by whom."""
    make_secrets()
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mc"
    program.write_text(
        '#!/usr/bin/env bash\necho "mc $*" >>"$CALLS"\n'
        'case "$*" in *"user add"*) echo "$MC_HOST_store $(cat)" | tr "\\n" " " >>"$CALLS.read" ;;\n'
        '*attach*) echo "$SAID"; exit "$CODE" ;; esac\n',
        encoding="utf-8",
    )
    program.chmod(0o755)

    def make(code: int = 0, said: str = "") -> Any:
        known = {"CALLS": str(tmp_path / "calls"), "CODE": str(code), "SAID": said, "STORE": "http://minio:9000"}
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        known |= {"PATH": path, "SECRETS": str(secrets)}
        return subprocess.run([SCRIPTS / "lake-account.sh"], env=known, capture_output=True, text=True, check=False)

    return make


def keys_of(text: str) -> str:
    found = dict(line.split("=", 1) for line in text.splitlines())
    return f"{found['AWS_ACCESS_KEY_ID']}:{found['AWS_SECRET_ACCESS_KEY']}"


def test_the_lake_has_an_account_of_its_own_whose_word_no_command_line_shows(
    make_account: Callable[..., Any],
    make_secrets: MakeSecrets,
    calls: Calls,
    tmp_path: Path,
) -> None:
    made = make_secrets()
    assert make_account().returncode == 0
    policy = f"{SCRIPTS / 'lake-policy.json'}"
    assert calls() == [
        f"mc --quiet admin policy create store lake {policy}",
        "mc --quiet admin user add store",
        "mc --quiet admin policy attach store lake --user lake",
    ]
    root, account = keys_of(made["minio_keys"]), keys_of(made["lake_keys"])
    read = (tmp_path / "calls.read").read_text(encoding="utf-8").split()
    assert read == [f"http://{root}@minio:9000", *account.split(":")]
    assert root.partition(":")[0] != account.partition(":")[0]


@pytest.mark.parametrize(
    ("code", "said", "ends"),
    [
        pytest.param(1, "The specified policy change is already in effect.", 0, id="it has its rights already"),
        pytest.param(1, "connection refused", 1, id="the store does not answer"),
    ],
)
def test_an_account_that_is_there_is_no_failure(
    code: int, said: str, ends: int, make_account: Callable[..., Any]
) -> None:
    answer = make_account(code, said)
    assert answer.returncode == ends
    assert (said in answer.stderr) == (ends != 0)


def test_the_lakes_account_may_use_the_lakes_bucket_and_no_other() -> None:
    statements = json.loads((SCRIPTS / "lake-policy.json").read_text(encoding="utf-8"))["Statement"]
    compose = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))
    bucket, _ = s3.place(compose["x-activity-settings"]["ACTIVITY_LAKE"])
    assert [statement["Resource"] for statement in statements] == [
        [f"arn:aws:s3:::{bucket}"],
        [f"arn:aws:s3:::{bucket}/*"],
    ]
    assert not [action for statement in statements for action in statement["Action"] if "*" in action]


# --- prepare-kafka.sh


def test_topics_come_first_and_then_rights(environment: dict[str, str], calls: Calls) -> None:
    assert subprocess.run([SCRIPTS / "prepare-kafka.sh"], env=environment, check=False).returncode == 0
    assert calls() == [
        "activity broker topics",
        "activity broker acls pipeline activity",
        "activity broker acls traffic producers",
        "activity broker acls portal portal",
    ]


def test_nobody_else_on_this_machine_can_reach_them(make_secrets: MakeSecrets, secrets: Path) -> None:
    make_secrets()
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o222 for file in secrets.iterdir()} == {0}
