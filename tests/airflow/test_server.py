"""docker-compose.yml as Airflow sees it: a misspelt option would be nobody's error, it would just not be in force."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.secrets.local_filesystem import LocalFilesystemBackend

from activity_dags import pausing
from activity_dags.pipelines import DEFAULT, Pipeline

PROJECT = Path(__file__).resolve().parents[2]
PREFIX = "AIRFLOW__"
CONNECTION = Pipeline(DEFAULT).id(pausing.CONNECTION)


def read(text: str) -> dict[str, Any]:
    return dict(yaml.safe_load(text))  # type: ignore[no-untyped-call]


SERVICES = read((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
CONFIGURATION = read((files("airflow.config_templates") / "config.yml").read_text(encoding="utf-8"))
SAID: dict[str, str] = {
    name: str(value)
    for service in SERVICES.values()
    for name, value in service.get("environment", {}).items()
    if name.startswith(PREFIX)
}


def option(variable: str) -> dict[str, Any]:
    """Return how Airflow describes an option; nothing when it does not know it."""
    section, _, name = variable.removeprefix(PREFIX).lower().partition("__")
    return dict(CONFIGURATION.get(section, {}).get("options", {}).get(name) or {})


@pytest.mark.parametrize("variable", SAID)
def test_an_option_is_one_of_airflows(variable: str) -> None:
    assert option(variable.removesuffix("_CMD"))


@pytest.mark.parametrize("variable", [variable for variable in SAID if variable.endswith("_CMD")])
def test_only_what_airflow_takes_from_a_command_comes_from_one(variable: str) -> None:
    assert option(variable.removesuffix("_CMD"))["sensitive"]


@pytest.mark.parametrize("name", ["sql_alchemy_conn", "fernet_key", "secret_key", "jwt_secret"])
def test_what_is_secret_is_said_and_comes_from_a_file(name: str) -> None:
    (value,) = [value for variable, value in SAID.items() if variable.endswith(f"__{name.upper()}_CMD")]
    assert value.startswith("cat /run/secrets/")


def test_the_connections_are_those_that_the_dags_ask_for(tmp_path: Path) -> None:
    assert SAID["AIRFLOW__SECRETS__BACKEND"] == f"{LocalFilesystemBackend.__module__}.{LocalFilesystemBackend.__name__}"
    file = Path(json.loads(SAID["AIRFLOW__SECRETS__BACKEND_KWARGS"])["connections_file_path"])
    script = (PROJECT / "infra" / "compose" / "secrets.sh").read_text(encoding="utf-8")
    made = script.partition(f"keep {file.name} <<END\n")[2].partition("END\n")[0]
    made = made.replace("${pipeline//-/_}", Pipeline(DEFAULT).prefix)
    (tmp_path / file.name).write_text(made, encoding="utf-8")
    backend = LocalFilesystemBackend(connections_file_path=str(tmp_path / file.name))
    assert set(backend._local_connections) == {CONNECTION}
    connection = backend.get_connection(CONNECTION)
    assert connection is not None
    assert (connection.host, connection.port, connection.login) == ("airflow-api-server", 8080, "watcher")
