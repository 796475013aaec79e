"""What Spark is told for executors on other machines: the release, its Python, a cluster's own, and no key."""

from __future__ import annotations

import os
import socket
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from customer_activity.engine import clusters, runtime, session
from customer_activity.errors import EnvironmentFault, SettingsError
from customer_activity.settings import PACKAGE, Settings
from support import executors_python

STANDALONE, YARN, KUBERNETES = "spark://master:7077", "yarn", "k8s://https://cluster:6443"
IMAGE = "spark.kubernetes.container.image registry/activity:1"
TASKS = (
    "storage.marker",
    "streams.bronze.landing",
    "streams.silver.tasks",
    "streams.silver.profile_tasks",
    "streams.payments.tasks",
)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the release once: all of it is compiled."""
    return clusters.release(tmp_path_factory.mktemp("released"))


@pytest.fixture
def deployed(settings: Settings, released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings of a deployment with a jar of each kind, and an environment that is put back."""
    made = settings.run_dir / "release"
    made.mkdir(parents=True)
    (made / released.name).hardlink_to(released)
    for variable in ("PYSPARK_PYTHON", "SPARK_HOME", clusters.SUBMIT_ARGUMENTS):
        monkeypatch.setenv(variable, "as it was")
    for variable in (*clusters.KEYS, clusters.SUBMITTED, "SPARK_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.setattr(clusters, "POD_ACCOUNT", tmp_path / "account")
    for folder in ("spark", "own", "s3"):
        (tmp_path / "jars" / folder).mkdir(parents=True)
        (tmp_path / "jars" / folder / "a.jar").touch()
    return settings.model_copy(update={"jars_dir": tmp_path / "jars"})


def told(deployed: Settings, master: str, *lines: str, **more: object) -> dict[str, str]:
    """Return what Spark is told by a master and an operator's properties."""
    file = deployed.run_dir.parent / "spark.conf"
    file.write_text("\n".join(lines), encoding="utf-8")
    return session._options(deployed.model_copy(update={"spark_master": master, "spark_properties_file": file, **more}))


@pytest.mark.parametrize("master", [STANDALONE, YARN, KUBERNETES])
def test_executors_are_sent_the_release(deployed: Settings, master: str) -> None:
    conf = told(deployed, master, IMAGE)
    assert conf["spark.submit.deployMode"] == "client"
    assert [Path(jar).parent.name for jar in conf["spark.jars"].split(",")] == ["spark", "own"]
    assert "spark.executorEnv.PYTHONPATH" not in conf
    with zipfile.ZipFile(conf["spark.submit.pyFiles"]) as release:
        sent = release.read("customer_activity/streams/gold/tasks.py")
    assert sent == (PACKAGE / "streams" / "gold" / "tasks.py").read_bytes()


@pytest.mark.parametrize("master", [STANDALONE, YARN, KUBERNETES])
def test_executors_that_have_the_release_find_it_at_the_drivers_paths(deployed: Settings, master: str) -> None:
    conf = told(deployed, master, IMAGE, ship_release=False)
    assert conf["spark.executorEnv.PYTHONPATH"] == str(PACKAGE.parent)
    assert all(jar.startswith("local:///") for jar in conf["spark.jars"].split(","))
    assert "spark.submit.pyFiles" not in conf


def test_a_driver_on_one_machine_sends_nothing(deployed: Settings) -> None:
    conf = told(deployed, "local[*]")
    assert conf["spark.executorEnv.PYTHONPATH"] == str(PACKAGE.parent)
    assert not {"spark.submit.pyFiles", "spark.submit.deployMode", "spark.jars"} & set(conf)


def test_the_release_has_one_name_for_one_content(deployed: Settings, tmp_path: Path) -> None:
    first = clusters.release(tmp_path / "one")
    assert clusters.release(tmp_path / "two").name == first.name
    assert list(first.parent.iterdir()) == [first]


def test_a_driver_that_makes_the_release_twice_at_once_has_one(tmp_path: Path) -> None:
    """Java is started beside the imports, and the session after both."""
    together = threading.Barrier(3)

    def make(_: int) -> Path:
        together.wait()
        return clusters.release(tmp_path)

    with ThreadPoolExecutor(3) as threads:
        (made,) = set(threads.map(make, range(3)))
    assert list(made.parent.iterdir()) == [made]
    assert zipfile.ZipFile(made).testzip() is None


def test_the_release_alone_is_enough_for_executors(tmp_path: Path) -> None:
    """With their libraries, in a Python that knows neither pyspark nor this source tree."""
    python = executors_python.made(tmp_path)
    more = (
        "streams.gold.tasks",
        "streams.routing.choosing",
        "streams.enrichment.tasks",
        "streams.alerts.tasks",
        "streams.bronze.shares",
    )
    imports = "; ".join(f"import customer_activity.{module}" for module in (*TASKS, *more))
    tells = "print(customer_activity.__file__); print(customer_activity.engine.runtime.release())"
    shown = executors_python.run(
        python, clusters.release(tmp_path), f"import customer_activity.engine.runtime; {tells}; {imports}"
    )
    place, release = shown.split()
    assert place.startswith(str(tmp_path))
    assert place.endswith("__init__.pyc")  # compiled once, by the driver
    assert release == runtime.release()  # and compared with the folder that the driver has


@pytest.mark.parametrize(
    ("master", "given", "expected"),
    [
        pytest.param("yarn", "./environment/bin/python", "./environment/bin/python", id="in an archive"),
        pytest.param("yarn", None, "as it was", id="whoever started us says"),
        pytest.param("local[*]", "./environment/bin/python", "as it was", id="no executors elsewhere"),
    ],
)
def test_executors_have_a_python_of_their_own(
    deployed: Settings, master: str, given: str | None, expected: str
) -> None:
    told(deployed, master, executor_python=given)
    assert os.environ["PYSPARK_PYTHON"] == expected


def test_the_operators_properties_go_by_their_files_name(deployed: Settings) -> None:
    conf = told(deployed, YARN, "# ours", "spark.authenticate.secret = word", "spark.executor.instances 4")
    assert not {"spark.authenticate.secret", "spark.executor.instances"} & set(conf)
    said = os.environ[clusters.SUBMIT_ARGUMENTS]
    assert said == f"--properties-file {deployed.run_dir.parent}/spark.conf --load-spark-defaults pyspark-shell"


def test_where_spark_submit_started_us_they_are_given_to_it(
    deployed: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(clusters.SUBMITTED, "4711")
    assert told(deployed, YARN, "spark.executor.instances 4")["spark.executor.instances"] == "4"
    assert os.environ[clusters.SUBMIT_ARGUMENTS] == "as it was"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        pytest.param("spark.sql.shuffle.partitions 200", "the pipeline's own", id="what results depend on"),
        pytest.param("spark.master yarn", "use ACTIVITY_SPARK_MASTER", id="a setting's"),
        pytest.param("spark.jars other.jar", "use ACTIVITY_SHIP_RELEASE", id="the release's"),
        pytest.param("spark.submit.deployMode cluster", "the pipeline's own", id="a driver that nobody watches"),
        pytest.param("executor.memory 2g", "line 1 is not name=value", id="none of Spark's"),
        pytest.param("spark.executorEnv.AWS_SECRET_ACCESS_KEY word", "no place for a key", id="a key for executors"),
        pytest.param("spark.hadoop.fs.s3a.secret.key=word", "no place for a key", id="a key for Hadoop"),
        pytest.param("spark.hadoop.fs.s3a.bucket.lakes.access.key=word", "no place for a key", id="of a bucket"),
        pytest.param("spark.kubernetes.driverEnv.AWS_SESSION_TOKEN=word", "no place for a key", id="a token"),
    ],
)
def test_properties_that_are_not_the_operators_to_set_are_refused(deployed: Settings, line: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        told(deployed, YARN, line)
    assert "word" not in str(refused.value)


@pytest.mark.parametrize("setting", ["retry.limit", "aws.credentials.provider", "endpoint.region"])
def test_what_hadoop_is_told_of_the_lakes_bucket_is_the_pipelines(deployed: Settings, setting: str) -> None:
    """Hadoop takes it before what it is told of all buckets: a commit that is repeated for minutes comes too late."""
    lake = {"lake": "s3a://of.lakes/ours"}
    conf = told(deployed, STANDALONE, f"spark.hadoop.fs.s3a.bucket.jars.{setting} 20", **lake)
    assert conf[f"spark.hadoop.fs.s3a.bucket.of.lakes.{setting}"] == conf[f"spark.hadoop.fs.s3a.{setting}"]
    with pytest.raises(SettingsError, match="the pipeline's own"):
        told(deployed, STANDALONE, f"spark.hadoop.fs.s3a.bucket.of.lakes.{setting} 20", **lake)


def sparks_own(deployed: Settings, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Write Spark's own file of properties."""
    folder = deployed.run_dir.parent / "conf"
    folder.mkdir(exist_ok=True)
    (folder / "spark-defaults.conf").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))


def test_a_key_in_sparks_own_file_is_refused_where_executors_are_elsewhere(
    deployed: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparks_own(deployed, monkeypatch, "other.line", "spark.hadoop.fs.s3a.secret.key word")
    with pytest.raises(SettingsError, match=r"spark-defaults\.conf: .*\.secret\.key: .*no place for a key") as refused:
        told(deployed, STANDALONE)
    assert "word" not in str(refused.value)
    told(deployed, "local[*]")


def test_sparks_own_file_may_say_what_a_pod_would(deployed: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark takes what the driver tells it before what is in this file."""
    clusters.POD_ACCOUNT.mkdir()
    (clusters.POD_ACCOUNT / "namespace").write_text("activity", encoding="utf-8")
    sparks_own(deployed, monkeypatch, IMAGE, "spark.kubernetes.namespace = executors")
    conf = told(deployed, KUBERNETES)
    assert "spark.kubernetes.namespace" not in conf
    assert "spark.kubernetes.driver.pod.name" in conf
    sparks_own(deployed, monkeypatch)
    with pytest.raises(SettingsError, match=r"spark\.kubernetes\.container\.image"):
        told(deployed, KUBERNETES)


@pytest.mark.parametrize("master", [STANDALONE, YARN, KUBERNETES])
def test_executors_compile_late_unless_told_otherwise(
    deployed: Settings, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    name, theirs = "spark.executor.defaultJavaOptions", "-XX:+UseZGC"
    assert name not in told(deployed, "local[*]")
    assert clusters.OPTIMISE_LATER in told(deployed, master, IMAGE)[name]
    assert told(deployed, master, IMAGE, f"{name} {theirs}").get(name, theirs) == theirs
    sparks_own(deployed, monkeypatch, IMAGE, f"{name} {theirs}")
    assert name not in told(deployed, master)


@pytest.mark.parametrize("master", [STANDALONE, YARN, KUBERNETES])
def test_executors_may_fail_for_as_long_as_the_driver_runs(
    deployed: Settings, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    """On YARN and Kubernetes Spark ends the application after a few of all its life, unless it is told otherwise."""
    name = "spark.executor.maxNumFailures"
    assert int(told(deployed, master, IMAGE)[name]) > 10**9
    for theirs in (name, *clusters.FORMER_FAILURES):
        assert name not in told(deployed, master, IMAGE, f"{theirs} 7")
        sparks_own(deployed, monkeypatch, IMAGE, f"{theirs} 7")
        assert name not in told(deployed, master)
        sparks_own(deployed, monkeypatch)


@pytest.mark.parametrize(
    ("jars", "words"),
    [
        pytest.param(None, "and there is no Spark", id="a folder that is gone"),
        pytest.param([], None, id="nothing that tells its release"),
        pytest.param([f"spark-core_2.13-{version('pyspark')}.jar"], None, id="pyspark's release"),
        pytest.param(["spark-core_2.12-3.5.1.jar"], "which has spark-core_2.12-3.5.1, and not Spark 4", id="another"),
    ],
)
def test_a_machines_own_spark_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jars: list[str] | None, words: str | None
) -> None:
    """Spark-submit of another release knows other options, and pyspark starts it all the same."""
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    if jars is not None:
        for file in ("bin/spark-submit", *(f"jars/{jar}" for jar in jars)):
            (tmp_path / "spark" / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "spark" / file).touch()
    if words is None:
        clusters.require_own_spark()
    else:
        with pytest.raises(EnvironmentFault, match=f"SPARK_HOME is {tmp_path}/spark, {words}.*\n.*unset it"):
            clusters.require_own_spark()


def test_keys_that_are_named_are_taken(deployed: Settings) -> None:
    told(deployed, KUBERNETES, IMAGE, "spark.kubernetes.executor.secretKeyRef.AWS_SECRET_ACCESS_KEY lake-keys:secret")


@pytest.mark.parametrize("key", clusters.KEYS)
def test_yarn_is_not_given_keys_from_the_environment(
    deployed: Settings, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """SparkHadoopUtil reads them, and YARN's client writes what it has into the application's files."""
    monkeypatch.setenv(key, "word")
    with pytest.raises(SettingsError, match=f"{key} is set, .*\\n.*a role") as refused:
        told(deployed, YARN)
    assert "word" not in str(refused.value)
    told(deployed, STANDALONE)


def test_yarn_has_to_be_found(deployed: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR")
    with pytest.raises(SettingsError, match="HADOOP_CONF_DIR"):
        told(deployed, YARN)


def test_kubernetes_needs_an_image_and_gets_no_configuration_folder(deployed: Settings) -> None:
    with pytest.raises(SettingsError, match=r"spark\.kubernetes\.container\.image"):
        told(deployed, KUBERNETES)
    assert told(deployed, KUBERNETES, IMAGE)["spark.kubernetes.executor.disableConfigMap"] == "true"


def test_executors_belong_to_the_drivers_pod(deployed: Settings) -> None:
    outside = told(deployed, KUBERNETES, IMAGE)
    clusters.POD_ACCOUNT.mkdir()
    (clusters.POD_ACCOUNT / "namespace").write_text("activity\n", encoding="utf-8")
    inside = told(deployed, KUBERNETES, IMAGE)
    pod = {"spark.kubernetes.namespace": "activity", "spark.kubernetes.driver.pod.name": socket.gethostname()}
    assert {name: value for name, value in inside.items() if name not in outside} == pod
    chosen = told(deployed, KUBERNETES, IMAGE, "spark.kubernetes.namespace executors")
    assert "spark.kubernetes.namespace" not in chosen
