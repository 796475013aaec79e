"""YARN for real, on this machine: it is handed code, jars and Python, and its executors do the large batches right."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from customer_activity.catalog import Table
from customer_activity.lake import history, microbatch
from customer_activity.settings import PACKAGE, Settings
from support import cluster, executors_python, yarn
from support.broker import assert_verified, send
from support.records import PURCHASES, Record, profile, purchase, tombstone
from support.streams import Query

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]
MANY = microbatch.SMALL_BATCH_ROWS + 1_000


@pytest.fixture
def hadoop(settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """Run YARN; return the folder of its settings."""
    folder = tmp_path / "yarn"
    folder.mkdir()
    with yarn.running(folder, yarn.fetched(settings.jars_dir / "yarn")) as conf:
        yield conf


def drain(settings: Settings, hadoop: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the streams on YARN until they have read all; executors have a Python that does not know the package."""
    properties = folder / "spark.conf"
    properties.write_text(
        f"spark.archives {executors_python.packed(folder)}#environment\n"
        f"spark.yarn.stagingDir {folder}/staging\n"
        "spark.executor.instances 2\n"
        "spark.executor.memory 512m\n"
        "spark.yarn.am.memory 512m\n"
        "spark.driver.maxResultSize 1m\n",
        encoding="utf-8",
    )
    here = settings.model_copy(
        update={
            "spark_master": "yarn",
            "spark_properties_file": properties,
            "executor_python": "./environment/bin/python",
        }
    )
    environment = {**cluster.environment(), **here.environment(), "HADOOP_CONF_DIR": str(hadoop)}
    del environment["PYTHONPATH"]  # Spark hands it to executors, which shall have the code from the driver
    return subprocess.run(
        [sys.executable, "-m", "customer_activity", "stream", "--available-now"],
        cwd=PACKAGE.parent,  # where this module is looked for first
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_large_batches_are_yarns_executors_and_right(settings: Settings, hadoop: Path, tmp_path: Path) -> None:
    """A backlog with a hot key, repeats, poison and a tombstone."""
    ids = range(MANY)
    backlog = [purchase(f"P-{number}", "C-hot" if number % 3 == 0 else f"C-{number % 500}") for number in ids]
    profiles = [profile("C-hot"), *(profile(f"C-{number}") for number in range(400))]
    send(settings, *profiles, *backlog, tombstone("C-7"), Record(PURCHASES, b"C-1", b"?"), *backlog[:1_000])
    done = drain(settings, hadoop, tmp_path)
    assert done.returncode == os.EX_OK, done.stderr[-3_000:]
    for table, query in ((Table.PURCHASES, Query.SILVER), (Table.ACTIVITY_CHANGES, Query.GOLD)):
        assert history.latest_metadata(settings.lake, table, query)["placement"]["place"] == "executors"
    assert_verified(settings)
