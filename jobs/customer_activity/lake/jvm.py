"""The only access to the JVM: nothing else in the project uses what Spark and Delta do not promise to keep.

`tests/unit/test_one_door.py` refuses any other use. `tests/spark/test_jvm.py` has each name and signature that is used
here, so that another release of Spark or Delta fails there first. pyspark and py4j are imported where they are needed:
whoever only imports a stream needs no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from customer_activity.errors import JvmGone

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject, JVMView
    from pyspark import RDD, SparkConf
    from pyspark.sql import SparkSession


def jvm(spark: SparkSession) -> JVMView:
    """Return a session's view of its JVM.

    Raises:
        RuntimeError: the session has ended.
    """
    view = spark._jvm  # noqa: SLF001
    if view is None:
        raise RuntimeError("the Spark session has ended")
    return view


def launch(conf: SparkConf) -> None:
    """Start the JVM and nothing in it.

    Raises:
        PySparkRuntimeError: it does not start.
    """
    from pyspark import SparkContext  # noqa: PLC0415

    SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001


def is_alive(spark: SparkSession) -> bool:
    """Whether the JVM still answers: a signal to the whole process group ends it before us."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001
    except (Py4JError, OSError):
        return False


@contextmanager
def answering() -> Iterator[None]:
    """Ask the JVM something that it answers for as long as it lives.

    Raises:
        JvmGone: it does not.
        Py4JJavaError: what it was asked has failed.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415

    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, OSError) as error:
        raise gone() from error


def gone() -> JvmGone:
    """Say that the JVM has died."""
    return JvmGone(
        "the driver's JVM has ended by itself",
        remedy="start again; if it happens again, look for an hs_err_pid*.log, and for memory that ran out: the "
        "kernel's log names the processes that it killed (ACTIVITY_DRIVER_MEMORY)",
    )


@contextmanager
def unless_gone() -> Iterator[None]:
    """Release something of the JVM, which its end has released already if it has died."""
    with suppress(JvmGone), answering():
        yield


def executors(spark: SparkSession) -> int:
    """Return how many executors have come, the driver's own threads not counted."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()  # noqa: SLF001
    return len(tracker.getExecutorInfos()) - 1


def lacks_executors(spark: SparkSession) -> bool:
    """Whether there is a cluster, and no executor of it; not so without a JVM."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    try:
        return not (spark.sparkContext.master or "").startswith("local") and executors(spark) == 0
    except (Py4JError, OSError):
        return False


def tasks_at_work(spark: SparkSession, group: str | None) -> tuple[int, int]:
    """Return how many tasks of a group's running jobs are through, and how many they have; zeros without a JVM."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    try:
        tracker = spark.sparkContext.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        of_group = {stage for job in jobs if job is not None for stage in job.stageIds}
        stages = [tracker.getStageInfo(stage) for stage in of_group.intersection(tracker.getActiveStageIds())]
    except (Py4JError, OSError):
        return 0, 0
    at_work = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in at_work), sum(stage.numTasks for stage in at_work)


def shuffled(spark: SparkSession, packed: RDD[bytes], lanes: int) -> RDD[bytes]:
    """Shuffle parcels by lane: the result has a partition for each lane, whose records are the parcels' bytes.

    `RDD.partitionBy` does the same, but buffers up to a thousand parcels in a Python worker first, and pickles them.

    Args:
        spark: the session.
        packed: records by turns: a lane in eight bytes, and the bytes of a parcel for it.
        lanes: how many there are; each is a number below.
    """
    from pyspark import RDD  # noqa: PLC0415
    from pyspark.serializers import NoOpSerializer  # noqa: PLC0415

    packed._bypass_serializer = True  # type: ignore[attr-defined]  # noqa: SLF001
    inside = jvm(spark)
    pairs = inside.PairwiseRDD(packed._jrdd.rdd()).asJavaPairRDD()  # noqa: SLF001
    by_number = inside.PythonPartitioner(lanes, 0)  # the second one would tell functions of Python's apart
    return RDD(inside.PythonRDD.valueOfPair(pairs.partitionBy(by_number)), packed.context, NoOpSerializer())


def java_error() -> type[Exception]:
    """Return what is raised here for an exception in Java that pyspark has no name for."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415

    error: type[Exception] = Py4JJavaError
    return error


def words(error: Exception) -> str:
    """Return the first line of what an exception in Java says."""
    raised: Any = error
    return str(raised.java_exception.getMessage()).strip().partition("\n")[0]


def hadoop_settings(spark: SparkSession) -> JavaObject:
    """Return Hadoop's settings, which may be changed."""
    return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001


def open_file(spark: SparkSession, path: Path) -> JavaObject:
    """Open a file for reading and writing; it is the JVM that has it open."""
    return jvm(spark).java.io.RandomAccessFile(str(path), "rw")


def forget_logs(spark: SparkSession) -> None:
    """Have Delta read logs again."""
    _delta(jvm(spark)).log.clearCache()


class _Delta(NamedTuple):
    """Delta's classes, looked up once: each look-up by name asks the JVM about every dot."""

    log: JavaObject
    action: JavaObject
    write: JavaObject
    append: JavaObject
    overwrite: JavaObject
    some: JavaObject
    none: JavaObject
    to_scala: JavaObject
    array_list: JavaObject


@cache
def _delta(java: JVMView) -> _Delta:
    # By JVM, not by session: a session may be one of several of the same JVM.
    package = java.org.apache.spark.sql.delta
    return _Delta(
        package.DeltaLog,
        package.actions.Action,
        getattr(package, "DeltaOperations$Write"),
        java.org.apache.spark.sql.SaveMode.Append,
        java.org.apache.spark.sql.SaveMode.Overwrite,
        java.scala.Option,
        java.scala.Option.empty(),
        java.scala.jdk.javaapi.CollectionConverters,
        java.java.util.ArrayList,
    )


def log_of(spark: SparkSession, path: str) -> JavaObject:
    """Return Delta's log of a table; the JVM keeps one object a table."""
    return _delta(jvm(spark)).log.forTable(spark._jsparkSession, path)  # noqa: SLF001


def begin(spark: SparkSession, path: str) -> JavaObject:
    """Begin Delta's own transaction on a table, the one that Spark's writer uses, at the newest version."""
    return log_of(spark, path).startTransaction()


def read_version(transaction: JavaObject) -> int:
    """Return the version of the table at which a transaction began."""
    return int(transaction.snapshot().version())


def last_version(transaction: JavaObject, application: str) -> int:
    """Return an application's newest version in a table, and have the commit fail when another writer adds to it.

    `txnVersion` would say it, from a Spark job over the whole log (half a second); the checksum of the version, which
    Delta keeps in memory after its own commits, lists the same.
    """
    checksum = transaction.snapshot().checksumOpt()
    listed = checksum.get().setTransactions() if checksum.isDefined() else checksum
    if not listed.isDefined():
        return int(transaction.txnVersion(application))
    transaction.readTxn().addOne(application)
    transactions = listed.get()
    for number in range(transactions.size()):
        found = transactions.apply(number)
        if found.appId() == application:
            return int(found.version())
    return -1


def read_all(transaction: JavaObject) -> int:
    """Have a commit fail when anybody else changes the table's rows or files; return the version that it has read."""
    transaction.readWholeTable()  # Delta 4.4.0 refuses a commit that removes files without it, too; it need not
    return read_version(transaction)


def commit(
    spark: SparkSession,
    transaction: JavaObject,
    actions: Iterable[Mapping[str, Any]],
    user_metadata: str,
    *,
    is_append: bool = True,
) -> int:
    """Commit actions, as the log has them, in a transaction of `begin`'s; return its version.

    To Delta they append to the table, or overwrite what it has, by their name; what they are to readers, and what
    conflicts with them, follows from the actions.
    """
    delta = _delta(jvm(spark))
    listed = delta.array_list()
    for action in actions:
        listed.add(delta.action.fromJson(json.dumps(action)))
    none = delta.none
    mode = delta.append if is_append else delta.overwrite
    operation = delta.write(mode, none, none, delta.some.apply(user_metadata), none, none, none, none, none)
    return int(transaction.commit(delta.to_scala.asScala(listed).toSeq(), operation))
