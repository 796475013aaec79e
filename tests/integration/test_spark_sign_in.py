"""Compose's Spark cluster, with the settings that its script makes: who lacks the secret can have nothing run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from customer_activity.settings import Settings
from support import addresses
from support.images import PROJECT
from support.waiting import until

SPARK_CLASS = Path(sys.executable).with_name("spark-class")
MASTER, WORKER, CLIENT = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker", "Client"))
ADD_UP = """
from customer_activity import settings
from customer_activity.engine import session
spark = session.start(settings.load())
print("sum", spark.range(1000).selectExpr("sum(id)").collect()[0][0])
spark.stop()
"""


def environment(conf: Path) -> dict[str, str]:
    """Return an environment with Spark's settings from a folder, as Compose gives them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "ACTIVITY_", "AWS_"))}
    return {**kept, "SPARK_CONF_DIR": str(conf), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


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
def cluster(secret: Path, tmp_path: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Run a master and a worker; return the master's address and the worker."""
    address = f"spark://{addresses.free()}"
    port = address.rpartition(":")[2]
    lines = {
        "master": [MASTER, "--host", "127.0.0.1", "--port", port, "--webui-port", "0"],
        "worker": [WORKER, address, "--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"],
    }
    lines["worker"] += ["--work-dir", str(tmp_path / "work")]
    with ExitStack() as stack:
        started = []
        for name, words in lines.items():
            log = stack.enter_context((tmp_path / f"{name}.log").open("wb"))
            part = subprocess.Popen([SPARK_CLASS, *words], env=environment(secret), stdout=log, stderr=log)
            started.append(part)
            stack.callback(part.wait, 30)
            stack.callback(part.terminate)
        until(lambda: "Registering worker" in (tmp_path / "master.log").read_text(encoding="utf-8"), 90)
        yield address, psutil.Process(started[1].pid)


def test_a_driver_on_one_machine_starts_with_the_same_settings(secret: Path, tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path / "lake"), spark_master="local[1]", driver_memory="1g", kafka_config=None)
    known = {**environment(secret), **settings.environment()}
    driver = subprocess.run([sys.executable, "-c", ADD_UP], env=known, capture_output=True, text=True, check=False)
    assert "sum 499500" in driver.stdout, driver.stderr[-3000:]


def test_only_who_has_the_secret_can_have_something_run(
    cluster: tuple[str, psutil.Process], secret: Path, tmp_path: Path
) -> None:
    address, worker = cluster
    (tmp_path / "empty").mkdir()

    line = [str(SPARK_CLASS), CLIENT, "kill", address, "driver-1"]  # asks the master for a driver that there is none of
    stranger = subprocess.run(line, env=environment(tmp_path / "empty"), capture_output=True, text=True, check=False)
    assert stranger.returncode != 0
    assert "does not exist" not in stranger.stdout + stranger.stderr  # which is the answer to who is let in

    settings = Settings(lake=str(tmp_path / "lake"), spark_master=address, driver_memory="1g", kafka_config=None)
    known = {**environment(secret), **settings.environment()}
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
