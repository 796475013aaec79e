"""`spark-submit` of jobs/run.py, as infra/spark/spark-defaults.conf says it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from customer_activity.settings import PROJECT, Settings
from support.broker import assert_verified, send, view
from support.records import profile, purchase


@pytest.mark.nightly
def test_spark_submit_drains_a_local_lake(settings: Settings) -> None:
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    # As if the environment was activated: Spark's scripts ask the first Python of the PATH.
    environment = Path(sys.executable).parent
    submit = [str(environment / "spark-submit"), "--properties-file", "infra/spark/spark-defaults.conf"]
    done = subprocess.run(
        [*submit, "jobs/run.py", "stream", "--available-now"],
        cwd=PROJECT,
        env={**os.environ, **settings.environment(), "PATH": f"{environment}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert [row and row["purchaseCount"] for _, row in view(settings)] == [1]
    assert_verified(settings)
