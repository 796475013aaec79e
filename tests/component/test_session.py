"""What a session is started with, by where its executors are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from customer_activity import settings
from customer_activity.engine import session
from customer_activity.errors import EnvironmentFault, SettingsError, TransientError
from customer_activity.lake import jvm
from customer_activity.settings import Settings

ADDRESS = ("spark.driver.host", "spark.driver.bindAddress")


@pytest.fixture
def set_up(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings of a deployment with a jar of each kind; what a start puts into the environment is taken out."""
    for variable in ("PYSPARK_PYTHON", "SPARK_HOME"):
        monkeypatch.setenv(variable, "as it was")
    monkeypatch.delenv("SPARK_HOME")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    for jar in ("spark/delta.jar", "own/ours.jar"):
        (tmp_path / "jars" / jar).parent.mkdir(parents=True)
        (tmp_path / "jars" / jar).touch()
    return settings.model_copy(update={"jars_dir": tmp_path / "jars"})


@pytest.mark.parametrize(
    ("master", "address", "sends_jars"),
    [
        pytest.param("local[*]", "127.0.0.1", False, id="its own threads: nobody else"),
        pytest.param("local[2]", "127.0.0.1", False, id="so many of its own threads"),
        pytest.param("spark://spark-master:7077", None, True, id="workers elsewhere: by its machine's name"),
        pytest.param("yarn", None, True, id="a cluster's machines"),
    ],
)
def test_executors_elsewhere_can_reach_the_driver_and_get_its_jars(
    master: str, address: str | None, sends_jars: bool, set_up: Settings
) -> None:
    options = session._options(set_up.model_copy(update={"spark_master": master}))
    assert [options.get(name) for name in ADDRESS] == [address, address]
    own = options["spark.driver.extraClassPath"].split(":")
    assert [Path(jar).name for jar in own] == ["delta.jar", "ours.jar"]
    sent = options.get("spark.jars", "").split(",")
    assert [Path(jar).name for jar in sent] == (["delta.jar", "ours.jar"] if sends_jars else [""])


@pytest.mark.parametrize(
    "master",
    [
        *("", "elsewhere", "master:7077", "http://master:7077", "spark://", "spark://master", "yarn-cluster"),
        *("k8s://", "k8s://http://master:6443", "k8s://master:port", "local[many]"),
    ],
)
def test_a_master_that_spark_does_not_know_is_refused_before_java_is_started(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTIVITY_SPARK_MASTER", master)
    with pytest.raises(SettingsError, match=r"ACTIVITY_SPARK_MASTER: .* yarn or k8s://https://HOST:PORT"):
        settings.load()


@pytest.mark.parametrize(
    "master",
    [
        *("local", "local[*]", "local[2]", "local[*,3]", "spark://a:7077", "spark://a-1.b:7077,c:7078", "yarn"),
        *("k8s://https://cluster.example", "k8s://https://10.0.0.1:6443", "k8s://https://[::1]:6443"),
        "k8s://cluster.example:6443",  # Spark takes it for https
    ],
)
def test_a_master_that_spark_knows_is_taken(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIVITY_SPARK_MASTER", master)
    assert settings.load().spark_master == master


@pytest.mark.parametrize(("master", "is_naked"), [("local[*]", True), ("spark://master:7077", True), ("yarn", False)])
def test_yarn_is_given_a_file_system_that_tells_its_scheme(master: str, is_naked: bool, set_up: Settings) -> None:
    options = session._options(set_up.model_copy(update={"spark_master": master}))
    assert ("spark.hadoop.fs.file.impl" in options) == is_naked


class Started:
    """A session that is up, with Hadoop's settings."""

    def __init__(self, **hadoop: str) -> None:
        """Have these settings."""
        self.hadoop = {name.replace("_", "."): value for name, value in hadoop.items()}
        self.is_stopped = False

    def get(self, name: str) -> str:
        return self.hadoop[name]

    def unset(self, name: str) -> None:
        self.hadoop.pop(name, None)

    def stop(self) -> None:
        self.is_stopped = True


@pytest.mark.parametrize(
    ("lake", "default", "is_refused"),
    [
        pytest.param("/mnt/lake", "hdfs://names:8020", True, id="a folder that Spark would look for in HDFS"),
        pytest.param("/mnt/lake", "file:///", False, id="a folder, and Spark looks on the disk"),
        pytest.param("s3a://lakes/ours", "hdfs://names:8020", False, id="a bucket"),
    ],
)
def test_a_lake_in_a_folder_is_where_spark_looks_for_folders(
    lake: str, default: str, is_refused: bool, set_up: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    up = Started(fs_defaultFS=default)
    monkeypatch.setattr(session, "_options", lambda _: {})
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: up)
    monkeypatch.setattr(jvm, "hadoop_settings", lambda _: up)
    here = set_up.model_copy(update={"lake": lake, "spark_master": "yarn"})
    if is_refused:
        with pytest.raises(SettingsError, match=r"/mnt/lake .* hdfs://names:8020.*\n.*a bucket"):
            session.start(here)
    else:
        session.start(here)
    assert up.is_stopped == is_refused


@pytest.mark.parametrize(
    ("master", "raised"),
    [
        pytest.param("spark://spark-master:7077", TransientError, id="a master elsewhere that does not answer"),
        pytest.param("local[*]", EnvironmentFault, id="nobody else to wait for"),
    ],
)
def test_a_master_that_does_not_answer_may_do_so_later(
    master: str, raised: type[Exception], set_up: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Said:
        """An exception in Java."""

        def getMessage(self) -> str:  # noqa: N802 - Java's name
            return "All masters are unresponsive\nand more lines"

    class Refused(Py4JJavaError):  # type: ignore[misc]
        def __init__(self) -> None:
            """Carry nothing else of a JVM."""
            self.java_exception = Said()

        def __str__(self) -> str:
            return "not asked for"

    def refuse(_: SparkSession.Builder) -> SparkSession:
        raise Refused

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    with pytest.raises(raised, match=r"Spark does not start.*: All masters are unresponsive\n"):
        session.start(set_up.model_copy(update={"spark_master": master}))


@pytest.mark.parametrize(
    "name",
    ["sasl.jaas.config", "ssl.key.password", "ssl.keystore.password", "ssl.truststore.password", "ssl.keystore.key"],
)
def test_a_secret_of_kafkas_is_taken_out_of_what_spark_shows(name: str, set_up: Settings) -> None:
    assert re.search(session._options(set_up)["spark.redaction.regex"], f"kafka.{name}")


@pytest.mark.parametrize(("chosen", "name"), [({}, "customer-activity"), ({"pipeline": "orders-eu"}, "orders-eu")])
def test_sparks_application_is_called_after_its_pipeline(
    chosen: dict[str, str], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Builder:
        def appName(self, name: str) -> Builder:  # noqa: N802 - Spark's
            named.append(name)
            return self

        def config(self, *_: str) -> Builder:
            return self

        def getOrCreate(self) -> object:  # noqa: N802
            raise SettingsError("started", remedy="")

    named: list[str] = []
    monkeypatch.setattr(session, "_options", lambda _: {})
    monkeypatch.setattr(SparkSession, "builder", Builder())
    with pytest.raises(SettingsError, match="started"):
        session.start(Settings(**chosen))  # type: ignore[arg-type]
    assert named == [name]


@pytest.mark.parametrize("start", [session.launch, session.start], ids=lambda start: start.__name__)
def test_a_spark_of_somebody_else_is_not_started(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, start: Callable[[Settings], object]
) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nowhere")
    monkeypatch.setattr(session, "_options", lambda _: {"spark.master": "local[1]"})
    monkeypatch.setattr(jvm, "launch", lambda _: None)
    with pytest.raises(EnvironmentFault, match="SPARK_HOME is /nowhere, and there is no Spark"):
        start(settings)
