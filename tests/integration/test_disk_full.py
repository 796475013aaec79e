"""A disk that is full stops a batch, not the pipeline: with space again it goes on, and everything is right."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from customer_activity.catalog import Table, table_path
from customer_activity.errors import EXIT_TRY_AGAIN, DiskFull
from customer_activity.lake import delta
from customer_activity.maintenance import on_demand
from customer_activity.settings import Settings
from support import cluster, cluster_work, tables
from support.broker import assert_verified, drain, send
from support.cluster_work import MANY, backlog, profiles
from support.records import profile, purchase
from support.waiting import until

DISK = "24m"
EXECUTORS_DISK = "256m"  # executors begin with copies of their jars
ROOM_LEFT = (0, 16_384)  # bytes: the disk fills up at the start of a drain, and within it


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Mount a file system of a few megabytes, or of as much as a test asks for."""
    disk, size = tmp_path / "disk", getattr(request, "param", DISK)
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a file system takes root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)  # noqa: S607
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)  # noqa: S607


def fill(disk: Path, room: int) -> Path:
    """Fill a disk up to so many bytes."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4_096)
    os.truncate(filler, max(0, filler.stat().st_size - room))
    return filler


def test_a_full_disk_is_freed_of_what_is_expired(settings: Settings, small_disk: Path) -> None:
    settings = settings.model_copy(update={"lake": str(small_disk / "lake")})
    delta.ensure_tables(settings.lake)
    for number in range(3):
        tables.append(settings.lake, Table.QUARANTINE, {"topic": f"t-{number}"})
    expired = Path(table_path(settings.lake, Table.QUARANTINE), "part-of-a-crashed-batch.parquet")
    expired.write_bytes(bytes(4 << 20))
    os.utime(expired, (0, 0))
    fill(small_disk, 0)
    done = {table.table: table for table in on_demand.at_rest(settings)}
    assert not expired.exists()
    assert done["bronze.quarantine"].removed_bytes == 4 << 20
    assert done["bronze.quarantine"].files_after == 1, "what was freed is there for what comes after it"


def test_a_full_disk_stops_the_batch_and_nothing_is_lost(
    spark: SparkSession, settings: Settings, small_disk: Path
) -> None:
    settings = settings.model_copy(update={"lake": str(small_disk / "lake")})
    send(settings, profile("C-1"), purchase("P-0"))
    drain(spark, settings)
    for number, room in enumerate(ROOM_LEFT, start=1):
        filler = fill(small_disk, room)
        send(settings, purchase(f"P-{number}"), profile("C-1", updated=1_000 + number, address=f"{number} Street"))
        with pytest.raises(DiskFull, match=f"no space left on the disk of {settings.lake}"):
            drain(spark, settings)
        filler.unlink()

        drain(spark, settings)
    assert_verified(settings)


@pytest.mark.nightly
@pytest.mark.parametrize("small_disk", [EXECUTORS_DISK], indirect=True)
def test_a_full_disk_of_executors_is_told(settings: Settings, small_disk: Path, tmp_path: Path) -> None:
    """Where they keep what they shuffle; the lake has space."""
    conf, log = tmp_path / "conf", tmp_path / "driver.log"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(f"spark.local.dir {small_disk}\n", encoding="utf-8")
    send(settings, *profiles(), *backlog(0, MANY))
    with cluster.running(tmp_path, conf, workers=2) as running:
        found = running._replace(conf=None)  # the driver's own are elsewhere
        with cluster_work.streams(settings, found, log, placement="executors") as driver:
            until(lambda: " bronze started" in log.read_text(encoding="utf-8"), 200, every=0.02)
            filler = fill(small_disk, 0)
            code = driver.wait(240)
        told = log.read_text(encoding="utf-8")
        assert code == EXIT_TRY_AGAIN, told[-2_000:]
        assert re.search(r"error: \w+: no space left on a disk of the executor on \S+\n", told), told[-4_000:]
        filler.unlink()
        cluster_work.drain(settings, found, log)
    assert_verified(settings)
