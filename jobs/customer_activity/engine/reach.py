"""Whether executors on other machines see the lake that the driver sees, and would write the rows that it would.

Executors write the files of a large batch, and the driver commits their names. Where each has a folder of its own under
the lake's name (a local disk, a mount that is missing), the table would name files that nobody can read. So a driver
asks every executor at its start, and looks for the files that they wrote before it commits them: an executor may have
come later. Each also tells its runtime (`runtime.py`), which the tasks of one that comes later compare themselves. Then
they exchange data (`exchange.py`).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyarrow import fs

from customer_activity import unforeseen
from customer_activity.catalog import Table, table_path
from customer_activity.engine import exchange, runtime
from customer_activity.engine.executors import InputGone, shared_out, with_libraries
from customer_activity.engine.logs import log
from customer_activity.errors import ActivityError, EnvironmentFault, SettingsError, TransientError
from customer_activity.lake import jvm
from customer_activity.lake.datafiles import DataFile
from customer_activity.settings import PACKAGE, Settings
from customer_activity.storage import marker
from customer_activity.storage.filesystem import filesystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS = 60.0  # for executors to come and to answer; without any the driver does what is small by itself
# For executors to exchange data, which usually takes a second or two. Where one does not reach another, Spark tries
# four times to fetch, five seconds apart, before it does the work elsewhere.
EXCHANGE_SECONDS = 10.0
WATCH_SECONDS = 0.2
ROUNDS = 5  # of questions until every executor has answered
JOBS = "reach"
# Why a Python worker failed, or could not be started: no such interpreter (errno 2), or no permission to run it (13).
UNABLE = re.compile(r'No module named|PYTHON_VERSION_MISMATCH|Cannot run program "[^"\n]+".*?error[=:] ?(?:2|13)\b')
REMEDY = "have the lake where all of them reach it: in a bucket, or in a folder that every machine has at this path"
CONNECT = (
    "let executors resolve each other's names, and connect to the port that spark.blockManager.port names (by default "
    "any free one)"
)

Told = TypeVar("Told")


def check(
    spark: SparkSession,
    settings: Settings,
    zone: str | None,
    stopping: threading.Event,
    look_around: Callable[[], None],
) -> None:
    """Make sure that every executor elsewhere sees the lake, and has the pipeline's code and the driver's runtime.

    Then they exchange data as in a large batch; a warning says so if that fails or takes too long.

    Args:
        spark: the session, whose tasks are told the driver's runtime from here on.
        settings: which lake and which master.
        zone: the time zone that tasks need; None where they need none.
        stopping: ends the check when it is set.
        look_around: called while executors are waited for; what it raises ends the check.

    Raises:
        SettingsError: one sees another folder, or may not read this one or write to it, or has another release,
            other libraries or another time-zone database.
        EnvironmentFault: one cannot run the code.
        TransientError: Spark or storage failed meanwhile.
    """
    if not settings.is_on_cluster:
        return
    log.info("asking the executors of %s whether they see the lake", settings.spark_master)
    here = runtime.found(zone)
    spark.sparkContext.environment[runtime.VARIABLE] = runtime.as_text(here)
    waited = partial(_waited, spark, stopping, look_around)
    name = marker.leave(settings.lake)
    try:
        with _explained(settings):
            asked = partial(_ask, spark, settings.lake, name, zone)
            answers = waited(ANSWER_SECONDS, "do executors see the lake", asked)
    finally:
        marker.take_away(settings.lake, name)
    if answers is None:
        if not stopping.is_set():
            does = "wait for one" if settings.placement == "executors" else "are the driver's work until one comes"
            log.warning("%s has given no executor that answers: large batches %s", settings.spark_master, does)
        return
    _judge(answers, settings.lake, here)
    if settings.placement != "driver":
        _exchange(spark, settings.spark_master, waited, stopping)


def _judge(answers: Sequence[Mapping[str, Any]], lake: str, here: runtime.Runtime) -> None:
    """Raise what `check` says of executors, by their answers; return where all see the lake and have the runtime."""
    if blind := sorted({answer["host"] for answer in answers if answer["found"] == marker.BLIND}):
        raise SettingsError(
            f"the executors on {', '.join(blind)} do not see the lake {lake} as the driver does",
            remedy=REMEDY,
        )
    if kept_out := sorted({answer["host"] for answer in answers if answer["found"] == marker.READS}):
        raise SettingsError(
            f"the executors on {', '.join(kept_out)} may read the lake {lake} and not write to it",
            remedy="run them as the driver's user, with the lake mounted for writing; in a bucket give their role the "
            "rights of the driver's",
        )
    if failed := next((answer for answer in answers if answer["found"] != marker.SEES), None):
        raise TransientError(
            f"the executor on {failed['host']} could not look at the lake {lake}: {failed['found']}",
            remedy="try again; its log says more",
        )
    if unlike := {
        answer["host"]: differs for answer in answers if (differs := runtime.differences(here, answer["runtime"]))
    }:
        raise runtime.other(unlike)


def _waited(
    spark: SparkSession,
    stopping: threading.Event,
    look_around: Callable[[], None],
    seconds: float,
    about: str,
    job: Callable[[], Told],
) -> Told | None:
    """Return what a job of executors returns; None where it is not through in time, or the driver is to stop."""

    def begun() -> Told:
        spark.sparkContext.setJobGroup(JOBS, about, interruptOnCancel=True)  # this thread's
        return job()

    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(1, thread_name_prefix=JOBS) as pool:
        asked = pool.submit(begun)
        try:
            while not asked.done():
                wait([asked], WATCH_SECONDS)
                look_around()
                if not asked.done() and (stopping.is_set() or time.monotonic() > deadline):
                    return None
        finally:
            while not asked.done():
                spark.sparkContext.cancelJobGroup(JOBS)
                wait([asked], WATCH_SECONDS)
    return asked.result()


@contextmanager
def _explained(settings: Settings) -> Iterator[None]:
    """Say why executors could not be asked."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - whoever looks at the topology needs no Spark

    try:
        yield
    except (PySparkException, jvm.java_error()) as error:
        if (fault := unable(str(error), settings)) is not None:
            raise fault from None
        raise TransientError(
            f"Spark could not ask its executors whether they see the lake ({type(error).__name__})",
            remedy="see that the master has executors that stay; then try again",
        ) from error


def unable(text: str, settings: Settings) -> EnvironmentFault | None:
    """Say that executors lack the Python, libraries or code of a task that has failed; None when it was another cause.

    Args:
        text: as Spark tells of it.
        settings: whether executors are elsewhere.
    """
    if not settings.is_on_cluster or UNABLE.search(text) is None:
        return None
    return EnvironmentFault(
        f"executors cannot run the pipeline's code, {_whence(settings)}: their Python is not there, is another one or "
        "lacks what it needs, or the code is that of another release",
        remedy="name a Python with the libraries by ACTIVITY_EXECUTOR_PYTHON, or run the driver's image there",
    )


def _exchange(spark: SparkSession, master: str, waited: Callable[..., int | None], stopping: threading.Event) -> None:
    """Have executors exchange data; log a warning if they do not, since small batches do not need it.

    Connections are not the only possible cause: executors may have left or be slow, or their disks may be full.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415

    job = partial(exchange.run, spark, _at_once(spark))
    try:
        if waited(EXCHANGE_SECONDS, "do executors reach one another", job) is not None or stopping.is_set():
            return
        why = f"not within {EXCHANGE_SECONDS:.0f} s"
    except (PySparkException, jvm.java_error(), InputGone) as error:
        why = unforeseen.kind(error)
    told = "executors of %s did not exchange data (%s), as large batches do: unless they are busy, %s"
    log.warning(told, master, why, CONNECT)


def _whence(settings: Settings) -> str:
    if settings.ship_release:
        return "which the driver sends them"
    return f"which they look for in {PACKAGE.parent}"


def _ask(spark: SparkSession, lake: str, name: str, zone: str | None) -> list[dict[str, Any]]:
    """Run tasks until each executor has answered, or has had the chance to."""
    answers: list[dict[str, Any]] = []
    for _ in range(ROUNDS):
        look = with_libraries(partial(marker.look, lake, name))
        answers += shared_out(spark, _at_once(spark), runtime.telling(look, zone)).collect()
        if len({answer["executor"] for answer in answers}) >= jvm.executors(spark):
            return answers
    log.warning("some executors were not asked whether they see the lake: others were quicker")
    return answers


def _at_once(spark: SparkSession) -> int:
    """Return how many tasks run at once, of as many executors as there are."""
    return max(spark.sparkContext.defaultParallelism, jvm.executors(spark))


def blind(settings: Settings) -> ActivityError:
    """Say that tasks did not find what the driver sees: executors elsewhere, or threads of its own a moment ago."""
    if settings.is_on_cluster:
        return SettingsError("an executor does not find files of the lake that the driver sees", remedy=REMEDY)
    return TransientError(
        f"tasks did not find files or folders of the lake {settings.lake}",
        remedy="see that its storage is mounted, and stays so; start again",
    )


def require_here(settings: Settings, written: Mapping[Table, Sequence[DataFile]]) -> None:
    """Make sure that the driver sees what executors elsewhere have written, whole.

    Raises:
        SettingsError: it does not; nothing was committed.
    """
    if not settings.is_on_cluster:
        return
    for table, of_table in written.items():
        files, folder = filesystem(table_path(settings.lake, table))
        found = files.get_file_info([f"{folder}/{file.path}" for file in of_table])
        for file, here in zip(of_table, found, strict=True):
            if here.type != fs.FileType.File or here.size != file.size:
                raise SettingsError(
                    f"{table.label}: an executor has written {file.path}, and the driver does not see it in "
                    f"{settings.lake}",
                    remedy=REMEDY,
                )
