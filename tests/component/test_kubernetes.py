"""infra/kubernetes: Kubernetes' own schemas take the manifests, what they name is there, and rights are few.

There is no cluster where the tests run: nothing here was applied to one.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from kubernetes_validate import ValidationError

from customer_activity import settings as product
from customer_activity.engine import clusters, session
from customer_activity.kafka import properties_file
from customer_activity.metrics import serving
from customer_activity.settings import PREFIX, Settings
from support import images
from support.images import PROJECT

FOLDER = PROJECT / "infra" / "kubernetes"
BASE, AIRFLOW = FOLDER / "base", FOLDER / "airflow"
OLDEST, NEWEST = "1.31", kubernetes_validate.latest_version()
IMAGES = {"customer-activity": "activity", "customer-activity-airflow": "airflow"}  # and their stages
MADE = {"customer-activity-airflow"}  # Secrets of somebody else's Airflow
SPARK_JARS = PROJECT / ".venv" / "lib"


def documents(file: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(file.read_text(encoding="utf-8")) if document]


def manifests() -> dict[str, dict[str, Any]]:
    """Return every manifest by file, kind and name: those of patches as they are once they are applied."""
    found = {}
    for file in sorted(FOLDER.glob("*/*.yaml")):
        for document in documents(file):
            if document["kind"] != "Kustomization" and "$patch" not in document:
                name = document["metadata"].get("name", "template")
                found[f"{file.parent.name}/{document['kind']}/{name}"] = document
    patch = found["airflow/StatefulSet/customer-activity-driver"]
    found["airflow/StatefulSet/customer-activity-driver"] = patched(
        found["base/StatefulSet/customer-activity-driver"], patch
    )
    return found


def patched(base: Any, patch: Any) -> Any:
    """Return a manifest with a patch, as Kustomize merges them: objects by key, and lists of containers by name.

    A key that the patch has as null is taken out.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        kept = [key for key in base | patch if patch.get(key, base.get(key)) is not None]
        return {key: patched(base.get(key), patch.get(key)) for key in kept}
    if isinstance(patch, list) and patch and isinstance(patch[0], dict) and "name" in patch[0]:
        by_name = {entry["name"]: entry for entry in patch}
        return [patched(entry, by_name.get(entry["name"])) for entry in base]
    return base if patch is None else patch


MANIFESTS = manifests()
KUSTOMIZATIONS = {folder: documents(folder / "kustomization.yaml")[0] for folder in (BASE, AIRFLOW)}
DRIVER = MANIFESTS["base/StatefulSet/customer-activity-driver"]


def pods(manifest: Any) -> list[dict[str, Any]]:
    """Return the specifications of pods within a manifest."""
    if isinstance(manifest, list):
        return [pod for entry in manifest for pod in pods(entry)]
    if not isinstance(manifest, dict):
        return []
    if "containers" in manifest:
        return [manifest]
    return [pod for value in manifest.values() for pod in pods(value)]


PODS = {name: pod for name, manifest in MANIFESTS.items() for pod in pods(manifest)}


def values(manifest: Any, key: str) -> list[Any]:
    """Return what a key holds, wherever it is in a manifest."""
    if isinstance(manifest, list):
        return [found for entry in manifest for found in values(entry, key)]
    if not isinstance(manifest, dict):
        return []
    below = [found for value in manifest.values() for found in values(value, key)]
    return [manifest[key], *below] if key in manifest else below


def spark_conf() -> dict[str, str]:
    return properties_file.read(BASE / "spark.conf", clusters.PROPERTIES, clusters.LINE)


def settings_of(file: Path) -> dict[str, str]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_takes_it(name: str, version: str) -> None:
    kubernetes_validate.validate(MANIFESTS[name], version, strict=True)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("spec", "replica"), 1, id="a field that it does not know"),
        pytest.param(("spec", "replicas"), "one", id="a value of another type"),
        pytest.param(("spec", "template", "spec", "containers"), None, id="nothing to run"),
    ],
)
def test_the_check_finds_mistakes(path: tuple[str, ...], value: object) -> None:
    wrong = copy.deepcopy(DRIVER)
    where = wrong
    for key in path[:-1]:
        where = where[key]
    where[path[-1]] = value
    with pytest.raises(ValidationError):
        kubernetes_validate.validate(wrong, NEWEST, strict=True)


def test_each_file_is_used() -> None:
    """But for the template of Secrets: what is applied again would empty them."""
    for folder, kustomization in KUSTOMIZATIONS.items():
        generated = kustomization["configMapGenerator"]
        named = [entry for maps in generated for key in ("envs", "files") for entry in maps.get(key, ())]
        named += [*kustomization["resources"], *(patch["path"] for patch in kustomization.get("patches", ()))]
        there = {file.name for file in folder.iterdir()} - {"kustomization.yaml", "secrets.yaml"}
        assert there | ({"../base"} if folder == AIRFLOW else set()) == set(named)


def test_it_is_for_any_namespace() -> None:
    assert values([*MANIFESTS.values(), *KUSTOMIZATIONS.values()], "namespace") == []


def test_the_settings_are_the_products(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As a driver in that pod reads them, with the file of Spark's properties that is mounted there."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)
    for name in ("PYSPARK_PYTHON", "SPARK_HOME", clusters.SUBMIT_ARGUMENTS):
        monkeypatch.setenv(name, "as it was")
    for name, value in settings_of(BASE / "settings.env").items():
        monkeypatch.setenv(name, value)
    for folder in ("spark", "own", "s3"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jar").touch()
    monkeypatch.setattr(clusters, "POD_ACCOUNT", tmp_path)
    (tmp_path / "namespace").write_text("team", encoding="utf-8")
    read = product.load()
    assert mounted(DRIVER, str(read.spark_properties_file)) == BASE / "spark.conf"
    here: Settings = read.model_copy(update={"spark_properties_file": BASE / "spark.conf", "jars_dir": tmp_path})
    conf = session._options(here)
    assert conf["spark.kubernetes.namespace"] == "team"
    assert conf["spark.jars"].startswith("local:///")  # the executors' image is the driver's
    assert mounted(DRIVER, spark_conf()["spark.kubernetes.executor.podTemplateFile"]) == BASE / "executor.yaml"


def mounted(manifest: dict[str, Any], path: str) -> Path | None:
    """Return which of our files a container sees at a path."""
    (pod,) = pods(manifest)
    folder, name = os.path.split(path)
    volume = next(mount["name"] for mount in pod["containers"][0]["volumeMounts"] if mount["mountPath"] == folder)
    held = next(of for of in pod["volumes"] if of["name"] == volume)["configMap"]["name"]
    generated = {maps["name"]: maps for maps in KUSTOMIZATIONS[BASE]["configMapGenerator"]}
    return BASE / name if name in generated[held]["files"] else None


def test_executors_find_the_driver() -> None:
    conf, service = spark_conf(), MANIFESTS["base/Service/customer-activity-driver"]
    name = DRIVER["metadata"]["name"]
    assert DRIVER["spec"]["serviceName"] == service["metadata"]["name"]
    assert conf["spark.driver.host"] == f"{name}-0.{service['metadata']['name']}"
    ports = {conf["spark.driver.port"], conf["spark.driver.blockManager.port"]}
    assert {str(port["port"]) for port in service["spec"]["ports"]} == ports
    labels = DRIVER["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == DRIVER["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]


def test_driver_and_executors_reach_one_another() -> None:
    ours, _ = MANIFESTS["base/NetworkPolicy/customer-activity"]["spec"]["ingress"]
    (allowed,) = values(ours, "matchLabels")
    for labels in (
        DRIVER["spec"]["template"]["metadata"]["labels"],
        MANIFESTS["base/Pod/template"]["metadata"]["labels"],
    ):
        assert allowed.items() <= labels.items()


def test_metrics_are_where_the_driver_serves_them() -> None:
    (pod,) = pods(DRIVER)
    driver = pod["containers"][0]
    assert settings_of(BASE / "settings.env")[f"{PREFIX}METRICS_ADDRESS"] == "0.0.0.0"  # noqa: S104 - from outside of the pod
    assert driver["ports"] == [{"name": "metrics", "containerPort": Settings().metrics_port}]
    assert driver["readinessProbe"]["httpGet"] == {"path": serving.READY, "port": "metrics"}
    _, prometheus = MANIFESTS["base/NetworkPolicy/customer-activity"]["spec"]["ingress"]
    assert prometheus["ports"] == [{"protocol": "TCP", "port": "metrics"}]


def test_with_airflow_a_probe_has_one_way_to_ask() -> None:
    """Kustomize merges a probe field by field, and Kubernetes takes one with a single handler."""
    (pod,) = pods(MANIFESTS["airflow/StatefulSet/customer-activity-driver"])
    assert pod["containers"][0]["readinessProbe"].keys() & {"exec", "httpGet", "tcpSocket", "grpc"} == {"exec"}


def test_there_is_one_driver_and_it_may_finish_a_batch() -> None:
    assert DRIVER["spec"]["replicas"] == 1
    assert DRIVER["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 60  # `driver stop`


def test_an_outage_of_airflows_api_ends_no_driver() -> None:
    """`healthy.sh` asks an API server that is elsewhere; a failed liveness probe would restart the driver's pod."""
    (pod,) = pods(MANIFESTS["airflow/StatefulSet/customer-activity-driver"])
    asked = {probe: pod["containers"][0].get(probe) for probe in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert [probe for probe, what in asked.items() if what is not None] == ["readinessProbe"]
    assert asked["readinessProbe"]["timeoutSeconds"] > 10  # what healthy.sh gives the API server


def test_driver_and_executors_have_one_image() -> None:
    given = {image["name"]: f"{image['newName']}:{image['newTag']}" for image in KUSTOMIZATIONS[BASE]["images"]}
    assert spark_conf()["spark.kubernetes.container.image"] == given["customer-activity"]


def test_accounts_have_the_rights_that_they_need_alone() -> None:
    (rule,) = MANIFESTS["base/Role/customer-activity-driver"]["rules"]
    assert rule["resources"] == ["pods"]
    assert "*" not in rule["verbs"]
    bound = MANIFESTS["base/RoleBinding/customer-activity-driver"]
    assert [subject["name"] for subject in bound["subjects"]] == [pods(DRIVER)[0]["serviceAccountName"]]
    executor = spark_conf()["spark.kubernetes.authenticate.executor.serviceAccountName"]
    assert MANIFESTS[f"base/ServiceAccount/{executor}"]["automountServiceAccountToken"] is False
    named = {pod["serviceAccountName"] for pod in PODS.values() if "serviceAccountName" in pod}
    assert all(f"base/ServiceAccount/{name}" in MANIFESTS for name in named)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_nobodys_root(name: str) -> None:
    pod = PODS[name]
    (user,) = re.findall(r"useradd --uid (\d+)", " ".join(images.stages()["base"].values("RUN")))
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == int(user)
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("name", PODS)
def test_a_service_puts_no_variables_into_a_pod(name: str) -> None:
    """Of one that is called activity-…, the settings would refuse them."""
    assert PODS[name]["enableServiceLinks"] is False


@pytest.mark.parametrize("name", PODS)
def test_an_image_has_what_its_pod_runs(name: str) -> None:
    for container in PODS[name]["containers"]:
        stage = IMAGES[container.get("image", "customer-activity")]
        for command in values(container, "command"):
            file = "infra/compose/bin/activity" if command[0] == "activity" else command[0]
            assert file in images.files(stage)
            assert os.access(PROJECT / file, os.X_OK)


def test_the_template_has_each_secret_and_no_value() -> None:
    template = {document["metadata"]["name"]: document["stringData"] for document in documents(BASE / "secrets.yaml")}
    assert not any(value for secret in template.values() for value in secret.values())
    conf = spark_conf()
    by_key = [value.split(":") for name, value in conf.items() if ".secretKeyRef." in name]
    assert all(key in template[secret] for secret, key in by_key)
    used = {secret for secret, _ in by_key}
    used |= {name.rpartition(".secrets.")[2] for name in conf if ".executor.secrets." in name}
    used |= set(values([*MANIFESTS.values()], "secretName"))
    used |= {reference["name"] for reference in values([*MANIFESTS.values()], "secretRef")}
    assert used - MADE == set(template)
    assert Path(conf["spark.authenticate.secret.file"]).name in template["customer-activity-spark"]
    path = settings_of(BASE / "settings.env")["ACTIVITY_KAFKA_CONFIG"]
    assert Path(path).name in template["customer-activity-kafka"]


def test_an_executor_is_what_spark_says_it_is(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    java.chmod(0o755)
    options = {f"SPARK_JAVA_OPT_{number}": f"-Dnumber={number} of them" for number in range(12)}
    told = {
        "SPARK_DRIVER_URL": "spark://scheduler@driver:7078",
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "2g",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_EXECUTOR_POD_NAME": "executor-3",
        "SPARK_RESOURCE_PROFILE_ID": "0",
    }
    spark = tmp_path / ".venv" / "lib" / "python3.11" / "site-packages" / "pyspark"
    spark.mkdir(parents=True)
    done = subprocess.run(
        [FOLDER / "bin" / "executor", "executor"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "CUSTOMER_ACTIVITY_HOME": str(tmp_path), **told, **options},
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout.splitlines()
    assert said[:12] == list(options.values())
    assert said[12] == "-Dspark.master=k8s://"  # else SecurityManager takes no secret from a file
    assert said[13:17] == ["-Xms2g", "-Xmx2g", "-cp", f"{tmp_path}/.jars/spark/*:{spark}/jars/*"]
    given = dict(zip(said[18::2], said[19::2], strict=True))
    assert given == {
        "--driver-url": "spark://scheduler@driver:7078",
        "--executor-id": "3",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "executor-3",
    }
    (jar,) = SPARK_JARS.glob("python3.*/site-packages/pyspark/jars/spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as classes:
        assert f"{said[17].replace('.', '/')}.class" in classes.namelist()
