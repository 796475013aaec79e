"""Some weeks of purchases, many of them late, for windows that a broker feeds; and a driver that is killed in them."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from customer_activity import application, topology
from customer_activity.lake.failpoints import ORDER, REACHED
from customer_activity.settings import Settings
from support.records import Record, profile, purchase
from support.shell import environment

HOUR, DAYS = 3_600_000, 20
START = int(datetime(2026, 3, 20, tzinfo=UTC).timestamp() * 1000)


def world(seed: int) -> list[Record]:
    """Return purchases of some weeks, up to two days late, and a few profiles."""
    chance = random.Random(seed)
    times = [chance.randrange(DAYS * 24 * HOUR) for _ in range(300)]
    arriving = sorted(enumerate(times), key=lambda each: each[1] + chance.random() ** 8 * 48 * HOUR)
    return [
        *(profile(f"C-{number}") for number in range(3)),
        *(purchase(f"P-{seed}-{number}", f"C-{number % 5}", f"{number % 9}.25", START + at) for number, at in arriving),
    ]


def drain(spark: SparkSession, settings: Settings) -> None:
    application.host(spark, settings, topology.names(), threading.Event(), available_now=True)


def killed(settings: Settings, place: str, *, side_by_side: bool = False) -> None:
    """Run the streams as a process of its own until it comes to a place, where it ends as by kill -9.

    They run side by side as always, or one after the other as `--available-now` has it.
    """
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    Path(settings.run_dir, ORDER).write_text(place, encoding="utf-8")
    command = [sys.executable, "-m", "customer_activity", "stream", *([] if side_by_side else ["--available-now"])]
    ended = subprocess.run(
        command, env=environment(settings), start_new_session=True, capture_output=True, timeout=240, check=False
    )
    assert (ended.returncode, Path(settings.run_dir, REACHED).exists()) == (-signal.SIGKILL, True), ended.stderr[-2000:]
