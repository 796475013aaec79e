"""Compose's Spark cluster, with the settings that its script makes: who lacks the secret can have nothing run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from customer_activity.settings import Settings
from support import cluster
from support.cluster import Cluster
from support.images import PROJECT
from support.waiting import until

CLIENT = "org.apache.spark.deploy.Client"
ADD_UP = """
from customer_activity import settings
from customer_activity.engine import session
spark = session.start(settings.load())
print("sum", spark.range(1000).selectExpr("sum(id)").collect()[0][0])
spark.stop()
"""


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return the folder with spark-defaults.conf as infra/compose/secrets.sh makes it."""
    shutil.copy(PROJECT / "infra" / "compose" / "secrets.sh", tmp_path)
    subprocess.run([tmp_path / "secrets.sh"], check=True, capture_output=True)
    conf = tmp_path / "conf"
    conf.mkdir()
    shutil.copy(tmp_path / "secrets" / "spark_defaults", conf / "spark-defaults.conf")
    return conf


@pytest.fixture
def spark_cluster(secret: Path, tmp_path: Path) -> Iterator[Cluster]:
    with cluster.running(tmp_path, secret) as found:
        yield found


@pytest.mark.nightly
def test_a_driver_on_one_machine_starts_with_the_same_settings(secret: Path, tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path / "lake"), spark_master="local[1]", driver_memory="1g", kafka_config=None)
    known = {**cluster.environment(secret), **settings.environment()}
    driver = subprocess.run([sys.executable, "-c", ADD_UP], env=known, capture_output=True, text=True, check=False)
    assert "sum 499500" in driver.stdout, driver.stderr[-3000:]


def test_only_who_has_the_secret_can_have_something_run(spark_cluster: Cluster, secret: Path, tmp_path: Path) -> None:
    address, (worker,), _ = spark_cluster
    (tmp_path / "empty").mkdir()

    line = [
        str(cluster.SPARK_CLASS),
        CLIENT,
        "kill",
        address,
        "driver-1",
    ]  # asks the master for a driver that there is none of
    stranger = subprocess.run(
        line, env=cluster.environment(tmp_path / "empty"), capture_output=True, text=True, check=False
    )
    assert stranger.returncode != 0
    assert "does not exist" not in stranger.stdout + stranger.stderr  # which is the answer to who is let in

    settings = Settings(lake=str(tmp_path / "lake"), spark_master=address, driver_memory="1g", kafka_config=None)
    known = {**cluster.environment(secret), **settings.environment()}
    word = re.search(r"secret (\S+)", (secret / "spark-defaults.conf").read_text(encoding="utf-8"))[1]  # type: ignore[index]
    shown: set[str] = set()
    with subprocess.Popen(
        [sys.executable, "-c", ADD_UP], env=known, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as driver:

        def is_over() -> bool:
            for process in (*worker.children(recursive=True), *psutil.Process(driver.pid).children(recursive=True)):
                try:
                    shown.update(process.cmdline())
                except psutil.Error:  # it has ended meanwhile
                    continue
            return driver.poll() is not None

        until(is_over, 180)
        assert driver.stdout is not None
        printed = driver.stdout.read()
    assert "sum 499500" in printed, printed[-3000:]
    assert any("CoarseGrainedExecutorBackend" in argument for argument in shown)  # it was seen at work
    assert not [argument for argument in shown if word in argument]
    logs = [
        path
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix in (".log", "") and "conf" not in path.parts
    ]
    assert not [path for path in logs if "secrets" not in path.parts and word.encode() in path.read_bytes()]
    assert word not in printed
