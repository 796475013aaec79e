"""The driver's JVM is killed alone, as by a kernel that is out of memory: its Python process says so and ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from customer_activity.errors import EXIT_TRY_AGAIN
from customer_activity.settings import Settings
from support import cluster
from support.broker import assert_verified, send, view
from support.records import profile, purchase
from support.waiting import until


@pytest.mark.parametrize("when", ["at the start", "between batches", "while batches are at work"])
def test_a_killed_jvm_is_told_and_nothing_is_lost(settings: Settings, tmp_path: Path, when: str) -> None:
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    log = tmp_path / "driver.log"
    command = [sys.executable, "-m", "customer_activity", "stream"]
    environment = {**cluster.environment(), **settings.environment()}
    with log.open("wb") as said:
        driver = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
    try:
        if when == "at the start":
            until(lambda: "Spark is ready" in log.read_text(encoding="utf-8"), 120, every=0.01)
        else:
            until(lambda: len(view(settings)) == 1, 120)
        if when == "while batches are at work":
            send(settings, *(purchase(f"P-2-{number}", f"C-{number}") for number in range(20_000)))
        (java,) = (child for child in psutil.Process(driver.pid).children() if child.name() == "java")
        java.kill()
        assert driver.wait(60) == EXIT_TRY_AGAIN, log.read_text(encoding="utf-8")[-3_000:]
    finally:
        driver.kill()
        driver.wait()
    *_, error, _ = log.read_text(encoding="utf-8").splitlines()
    assert error == "error: the driver's JVM has ended by itself"
    again = subprocess.run([*command, "--available-now"], env=environment, check=False, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr[-2_000:]
    assert_verified(settings)
