"""The Spark session of the streaming application, with the reason for every setting."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from customer_activity.engine import clusters, logs
from customer_activity.errors import EnvironmentFault, SettingsError, TransientError
from customer_activity.lake import jvm
from customer_activity.settings import TO_GET_JARS, Settings
from customer_activity.storage import s3

JAVA_ENDED = "JAVA_GATEWAY_EXITED"  # what pyspark calls it when Java ends before it answers

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # One table state is small here; the default of 50 tasks costs more than the work.
    "spark.databricks.delta.snapshotPartitions": "1",
    # A checksum may list the files of a small table. Those of ours (checksums.py) do not, and the next commit would
    # run a job to add the list, which nobody here reads.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
}

STREAMING = {
    "spark.sql.session.timeZone": "UTC",
    # The work of a batch is small and local: more tasks than cores only queue. Adaptive execution is off inside
    # foreachBatch in any case (Spark's StreamExecution switches it off).
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.pollingDelay": "400ms",  # of a stream that has found nothing; each look costs a millisecond
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",  # no watermarks here, so an empty batch has no work
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stopTimeout": "30s",
    # Of what executors hand on to each other a task makes one file, however many lanes there are: by default each lane
    # has a file at first, and a serializer, which takes longer to make than a small parcel to write.
    "spark.shuffle.sort.bypassMergeThreshold": "2",
    # Plans are of a few rows: compiling one costs more than interpreting it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.scheduler.mode": "FAIR",  # a small stream's job does not wait behind a large one
    "spark.locality.wait": "0s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's own pattern, and Kafka's settings that hold a secret and are not called so.
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas|keystore[.]key",
    "spark.sql.maxPlanStringLength": "200",  # plans are not logged: they can hold literals from the data
    "spark.sql.ui.explainMode": "simple",
}

# Hadoop's local file system forks a process for every permission and symbolic link; these three do not. The log store
# is ours (infra/spark): a log that is long because a reader was away is listed from where it is asked for.
NAKED = {"spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.NakedLocalFileSystem"}
LOCAL_DISK = {
    "spark.delta.logStore.file.impl": "customeractivity.LazyLocalLogStore",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
    ),
}

# A driver whose executors are threads of its own is reached by nobody else. Executors elsewhere call it by the name of
# its machine, which is Spark's default.
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

# Who we are, every part of the driver finds by itself. Spark would copy keys from the environment into its settings for
# Hadoop; nothing reads them there, and `start` takes them out again.
S3 = {
    "spark.hadoop.fs.s3a.aws.credentials.provider": (
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
    ),
    # A checkpoint's file is one request: an upload is visible when it is complete, and nothing has to be renamed.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.s3a.fast.upload.buffer": "bytebuffer",  # a log entry has some kilobytes: no file on disk for it
    # The SDK repeats a request within this time; by default an upload has a quarter of an hour. Hadoop repeats what the
    # SDK has given up, seven times and after throttling twenty: not here, where a query that starts again does.
    "spark.hadoop.fs.s3a.connection.request.timeout": f"{s3.WRITE_SECONDS}s",
    "spark.hadoop.fs.s3a.connection.part.upload.timeout": f"{s3.WRITE_SECONDS}s",
    "spark.hadoop.fs.s3a.attempts.maximum": "5",
    "spark.hadoop.fs.s3a.retry.limit": "0",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "0",
}
OF_S3 = "spark.hadoop.fs.s3a."
COPIED_KEYS = (  # SparkHadoopUtil.appendS3CredentialsFromEnvironment
    *(f"fs.{scheme}.{name}" for scheme in ("s3", "s3n") for name in ("awsAccessKeyId", "awsSecretAccessKey")),
    *(f"fs.s3a.{name}" for name in ("access.key", "secret.key", "session.token")),
)

JVM_OPTIONS = (
    f"-XX:+UseParallelGC {clusters.ROOM_FOR_CLASSES} -XX:ReservedCodeCacheSize=512m "
    "-Dlog4j2.configurationFile={log4j}"
)
# An archive that set-up made of the classes as a JVM has them in memory, read and verified already. A JVM leaves one
# of other jars alone; being told so at every start helps nobody.
CLASS_ARCHIVE_OPTIONS = " -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"
# Where pyspark itself logs what an exception says, which may be a value that it could not cast.
OWN_LOGS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
LOG4J = Path(__file__).with_name("log4j2.properties")
LOG4J_JSON = LOG4J.with_name("log4j2-json.properties")  # on top of it


def jars(settings: Settings, folder: str = "spark") -> list[Path]:
    """List the jars that set-up resolved for Spark, or of another folder of theirs.

    Raises:
        EnvironmentFault: there are none.
    """
    found = sorted((settings.jars_dir / folder).glob("*.jar"))
    if not found:
        raise EnvironmentFault(f"no Spark jars in {settings.jars_dir / folder}", remedy=TO_GET_JARS)
    return found


def classpath(settings: Settings) -> dict[str, str]:
    """Settings that put the jars before Spark.

    A driver takes them on its class path: nothing is copied, and the file system that Spark itself starts with is among
    them. Those for S3 it loads later: the class archive is of no use to a JVM whose class path is another. Executors
    elsewhere get all of them from the driver, or have them at these paths.
    """
    found = jars(settings)
    own = jars(settings, "own")
    for_s3 = jars(settings, "s3") if settings.is_on_s3 else []
    given = [*found, *own, *for_s3] if settings.is_on_cluster else for_s3
    scheme = "" if settings.ship_release or not settings.is_on_cluster else "local://"  # each finds its own there
    options = {"spark.driver.extraClassPath": ":".join(str(jar) for jar in [*found, *own])}
    return options | ({"spark.jars": ",".join(f"{scheme}{jar}" for jar in given)} if given else {})


def jvm_options(settings: Settings) -> str:
    """Options of the driver's JVM."""
    archive = settings.jars_dir / "classes.jsa"
    files = [LOG4J, LOG4J_JSON] if settings.log_format == logs.JSON else [LOG4J]
    options = f"{JVM_OPTIONS.format(log4j=','.join(file.as_uri() for file in files))} {clusters.OPTIMISE_LATER}"
    return options + (CLASS_ARCHIVE_OPTIONS.format(archive=archive) if archive.exists() else "")


def spark_home(settings: Settings) -> Path | None:
    """The Spark that set-up put together for a driver on one machine (infra/spark/home.sh); None: pyspark's own."""
    home = settings.jars_dir / "home"
    is_there = not settings.is_on_cluster and (home / "bin" / "spark-submit").exists()
    return home if is_there else None


class JvmLock:
    """A lock on a file that the JVM has, which commits: it is free when the JVM has ended, and not before."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        """Open the file."""
        self.file = jvm.open_file(spark, path)

    def take(self) -> bool:
        """Take it; say whether it is held here now."""
        return self.file.getChannel().tryLock() is not None

    def close(self) -> None:
        """Give it back."""
        with jvm.unless_gone():
            self.file.close()


def launch(settings: Settings) -> None:
    """Start the JVM and nothing in it: two seconds that somebody who imports the rest meanwhile does not wait for.

    Raises:
        EnvironmentFault: set-up is not complete.
        PySparkRuntimeError: the JVM does not start.
    """
    clusters.require_own_spark()
    jvm.launch(SparkConf().setAll(list(_options(settings).items())))


def start(settings: Settings, name: str = "") -> SparkSession:
    """Start (or return) the Spark session, in the JVM that runs or is about to, or in a new one.

    Args:
        settings: what it is started with.
        name: of the Spark application; the pipeline's when none is given.

    Raises:
        EnvironmentFault: set-up is not complete, or Java does not start; it says on its own why.
        SettingsError: the lake is a folder, and Spark would look for it elsewhere.
        TransientError: the master elsewhere does not answer, or refuses.
    """
    clusters.require_own_spark()
    builder = SparkSession.builder.appName(name or settings.pipeline)
    for key, value in _options(settings).items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != JAVA_ENDED:
            raise
        raise EnvironmentFault(
            f"Java did not start with a heap of {settings.driver_memory}; it says why above",
            remedy="correct ACTIVITY_DRIVER_MEMORY where that is why; `activity doctor` looks at Java itself",
        ) from None
    except jvm.java_error() as error:  # no record has been read yet, so its words are those of settings and machines
        why = jvm.words(error)
        if not settings.is_on_cluster:
            raise EnvironmentFault(
                f"Spark does not start: {why}",
                remedy="correct what it names; `activity doctor` looks at Java, ports and the disk",
            ) from None
        raise TransientError(
            f"Spark does not start on {settings.spark_master}: {why}",
            remedy="see that this master runs and has room, and that ACTIVITY_SPARK_MASTER is right; then try again",
        ) from None
    for logger in OWN_LOGS:
        PySparkLogger.getLogger(logger).disabled = True
    hadoop = jvm.hadoop_settings(spark)
    for key in COPIED_KEYS:
        hadoop.unset(key)
    if settings.is_local_lake:
        try:
            clusters.require_disk(settings.lake, hadoop.get("fs.defaultFS"))
        except SettingsError:
            spark.stop()
            raise
    return spark


def s3_options(settings: Settings) -> dict[str, str]:
    """Settings that tell Hadoop where S3 is, and Python workers on other machines."""
    options = {
        **S3,
        "spark.hadoop.fs.s3a.path.style.access": str(settings.s3_path_style).lower(),
        # Without a name the SDK looks for one where AWS describes, as the other libraries do.
        "spark.hadoop.fs.s3a.endpoint.region": settings.s3_environment().get("AWS_REGION", ""),
    }
    if settings.s3_endpoint is not None:
        options["spark.hadoop.fs.s3a.endpoint"] = settings.s3_endpoint
    # What Hadoop is told of one bucket, by a cluster's core-site.xml as well, is stronger than what it is told of all.
    bucket, _ = s3.place(settings.lake)
    of_all = {name.removeprefix(OF_S3): value for name, value in options.items() if name.startswith(OF_S3)}
    of_bucket = {f"{OF_S3}bucket.{bucket}.{name}": value for name, value in of_all.items()}
    variables = {f"spark.executorEnv.{name}": value for name, value in settings.s3_environment().items()}
    return options | of_bucket | variables


def local_disk(settings: Settings) -> dict[str, str]:
    """Settings for a lake in a folder; YARN asks a file system for its scheme, which the naked one does not tell."""
    return LOCAL_DISK | ({} if settings.spark_master == clusters.YARN else NAKED)


def _options(settings: Settings) -> dict[str, str]:
    found = clusters.given(settings)
    own = {
        "spark.master": settings.spark_master,
        **DELTA,
        **STREAMING,
        **(local_disk(settings) if settings.is_local_lake else {}),
        **(s3_options(settings) if settings.is_on_s3 else {}),
        **classpath(settings),
        **clusters.options(settings, found),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": jvm_options(settings),
        **({} if settings.is_on_cluster else LOOPBACK),
    }
    clusters.refuse_own(found, own)
    clusters.environment(settings)
    if (home := spark_home(settings)) is not None:
        os.environ.setdefault("SPARK_HOME", str(home))
    others = clusters.defaults(settings, found)
    # Where spark-submit started us, Spark runs already, and takes the operator's properties from us.
    return (found if clusters.SUBMITTED in os.environ else {}) | others | own
