"""docker-compose.yml: what it runs is pinned as the locks are, is nobody's root, and gives nothing away."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from customer_activity import cli
from customer_activity import settings as product
from customer_activity.demo.broker import node
from customer_activity.demo.run import local_airflow
from support import images, monitoring
from support.images import PROJECT

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))
OWN_PORT = re.compile(r"127\.0\.0\.1:\$\{[A-Z_]+:-\d+\}:\d+")
PINNED = re.compile(r"[\w./-]+:(RELEASE\.|v)?\d+[.-]\d+[\w.-]*")
MAY_BE_SECRET = re.compile(r"PASSWORD|SECRET|KEY|TOKEN|CREDENTIAL|CONN", re.IGNORECASE)
IN_SECRETS = re.compile(r"/run/secrets/([\w.]+)")
ONE_SHOT = "on-failure"
NAME = "ACTIVITY_PIPELINE"


def parser() -> list[str] | None:
    """Return the compose on this machine, which needs no engine to read a file."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            answer = subprocess.run([*command, "version"], capture_output=True, check=False)
            if answer.returncode == 0:
                return command
    return None


def variables(service: str) -> dict[str, str]:
    return {name: str(value) for name, value in SERVICES[service].get("environment", {}).items()}


def secrets(service: str) -> dict[str, str]:
    """Return the secrets that a service is given, by the name of the file that it sees."""
    given = [{"source": s, "target": s} if isinstance(s, str) else s for s in SERVICES[service].get("secrets", [])]
    return {str(secret["target"]): str(secret["source"]) for secret in given}


def stage(service: str) -> images.Stage | None:
    """Return the stage of our Dockerfile that a service runs; None: somebody else's image."""
    build = SERVICES[service].get("build")
    return images.stages()[build["target"]] if build else None


def user(name: str) -> str:
    """Return who a stage's commands run as at last."""
    every = images.stages()
    said = every[name].values("USER")
    return said[-1] if said else (user(every[name].base) if every[name].base in every else "root")


def depended_on(condition: str) -> set[str]:
    return {
        name
        for service in SERVICES.values()
        for name, how in service.get("depends_on", {}).items()
        if how["condition"] == condition
    }


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("profile", [[], ["--profile", "cluster"]], ids=["as it is", "with the cluster"])
def test_compose_takes_the_file(profile: list[str]) -> None:
    command = parser()
    if command is None and "CI" not in os.environ:
        pytest.skip("needs docker compose or docker-compose; it reads the file, and needs no engine for that")
    assert command is not None, "no compose to read the file with → apt-get install docker-compose"
    line = [*command, *profile, "--file", str(PROJECT / "docker-compose.yml"), "config"]
    read = subprocess.run(line, capture_output=True, text=True, check=False)
    assert (read.returncode, read.stderr) == (0, "")
    wanted = {name for name, service in SERVICES.items() if "profiles" not in service or profile}
    assert set(yaml.safe_load(read.stdout)["services"]) >= wanted


def test_every_image_is_pinned(service: str) -> None:
    assert PINNED.fullmatch(SERVICES[service]["image"])


@pytest.mark.parametrize("name", images.stages())
def test_every_image_begins_with_one_that_is_pinned(name: str) -> None:
    base = images.stages()[name].base
    assert base in images.stages() or PINNED.fullmatch(base)


def broker_jar() -> str:
    ivy = (PROJECT / "infra" / "jars" / "ivy.xml").read_text(encoding="utf-8")
    return re.search(r'name="kafka_2.13" rev="([^"]+)"', ivy)[1]  # type: ignore[index]


def locked(package: str) -> str:
    lock = tomllib.loads((PROJECT / "uv.lock").read_text(encoding="utf-8"))
    return next(str(entry["version"]) for entry in lock["package"] if entry["name"] == package)


@pytest.mark.parametrize(
    ("pin", "lock"),
    [
        pytest.param(SERVICES["kafka"]["image"], lambda: f"apache/kafka:{broker_jar()}", id="Kafka: the tests' broker"),
        pytest.param(
            SERVICES["topics"]["image"],
            lambda: f"customer-activity:{PYPROJECT['project']['version']}",
            id="the product's image: its version",
        ),
        pytest.param(
            SERVICES["airflow-supervisor"]["image"],
            lambda: f"customer-activity-airflow:{PYPROJECT['project']['version']}",
            id="Airflow's image: the product's version",
        ),
        pytest.param(
            images.stages()["minio"].base.partition("RELEASE.")[2][:10],
            lambda: SERVICES["minio"]["image"].partition(":")[2],
            id="the object store's image: the day of its release",
        ),
        *(
            pytest.param(
                next(r for r in PYPROJECT["dependency-groups"][group] if str(r).startswith(f"{package}==")),
                lambda package=package: f"{package}=={locked(package)}",
                id=f"{package}: what is locked",
            )
            for group, package in (
                ("airflow", "apache-airflow"),
                ("airflow", "apache-airflow-providers-apache-spark"),
                ("airflow-server", "apache-airflow-providers-fab"),
            )
        ),
    ],
)
def test_a_pin_is_the_locks(pin: str, lock: Any) -> None:
    assert pin == lock()


def test_nobody_is_root(service: str) -> None:
    built = stage(service)
    who = SERVICES[service].get("user") or (user(built.name) if built else "root")
    assert who.partition(":")[0] not in ("root", "0")
    assert SERVICES[service]["cap_drop"] == ["ALL"]


def test_it_says_whether_it_is_well_or_ends(service: str) -> None:
    ends = SERVICES[service]["restart"] == ONE_SHOT
    assert ends == (service in depended_on("service_completed_successfully"))
    assert ends != ("healthcheck" in SERVICES[service])
    assert ends or SERVICES[service]["restart"] == "unless-stopped"


def test_who_is_waited_for_says_whether_it_is_well() -> None:
    assert all("healthcheck" in SERVICES[name] for name in depended_on("service_healthy"))


def test_the_portal_serves_the_pages_that_the_driver_writes_and_cannot_change_them() -> None:
    folder = variables("portal")["ACTIVITY_QUALITY_DOCS"]
    assert folder == variables("airflow-supervisor")["ACTIVITY_QUALITY_DOCS"]
    (written,) = [volume for volume in SERVICES["airflow-supervisor"]["volumes"] if volume.endswith(f":{folder}")]
    assert f"{written}:ro" in SERVICES["portal"]["volumes"]
    assert not [v for v in SERVICES["portal"]["volumes"] if folder.startswith(f"{v.split(':')[1]}/")]
    assert f"{folder} " in (PROJECT / "infra" / "images" / "Dockerfile").read_text(encoding="utf-8")
    leads_to = variables("airflow-supervisor")["ACTIVITY_QUALITY_URL"]
    assert leads_to == f"{variables('airflow-supervisor')['ACTIVITY_PORTAL_URL']}/data-docs"


def test_its_ports_are_on_this_machine_alone(service: str) -> None:
    assert all(OWN_PORT.fullmatch(port) for port in SERVICES[service].get("ports", []))


def test_only_pages_have_a_port() -> None:
    assert {name for name, service in SERVICES.items() if "ports" in service} == {
        "airflow-api-server",
        "grafana",
        "minio",
        "portal",
    }


def test_its_secrets_are_files_that_it_is_given(service: str) -> None:
    given = secrets(service)
    for name, value in variables(service).items():
        if MAY_BE_SECRET.search(name.rpartition("__")[2]):
            assert IN_SECRETS.search(value), f"{name} is not read from a file"
    read = {secret for value in variables(service).values() for secret in IN_SECRETS.findall(value)}
    assert read <= set(given), "it reads what it is not given"
    assert set(given.values()) <= set(COMPOSE["secrets"])


def test_a_part_is_given_no_secret_that_it_has_no_use_for() -> None:
    for service, entry in SERVICES.items():
        said = f"{entry.get('command', '')} {entry.get('entrypoint', '')}".split()
        read_there = (file for folder in mounts(service).values() for file in folder.glob("*.yml"))
        scripts = [*said, *map(str, read_there), "infra/compose/bin/with-keys"]
        text = "".join((PROJECT / name).read_text(encoding="utf-8") for name in scripts if (PROJECT / name).is_file())
        read = f"{' '.join(variables(service).values())} {entry.get('healthcheck', {}).get('test', '')}"
        if "SPARK_CONF_DIR" in variables(service):
            text += "spark-defaults.conf"  # the file of that folder that Spark reads
        for secret in secrets(service):
            assert f"/run/secrets/{secret}" in read or secret in text


def test_its_settings_are_the_products(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {name: value for name, value in variables(service).items() if name.startswith(product.PREFIX)}
    for name in [name for name in os.environ if name.startswith(product.PREFIX)]:
        monkeypatch.delenv(name)
    for name, value in theirs.items():
        monkeypatch.setenv(name, re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value))
    loaded = product.load()
    assert set(theirs) <= {NAME} or (loaded.production and loaded.lake.startswith("s3a://"))


def test_who_reads_dag_files_knows_the_pipelines_name() -> None:
    """DAGs and connections are called after it, and a part that did not know it would look for others."""
    parts = [name for name in SERVICES if "AIRFLOW__CORE__DAGS_FOLDER" in variables(name)]
    assert {"airflow-api-server", "airflow-dag-processor", "airflow-supervisor"} <= set(parts)
    assert {variables(name)[NAME] for name in [*parts, "topics", "lake"]} == {f"${{{NAME}:-{product.PIPELINE}}}"}


def test_the_driver_and_who_prepares_for_it_have_the_same_settings() -> None:
    def of(service: str) -> dict[str, str]:
        return {name: value for name, value in variables(service).items() if name.startswith(product.PREFIX)}

    alone = {"ACTIVITY_MASK_KEY_FILE": "/run/secrets/mask_key"}  # who prepares masks nothing
    assert of("topics") == of("lake") != {}
    assert of("airflow-supervisor") == of("topics") | alone


ROOTS = {"kafka_admin", "kafka_users", "minio_keys", "minio_password"}


@pytest.mark.parametrize(
    ("who", "roots"),
    [
        pytest.param("airflow-supervisor", set(), id="the driver: of nothing"),
        pytest.param("spark-worker", set(), id="its executors: of nothing"),
        pytest.param("airflow-api-server", set(), id="Airflow's pages: of nothing"),
        pytest.param("topics", {"kafka_admin"}, id="who makes topics: of Kafka"),
        pytest.param("lake", {"minio_keys"}, id="who makes the bucket: of the store"),
        pytest.param("lake-account", {"minio_keys"}, id="who makes the driver's account: of the store"),
    ],
)
def test_who_is_an_administrator(who: str, roots: set[str]) -> None:
    assert set(secrets(who).values()) & ROOTS == roots


def test_kafka_lets_nobody_in_without_a_name() -> None:
    told = variables("kafka")
    assert told["KAFKA_ADVERTISED_LISTENERS"] == "SASL_PLAINTEXT://kafka:9092"
    listeners = dict(listener.split("://") for listener in told["KAFKA_LISTENERS"].split(","))
    assert listeners == {"SASL_PLAINTEXT": ":9092", "CONTROLLER": "localhost:9093"}  # which asks for no sign-in
    assert told["KAFKA_AUTHORIZER_CLASS_NAME"].endswith("StandardAuthorizer")
    assert "KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND" not in told


@pytest.mark.parametrize("who", ["airflow-supervisor", "spark-master", "spark-worker"])
def test_spark_knows_its_own_by_a_secret(who: str) -> None:
    assert variables(who)["SPARK_CONF_DIR"] == "/run/secrets"
    assert secrets(who)["spark-defaults.conf"] == "spark_defaults"


@pytest.mark.parametrize("service", ["lake", "airflow-supervisor", "spark-worker"])
def test_who_reads_the_lake_has_its_keys(service: str) -> None:
    assert "lake_keys" in secrets(service)
    program = variables(service).get("CUSTOMER_ACTIVITY_PROGRAM") or SERVICES[service]["command"].split()[0]
    built = stage(service)
    assert built is not None
    assert f"infra/compose/bin/{Path(program).name}" in images.files(built.name)


def test_its_command_is_one_of_the_products(service: str) -> None:
    words = str(SERVICES[service].get("command", "")).split()
    command: Any = typer.main.get_command(cli.app)
    for word in words[1:] if words[:1] == ["activity"] else []:
        command = command.get_command(typer.Context(command), word)
        assert command is not None, f"there is no command {word}"


def test_its_scripts_are_in_its_image(service: str) -> None:
    built = stage(service)
    entry = SERVICES[service]
    said = f"{entry.get('command', '')} {entry.get('entrypoint', '')} {entry.get('healthcheck', {}).get('test', '')}"
    scripts = [word for word in said.split() if word.startswith("infra/")]
    for script in scripts:
        assert built is not None
        assert script in images.files(built.name)
        assert os.access(PROJECT / script, os.X_OK)


def test_the_driver_may_finish_a_batch_before_its_container_ends() -> None:
    script = (PROJECT / SERVICES["airflow-supervisor"]["command"]).read_text(encoding="utf-8")
    seconds = int(re.search(r"DRIVER_SECONDS:-(\d+)", script)[1])  # type: ignore[index]
    assert int(SERVICES["airflow-supervisor"]["stop_grace_period"].removesuffix("s")) >= seconds + 30


def mounts(service: str) -> dict[str, Path]:
    """Return the project's folders that a service sees, by where it sees them."""
    told = (volume.split(":") for volume in SERVICES[service].get("volumes", []) if volume.startswith("./"))
    return {there: PROJECT / here for here, there, how in told if how == "ro"}


def seen(service: str, path: str) -> Path:
    """Return which of our files a service sees at a path."""
    (found,) = (
        here / Path(path).relative_to(there) for there, here in mounts(service).items() if path.startswith(there)
    )
    return found


@pytest.mark.parametrize("service", ["prometheus", "alertmanager"])
def test_who_watches_finds_its_files(service: str) -> None:
    (config,) = re.findall(r"--config.file=(\S+)", SERVICES[service]["command"])
    read = yaml.safe_load(seen(service, config).read_text(encoding="utf-8"))
    assert all((seen(service, config).parent / name).is_file() for name in read.get("rule_files", []))


def test_grafana_finds_its_files() -> None:
    told = variables("grafana")
    folder = seen("grafana", told["GF_PATHS_PROVISIONING"])
    (provider,) = yaml.safe_load((folder / "dashboards" / "customer-activity.yml").read_text(encoding="utf-8"))[
        "providers"
    ]
    assert seen("grafana", provider["options"]["path"]) == monitoring.DASHBOARD.parent
    assert seen("grafana", told["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]) == monitoring.DASHBOARD
    sources = yaml.safe_load((folder / "datasources" / "prometheus.yml").read_text(encoding="utf-8"))["datasources"]
    shown = json.loads(monitoring.DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert {panel["datasource"]["uid"] for panel in shown if "datasource" in panel} <= {each["uid"] for each in sources}


def test_who_watches_knows_where_the_others_are() -> None:
    told = "".join(file.read_text(encoding="utf-8") for file in monitoring.FOLDER.rglob("prometheus.yml"))
    addresses = set(re.findall(r"(?:http://|\")([a-z-]+):(\d+)", told))
    assert addresses == {
        ("airflow-supervisor", str(product.Settings().metrics_port)),
        ("alertmanager", "9093"),
        ("localhost", "9090"),
        ("portal", str(product.Settings().portal_port)),
        ("prometheus", "9090"),
    }
    assert {name for name, _ in addresses} - {"localhost"} <= SERVICES.keys()
    assert variables("airflow-supervisor")["ACTIVITY_METRICS_ADDRESS"] == "0.0.0.0"  # noqa: S104 - within Compose


def test_kafka_is_told_what_the_tests_broker_is(settings: product.Settings, tmp_path: Path) -> None:
    text = node.configure(settings.model_copy(update={"broker_dir": tmp_path})).read_text(encoding="utf-8")
    local = dict(line.split("=", 1) for line in text.splitlines())
    told = {name.removeprefix("KAFKA_").replace("_", ".").lower(): value for name, value in variables("kafka").items()}
    of_its_place = {"listeners", "advertised.listeners", "controller.quorum.voters", "log.dirs"}  # and who signs in
    of_its_size = {name for name in local if name.endswith("num.partitions")} | {"group.initial.rebalance.delay.ms"}
    wanted = {name: value for name, value in local.items() if name not in of_its_place | of_its_size}
    assert wanted.items() <= told.items()
    assert of_its_place <= told.keys()


@pytest.mark.parametrize("option", ["TASK_INSTANCE_HEARTBEAT_TIMEOUT", "ON_KILL_TIMEOUT"])
def test_airflow_waits_as_long_as_the_local_one(option: str, settings: product.Settings) -> None:
    local = local_airflow.environment(settings, {local_airflow.PEOPLE: "", local_airflow.WATCHER: ""})
    (name,) = [name for name in local if name.endswith(option)]
    assert variables("airflow-supervisor")[name] == local[name]


def test_what_a_driver_needs_to_go_on_outlives_its_container() -> None:
    places = [volume.partition(":")[2] for volume in SERVICES["airflow-supervisor"]["volumes"]]
    run_dir = Path(variables("airflow-supervisor")["ACTIVITY_RUN_DIR"])
    assert any(run_dir.is_relative_to(place) for place in places)
    volumes = {volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert {volume for volume in volumes if not volume.startswith("./")} == set(COMPOSE["volumes"])
