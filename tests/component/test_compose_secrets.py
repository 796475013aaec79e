"""The secrets that Compose hands out, and the account of the lake: shell scripts."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from customer_activity.kafka import clients
from customer_activity.settings import Settings
from customer_activity.storage import s3
from support.images import PROJECT

MakeSecrets = Callable[[], dict[str, str]]
SCRIPTS = PROJECT / "infra" / "compose"


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


def test_nobody_else_on_this_machine_can_reach_them(make_secrets: MakeSecrets, secrets: Path) -> None:
    make_secrets()
    assert secrets.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o222 for file in secrets.iterdir()} == {0}


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
    make_account: Callable[..., Any], make_secrets: MakeSecrets, tmp_path: Path
) -> None:
    made = make_secrets()
    assert make_account().returncode == 0
    policy = f"{SCRIPTS / 'lake-policy.json'}"
    assert (tmp_path / "calls").read_text(encoding="utf-8").splitlines() == [
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
