"""Executors elsewhere: they do their share of a large batch, and who does not see the lake is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from customer_activity.catalog import Table
from customer_activity.errors import EXIT_TERMINAL
from customer_activity.lake import microbatch
from customer_activity.settings import PACKAGE, Settings
from support import cluster
from support.broker import assert_verified, rows, send
from support.records import profile, purchase

MANY = microbatch.SMALL_BATCH_ROWS + 1_000  # a batch that executors land


def drained(settings: Settings, address: str) -> subprocess.CompletedProcess[str]:
    """Run the streams in a driver of its own, on a cluster, until they have read all."""
    here = settings.model_copy(update={"spark_master": address})
    return subprocess.run(
        [sys.executable, "-m", "customer_activity", "stream", "--available-now"],
        env={**cluster.environment(), **here.environment()},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_executors_elsewhere_land_a_large_batch(settings: Settings, tmp_path: Path) -> None:
    send(settings, profile("C-1"), *(purchase(f"P-{number}", "C-1") for number in range(MANY)))
    with cluster.running(tmp_path) as found:
        done = drained(settings, found.address)
        assert done.returncode == 0, done.stderr[-2_000:]
    assert list((tmp_path / "work").rglob("stderr"))  # an executor was there, and nobody else runs Spark's tasks
    assert len(rows(settings, Table.PURCHASE_EVENTS)) == MANY
    assert_verified(settings)


def test_executors_that_do_not_see_the_lake_are_refused_at_start(settings: Settings, tmp_path: Path) -> None:
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    Path(settings.lake).mkdir(parents=True, exist_ok=True)
    with cluster.running(tmp_path, hidden=[Path(settings.lake)]) as found:
        done = drained(settings, found.address)
    assert done.returncode == EXIT_TERMINAL, done.stderr[-2_000:]
    assert re.search(r"the executors on \S+ do not see the lake .*\n.*in a bucket, or", done.stderr), done.stderr[
        -2_000:
    ]
    assert "Traceback" not in done.stderr
    assert not list(Path(settings.lake).glob("_reach/*"))


@pytest.mark.nightly
def test_executors_without_the_code_are_refused_at_start(settings: Settings, tmp_path: Path) -> None:
    with cluster.running(tmp_path, hidden=[PACKAGE.parent]) as found:
        done = drained(settings, found.address)
    assert done.returncode == EXIT_TERMINAL, done.stderr[-2_000:]
    assert "executors cannot run the pipeline's code" in done.stderr
    assert "Traceback" not in done.stderr
