"""Whether executors on other machines see the lake that the driver sees.

Executors write the files of a large batch, and the driver commits their names. Where each has a folder of its own under
the lake's name (a local disk, a mount that is missing), the table would name files that nobody can read. So a driver
asks every executor at its start, and looks for the files that they wrote before it commits them: an executor may have
come later.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.engine.observability import log
from customer_activity.errors import EnvironmentFault, SettingsError
from customer_activity.lake import jvm
from customer_activity.lake.datafiles import DataFile
from customer_activity.settings import PACKAGE, Settings
from customer_activity.storage.filesystem import filesystem, read_whole, write_whole

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "_reach"
EXECUTOR_SECONDS = 30.0  # until one has come; without any the driver does what is small by itself
HOLD_SECONDS = 0.2  # of a task: no executor takes another one's
ROUNDS = 5  # of questions until every executor has answered
ANSWER = pa.schema([("executor", pa.string()), ("host", pa.string()), ("sees", pa.bool_())])
REMEDY = "have the lake where all of them reach it: in a bucket, or in a folder that every machine has at this path"


def check(spark: SparkSession, settings: Settings) -> None:
    """Make sure that every executor elsewhere sees the lake, and has the pipeline's code.

    Raises:
        SettingsError: one sees another folder, or may not read this one.
        EnvironmentFault: one cannot run the code.
    """
    if settings.spark_master.startswith("local"):
        return
    deadline = time.monotonic() + EXECUTOR_SECONDS
    while not jvm.executors(spark):
        if time.monotonic() > deadline:
            log.warning("%s has given no executor yet: large batches wait for one", settings.spark_master)
            return
        time.sleep(HOLD_SECONDS)
    name = uuid4().hex
    files, folder = filesystem(f"{settings.lake}/{FOLDER}")
    files.create_dir(folder)
    write_whole(f"{settings.lake}/{FOLDER}/{name}", name.encode())
    try:
        hosts = _asked(spark, settings.lake, name)
    finally:
        files.delete_file(f"{folder}/{name}")
    if hosts:
        raise SettingsError(
            f"the executors on {', '.join(hosts)} do not see the lake {settings.lake} as the driver does",
            remedy=REMEDY,
        )


def _asked(spark: SparkSession, lake: str, name: str) -> list[str]:
    """Return the hosts whose executors do not see a marker."""
    from pyspark.errors import PythonException  # noqa: PLC0415 - whoever looks at the topology needs no Spark

    answered: set[str] = set()
    blind: set[str] = set()
    for _ in range(ROUNDS):
        tasks = max(spark.sparkContext.defaultParallelism, jvm.executors(spark))
        try:
            answers = (
                spark.range(0, tasks, 1, tasks)
                .mapInArrow(partial(_look, lake, name), "executor string, host string, sees boolean")
                .toArrow()
            )
        except PythonException as error:
            if f"No module named '{__name__.partition('.')[0]}" not in str(error):
                raise
            raise EnvironmentFault(
                f"executors do not find the pipeline's code in {PACKAGE.parent}, or that of another release",
                remedy="install this release on every machine that runs executors, or run the driver's image there",
            ) from None
        for answer in answers.to_pylist():
            answered.add(answer["executor"])
            if not answer["sees"]:
                blind.add(answer["host"])
        if len(answered) >= jvm.executors(spark):
            break
    return sorted(blind)


def _look(lake: str, name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Answer in an executor; its Python workers have one parent."""
    for _ in batches:
        pass
    try:
        sees = read_whole(f"{lake}/{FOLDER}/{name}") == name.encode()
    except OSError:  # not let in, or nobody there
        sees = False
    time.sleep(HOLD_SECONDS)
    host = socket.gethostname()
    yield pa.RecordBatch.from_pylist([{"executor": f"{host} {os.getppid()}", "host": host, "sees": sees}], ANSWER)


def require_here(spark: SparkSession, lake: str, written: Mapping[Table, Sequence[DataFile]]) -> None:
    """Make sure that the driver sees what executors elsewhere have written, whole.

    Raises:
        SettingsError: it does not; nothing was committed.
    """
    if str(spark.sparkContext.master).startswith("local"):
        return
    for table, of_table in written.items():
        files, folder = filesystem(table_path(lake, table))
        found = files.get_file_info([f"{folder}/{file.path}" for file in of_table])
        for file, here in zip(of_table, found, strict=True):
            if here.type != fs.FileType.File or here.size != file.size:
                raise SettingsError(
                    f"{table.label}: an executor has written {file.path}, and the driver does not see it in {lake}",
                    remedy=REMEDY,
                )
