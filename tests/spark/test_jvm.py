"""What is used of Spark and Delta that neither promises to keep: another release of them fails here, by name."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from py4j import clientserver
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from customer_activity.engine import logs, session
from customer_activity.lake import jvm

SPARK = "org.apache.spark"
DELTA, PLANS = f"{SPARK}.sql.delta", f"{SPARK}.sql.catalyst.plans.logical"
EXECUTION = f"{SPARK}.sql.execution.QueryExecution"
WRITE = f"{DELTA}.DeltaOperations$Write"


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("java.io.RandomAccessFile", "java.nio.channels.FileChannel getChannel()"),
        (f"{DELTA}.DeltaLog", "static void clearCache()"),
        (f"{DELTA}.DeltaLog", f"static {DELTA}.DeltaLog forTable({SPARK}.sql.SparkSession,java.lang.String)"),
        (f"{DELTA}.DeltaLog", f"{DELTA}.OptimisticTransaction startTransaction()"),
        (f"{DELTA}.OptimisticTransaction", f"{DELTA}.Snapshot snapshot()"),
        (f"{DELTA}.OptimisticTransaction", "void readWholeTable()"),
        (f"{DELTA}.OptimisticTransaction", "long txnVersion(java.lang.String)"),
        (f"{DELTA}.OptimisticTransaction", "scala.collection.mutable.ArrayBuffer readTxn()"),
        (
            f"{DELTA}.OptimisticTransaction",
            f"long commit(scala.collection.immutable.Seq,{DELTA}.DeltaOperations$Operation)",
        ),
        (f"{DELTA}.Snapshot", "scala.Option checksumOpt()"),
        (f"{DELTA}.Snapshot", "long version()"),
        (f"{DELTA}.VersionChecksum", "scala.Option setTransactions()"),
        (f"{DELTA}.actions.SetTransaction", "java.lang.String appId()"),
        (f"{DELTA}.actions.SetTransaction", "long version()"),
        (f"{DELTA}.actions.Action", f"static {DELTA}.actions.Action fromJson(java.lang.String)"),
        ("scala.jdk.javaapi.CollectionConverters", "static scala.collection.Iterable asScala(java.lang.Iterable)"),
        ("scala.Option", "static scala.Option apply(java.lang.Object)"),
        ("scala.Option", "static scala.Option empty()"),
        (f"{SPARK}.SparkContext", "boolean isStopped()"),
        (f"{SPARK}.api.java.JavaSparkContext", f"{SPARK}.SparkContext sc()"),
        (f"{SPARK}.api.java.JavaSparkContext", "org.apache.hadoop.conf.Configuration hadoopConfiguration()"),
        (f"{SPARK}.sql.classic.Dataset", f"{EXECUTION} queryExecution()"),
        (EXECUTION, f"{PLANS}.LogicalPlan optimizedPlan()"),
        (f"{SPARK}.api.python.PairwiseRDD", f"{SPARK}.api.java.JavaPairRDD asJavaPairRDD()"),
        (f"{SPARK}.api.java.JavaPairRDD", f"{SPARK}.api.java.JavaPairRDD partitionBy({SPARK}.Partitioner)"),
        (
            f"{SPARK}.api.python.PythonRDD",
            f"static {SPARK}.api.java.JavaRDD valueOfPair({SPARK}.api.java.JavaPairRDD)",
        ),
        (f"{PLANS}.LogicalPlan", f"{PLANS}.Statistics stats()"),
        (f"{PLANS}.Statistics", "scala.math.BigInt sizeInBytes()"),
    ],
)
def test_a_method_is_as_it_is_called(spark: SparkSession, name: str, method: str) -> None:
    methods = jvm.jvm(spark).java.lang.Class.forName(name).getMethods()
    said = {str(found).removeprefix("public ").replace("final ", "").replace(f"{name}.", "") for found in methods}
    assert method in said


def test_delta_takes_of_a_write_what_the_door_says_of_it(spark: SparkSession) -> None:
    (made,) = jvm.jvm(spark).java.lang.Class.forName(WRITE).getConstructors()
    taken = ["org.apache.spark.sql.SaveMode", *["scala.Option"] * 8]
    assert [kind.getName() for kind in made.getParameterTypes()] == taken
    fields = [field.getName() for field in made.getDeclaringClass().getDeclaredFields()]
    assert fields[:4] == ["mode", "partitionBy", "predicate", "userMetadata"]


def test_spark_tells_lanes_apart_by_their_number(spark: SparkSession) -> None:
    partitioner = jvm.jvm(spark).PythonPartitioner(3, 0)
    assert [partitioner.getPartition(lane) for lane in range(3)] == [0, 1, 2]


def test_pyspark_has_what_the_door_takes_of_it(spark: SparkSession) -> None:
    assert list(inspect.signature(SparkContext._ensure_initialized).parameters) == ["instance", "gateway", "conf"]
    assert spark._jvm is not None
    assert hasattr(spark, "_jsparkSession")
    assert hasattr(spark.sparkContext, "_jsc")
    assert hasattr(spark.range(1), "_jdf")
    numbered = spark.sparkContext.parallelize([], 2).mapPartitionsWithIndex(lambda number, _: [number])
    assert hasattr(numbered, "_bypass_serializer")
    assert hasattr(numbered, "_jrdd")
    assert clientserver.logger.name == logs.OF_BATCHES


def test_the_door_does_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    jvm.launch(SparkConf())  # it runs
    assert jvm.is_alive(spark)
    assert jvm.executors(spark) == 0  # the driver's own threads
    settings = jvm.hadoop_settings(spark)
    settings.set("of.a.test", "here")
    assert jvm.hadoop_settings(spark).get("of.a.test") == "here"
    settings.unset("of.a.test")
    file = jvm.open_file(spark, tmp_path / "file")
    assert file.getChannel().tryLock() is not None
    file.close()
    with pytest.raises(jvm.java_error(), match="FileNotFoundException"):
        jvm.open_file(spark, tmp_path / "no folder" / "file")


def test_delta_knows_the_settings_that_are_its_own(spark: SparkSession) -> None:
    """One that it no longer knows changes nothing, and says nothing."""
    own = getattr(getattr(jvm.jvm(spark).org.apache.spark.sql.delta.sources, "DeltaSQLConf$"), "MODULE$")
    entries = [method for method in own.getClass().getMethods() if "ConfigEntry" in method.getReturnType().getName()]
    known = {getattr(own, entry.getName())().key() for entry in entries if entry.getParameterCount() == 0}
    assert {name for name in session.DELTA if name.startswith("spark.databricks.")} <= known


def test_classes_that_settings_name_are_there(spark: SparkSession) -> None:
    settings = session.DELTA | session.LOCAL_DISK | session.NAKED
    named = [value for value in settings.values() if "." in value]
    assert len(named) == 5
    for name in named:
        assert jvm.jvm(spark).java.lang.Class.forName(name).getName() == name
