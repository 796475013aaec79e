"""Somebody cleans up temporary files while executors run, as many machines do with /tmp: no data is lost by it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from customer_activity.errors import EXIT_TRY_AGAIN
from customer_activity.settings import Settings
from support import cluster
from support.broker import assert_verified, send
from support.cluster_work import MANY, backlog, drain, executor_of, profiles, streams
from support.waiting import until


@pytest.mark.nightly
def test_removed_temporary_files_of_executors_are_no_data_loss(settings: Settings, tmp_path: Path) -> None:
    send(settings, *profiles(), *backlog(0, MANY))
    log = tmp_path / "driver.log"
    with cluster.running(tmp_path, workers=2) as found:
        with streams(settings, found, log, placement="executors") as driver:
            until(lambda: " bronze started" in log.read_text(encoding="utf-8"), 200, every=0.02)
            for worker in found.workers:
                for shuffled in Path(executor_of(worker).environ()["SPARK_EXECUTOR_DIRS"]).glob("blockmgr-*"):
                    shutil.rmtree(shuffled)
            code = driver.wait(240)
        told = log.read_text(encoding="utf-8")
        assert code == EXIT_TRY_AGAIN, told[-2_000:]
        assert re.search(r"error: \w+: temporary files of Spark were removed from /tmp on \S+ while", told)
        drain(settings, found, log)
    assert_verified(settings)
