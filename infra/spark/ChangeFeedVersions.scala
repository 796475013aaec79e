package customeractivity

import java.io.{BufferedReader, FileNotFoundException, InputStreamReader}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.{Callable, Executors}
import java.util.{Map => JavaMap, Set => JavaSet}

import scala.jdk.CollectionConverters._
import scala.util.Using

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReaderFactory, Scan, ScanBuilder}
import org.apache.spark.sql.connector.read.streaming.{MicroBatchStream, Offset, ReadLimit, SupportsTriggerAvailableNow}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * The versions of a Delta table, for Spark to plan a stream's batches of. It has no rows.
 *
 * The streams read a batch's rows from the files that its versions' commits added. From Delta's own source they only
 * took which versions these are, and for that it reads the log, makes a table state and plans a DataFrame: a third of a
 * small batch's time, and four times a second where nothing has come. This one looks whether the next entry is there.
 * Its offsets are those of Delta's source, so a checkpoint goes on with either.
 *
 * Options: `path` of the table, its `tableId`, the `startingVersion` of a stream without a checkpoint, and the limits
 * `maxFilesPerTrigger` and `maxBytesPerTrigger` of a batch that has more than one version.
 */
class ChangeFeedVersions extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = ChangeFeedVersions.Schema
  override def getTable(schema: StructType, by: Array[Transform], properties: JavaMap[String, String]): Table =
    new VersionsTable(new CaseInsensitiveStringMap(properties))
}

object ChangeFeedVersions {
  val Schema: StructType = new StructType().add("_commit_version", "long")

  /** How often a log is listed in which the next version is not there. */
  val ListSeconds = 60L

  /** Entries that are read at once where each answer takes its time. */
  val Readers = 32
}

private class VersionsTable(options: CaseInsensitiveStringMap) extends Table with SupportsRead {
  override def name: String = s"versions of ${options.get("path")}"
  override def schema: StructType = ChangeFeedVersions.Schema
  override def capabilities: JavaSet[TableCapability] = Set(TableCapability.MICRO_BATCH_READ).asJava
  override def newScanBuilder(asked: CaseInsensitiveStringMap): ScanBuilder = () =>
    new Scan {
      override def readSchema: StructType = ChangeFeedVersions.Schema
      override def toMicroBatchStream(checkpoint: String): MicroBatchStream =
        new Versions(options, SparkSession.active.sessionState.newHadoopConf())
    }
}

/** A place in a table's log, as Delta's source notes it: everything before `version` is read. */
private class Before(tableId: String, val version: Long) extends Offset {
  override def json: String =
    s"""{"sourceVersion":1,"reservoirId":"$tableId","reservoirVersion":$version,"index":-1,"isStartingVersion":false}"""
}

private class Versions(options: CaseInsensitiveStringMap, conf: Configuration)
    extends MicroBatchStream
    with SupportsTriggerAvailableNow {

  private val tableId = options.get("tableId")
  private val first = options.getLong("startingVersion", 0)
  private val maxFiles = options.getLong("maxFilesPerTrigger", Long.MaxValue)
  private val maxBytes = options.getLong("maxBytesPerTrigger", Long.MaxValue)
  private val log = new Path(options.get("path"), "_delta_log")
  private val files = log.getFileSystem(conf)
  private val isLocal = files.getUri.getScheme == "file"
  private val json = new ObjectMapper()
  private var last = Long.MaxValue // of a query that ends with what is there when it starts
  private var listAt = Option.empty[Long] // nanoseconds

  override def initialOffset(): Offset = new Before(tableId, first)

  /** Delta's source notes a version with change files that it has read as that version with an index. */
  override def deserializeOffset(text: String): Offset = {
    val noted = json.readTree(text)
    if (noted.get("reservoirId").asText != tableId)
      throw new IllegalStateException(s"the checkpoint is of another table than the one at ${log.getParent}")
    val isRead = noted.get("index").asLong >= 0
    val isSnapshot = noted.path("isStartingVersion").asBoolean && !isRead
    new Before(tableId, if (isSnapshot) 0 else noted.get("reservoirVersion").asLong + (if (isRead) 1 else 0)) {
      override def json: String = text // Spark compares offsets as texts
    }
  }

  override def prepareForTriggerAvailableNow(): Unit = last = listed.maxOption.getOrElse(-1L)

  override def getDefaultReadLimit: ReadLimit = ReadLimit.allAvailable()

  override def latestOffset(start: Offset, limit: ReadLimit): Offset = {
    val next = start.asInstanceOf[Before].version
    if (next > last) { refusePutBack(last, next); null }
    else if (isThere(next)) new Before(tableId, admitted(next) + 1)
    else newestBehindGap(next).map(newest => new Before(tableId, newest + 1)).orNull
  }

  override def latestOffset(): Offset = throw new UnsupportedOperationException("it is asked with a limit")
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] = Array.empty
  override def createReaderFactory(): PartitionReaderFactory = _ => throw new UnsupportedOperationException("no rows")
  override def commit(end: Offset): Unit = ()
  override def stop(): Unit = ()

  /** The last version of a batch that begins with this one: whole versions, within the limits unless one has more. */
  private def admitted(next: Long): Long =
    if (next == last || !isThere(next + 1)) next
    else {
      val has: Long => Boolean = if (isLocal) isThere else listed.toSet
      val versions = Iterator.iterate(next)(_ + 1).takeWhile(version => version <= last && has(version))
      var (upto, count, bytes) = (next - 1, 0L, 0L)
      for ((moreFiles, moreBytes) <- sizes(versions)) {
        count += moreFiles
        bytes += moreBytes
        if (upto >= next && (count > maxFiles || bytes > maxBytes)) return upto
        upto += 1
      }
      upto
    }

  /** Files and bytes that some commits add, in order; of a bucket many entries are asked for at once. */
  private def sizes(versions: Iterator[Long]): Iterator[(Long, Long)] =
    if (isLocal) versions.map(added)
    else
      versions.grouped(8 * ChangeFeedVersions.Readers).flatMap { group =>
        val pool = Executors.newFixedThreadPool(ChangeFeedVersions.Readers)
        val reads = group.map(version => (() => added(version)): Callable[(Long, Long)])
        try pool.invokeAll(reads.asJava).asScala.map(_.get)
        finally pool.shutdownNow()
      }

  /**
   * The newest version where the log has lost the next one. What is lost is told by who reads the batch; a stream that
   * took it for not written yet would wait for ever. A listing costs more than a look, so it is made once a minute.
   */
  private def newestBehindGap(next: Long): Option[Long] = {
    val now = System.nanoTime()
    if (listAt.exists(now - _ < 0)) None
    else {
      listAt = Some(now + ChangeFeedVersions.ListSeconds * 1000000000L)
      val newest = listed.maxOption.getOrElse(-1L)
      refusePutBack(newest, next)
      Some(math.min(newest, last)).filter(_ >= next)
    }
  }

  /** Once it has grown past what was read, the rows between would be skipped. */
  private def refusePutBack(newest: Long, next: Long): Unit =
    if (newest < next - 1)
      throw new IllegalStateException(s"TABLE_PUT_BACK: ${log.getParent} ends at $newest, and ${next - 1} was read")

  private def entry(version: Long): Path = new Path(log, f"$version%020d.json")

  private def isThere(version: Long): Boolean = files.exists(entry(version))

  private def listed: Iterator[Long] =
    try {
      val names = if (isLocal) LocalNames.of(log) else files.listStatus(log).map(_.getPath.getName)
      names.iterator.filter(_.matches("\\d{20}\\.json")).map(_.take(20).toLong)
    } catch { case _: FileNotFoundException => Iterator.empty }

  /** How many files and bytes a commit adds to the change feed; none where its entry has gone meanwhile. */
  private def added(version: Long): (Long, Long) =
    try
      Using.resource(new BufferedReader(new InputStreamReader(files.open(entry(version)), UTF_8))) { lines =>
        val sizes = Iterator.continually(lines.readLine()).takeWhile(_ != null).flatMap(size)
        sizes.foldLeft((0L, 0L)) { case ((count, bytes), size) => (count + 1, bytes + size) }
      }
    catch { case _: FileNotFoundException => (0, 0) }

  private def size(line: String): Option[Long] = {
    val action: JsonNode = json.readTree(line)
    Seq(action.path("cdc"), action.path("add")).find(!_.isMissingNode).collect {
      case file if file.path("dataChange").asBoolean(true) => file.path("size").asLong
    }
  }
}
