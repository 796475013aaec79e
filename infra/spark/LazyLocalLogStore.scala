package customeractivity

import java.io.FileNotFoundException
import java.nio.file.{DirectoryIteratorException, Files, NoSuchFileException, Paths}
import java.nio.file.attribute.BasicFileAttributes
import java.util.{Iterator => JavaIterator}

import scala.jdk.CollectionConverters._
import scala.util.Using

import io.delta.storage.LocalLogStore
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, Path}

/** What a folder of a local disk has, by names alone: no file is looked at. */
private object LocalNames {

  /** Delta takes a folder that is not there for a table that is not; whatever else is wrong must not look like that. */
  def of(folder: Path): Array[String] =
    try {
      Using.resource(Files.newDirectoryStream(Paths.get(folder.toUri.getPath)))(
        _.iterator.asScala.map(_.getFileName.toString).toArray
      )
    } catch {
      case _: NoSuchFileException => throw new FileNotFoundException(s"No such file or directory: $folder")
      case fault: DirectoryIteratorException => throw fault.getCause
    }
}

/**
 * Delta's log store for a local disk, with a listing that does not grow with what lies before its start.
 *
 * Delta asks for the log's files from a version on, several times a batch. Its own store looks at each file of the
 * folder first (size, time, owner, group) and then leaves out what was not asked for: six seconds for 170,000 versions.
 * A log is that long when one of its readers was away for a day. This one reads the names, and looks at a file when it
 * is taken. Writing is Delta's (`io.delta.storage.LogStore` is its public interface).
 */
class LazyLocalLogStore(conf: Configuration) extends LocalLogStore(conf) {

  /** The files of the folder from this name on, in order; one that goes meanwhile is left out, as in a listing. */
  override def listFrom(path: Path, conf: Configuration): JavaIterator[FileStatus] = {
    val folder = path.getFileSystem(conf).makeQualified(path.getParent)
    LocalNames.of(folder).filter(_ >= path.getName).sorted.iterator.flatMap(status(folder, _)).asJava
  }

  private def status(folder: Path, name: String): Option[FileStatus] = {
    val path = new Path(folder, new Path(null, null, name)) // of a name with a colon `Path` would make a scheme
    try {
      val found = Files.readAttributes(Paths.get(path.toUri.getPath), classOf[BasicFileAttributes])
      Some(new FileStatus(found.size, found.isDirectory, 1, 1, found.lastModifiedTime.toMillis, path))
    } catch { case _: NoSuchFileException => None }
  }
}
