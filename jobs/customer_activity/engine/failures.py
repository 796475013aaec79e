"""Why a query ended: its death, as Spark tells it, in words of ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from deltalake.exceptions import DeltaError

from customer_activity import topology, unforeseen
from customer_activity.catalog import Table
from customer_activity.engine import loss, reach
from customer_activity.engine.logs import log
from customer_activity.errors import (
    FREE_SPACE,
    ActivityError,
    ChangeFeedLost,
    Corrected,
    DiskFull,
    LeaseLost,
    OffsetsLost,
    RowsLost,
    TransientError,
)
from customer_activity.kafka import faults
from customer_activity.lake import missing
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import is_full

OFFSETS_GONE = (  # Delta names the first one, too, where entries of a log are gone: only bronze reads Kafka
    "failOnDataLoss",
    "KAFKA_DATA_LOSS",
    "OffsetOutOfRange",
)
FILES_GONE = (
    "FileNotFoundException",
    "FILE_NOT_EXIST",
    "DELTA_CHANGE_DATA_FILE_NOT_FOUND",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_LOG_FILE_NOT_FOUND",  # also …_FOR_STREAMING_SOURCE: a log was shortened while the stream was off
)
TABLE_PUT_BACK = "TABLE_PUT_BACK"  # infra/spark/ChangeFeedVersions.scala
LOG_NOTED = "CONCURRENT_STREAM_LOG_UPDATE"  # Spark's own log of offsets knows no lease
NOT_FETCHED = "FetchFailed"  # Spark's tasks did not get what those of an earlier stage had shuffled
# Whose it was: host/address:port, where one of the first two may be missing.
UNREACHED = re.compile(r"(?:Failed to connect|Connecting) to (?P<host>[^/:\s]*)/?(?P<address>[^/:\s]*):(?P<port>\d+)")
# A file that is gone, as Java or Python names it, of those that Spark keeps in its local directories (spark.local.dir).
OWN_FILE = re.compile(
    r"(?:(?:FileNotFound|NoSuchFile)Exception: |No such file or directory: ')(?P<folder>/[^\n]*?)"
    r"/(?:blockmgr|spark)-[0-9a-f]{8}-[0-9a-f]{4}-"
)
# Java's name for a file that cannot be opened, for whatever reason.
NOT_OPENED = re.compile(r"FileNotFoundException: (?P<path>/[^\n(]*?) \((?P<why>(?!No such file)[A-Z][^()\n]+)\)")
NO_SPACE = ("No space left on device", "(ENOSPC)", "database or disk is full")  # Java's, of a task in Python, SQLite's
OF_TASK = re.compile(r"\(TID \d+\) \((?P<host>\S+) executor \w+\)")
PUT_BACK = "put them back from a backup"


def explain(
    query: str,
    error: BaseException,
    cause: BaseException | None,
    settings: Settings,
    fencing_epoch: Callable[[], int | None],
) -> ActivityError:
    """Turn a query's death into an error of ours: what, where, what to do.

    Args:
        query: which one.
        error: as Spark tells it.
        cause: what was raised in a batch; None when it was not in one.
        settings: of its driver.
        fencing_epoch: raises LeaseLost when the query is another driver's by now.
    """
    if isinstance(cause, ActivityError) and not isinstance(cause, OffsetsLost):
        return _of_source(query, cause)
    text = str(cause or error)
    if LOG_NOTED in text:
        return planned_by_another(query, fencing_epoch)
    if (fault := of_kafka(query, cause, text, settings)) is not None:
        return fault
    if is_full(settings.lake):
        return disk_full(settings)
    for told in (
        of_tables(query, cause, settings.lake),
        of_disk(query, text),
        of_feed(query, text),
        of_executors(query, text),
        reach.unable(text, settings),
    ):
        if told is not None:
            return told
    log.error("%s failed", query, exc_info=cause or error, extra={"query": query})
    return TransientError(
        f"{query} stopped: {unforeseen.kind(cause or error)}",
        remedy="start again: it resumes where it stopped; the driver's log has the stack trace",
    )


def _of_source(query: str, fault: ActivityError) -> ActivityError:
    """Say what a stream can do about a feed that does not go on, or a table of its own that lacks files.

    Who reads them does not know for whom.
    """
    spec = topology.spec(query)
    if isinstance(fault, RowsLost) and spec in topology.following() and _is_of(fault, spec.telling):
        return RowsLost(fault.what, remedy=_without_rows(query))
    is_of_source = _is_of(fault, spec.sources)  # and not of what it knows
    if spec.is_publisher or spec not in topology.following() or not is_of_source:
        return fault
    if isinstance(fault, Corrected):
        return Corrected(fault.what, remedy=f"{_builds_again(query)}; or {fault.remedy}")
    if isinstance(fault, ChangeFeedLost):
        return ChangeFeedLost(fault.what, remedy=_without_feed(query))
    return fault


def _is_of(fault: ActivityError, tables: Iterable[Table]) -> bool:
    return any(fault.what.startswith(f"{table.label}:") for table in tables)


def of_disk(query: str, text: str) -> ActivityError | None:
    """Say what is wrong with a disk of the driver or an executor; None when it was something else."""
    task = OF_TASK.search(text)
    where = f" on {task['host']}" if task else ""
    if any(words in text for words in NO_SPACE):
        whose = f"the executor on {task['host']}" if task else "its driver or of executors"
        return DiskFull(f"{query}: no space left on a disk of {whose}", remedy=FREE_SPACE)
    if found := NOT_OPENED.search(text):
        return TransientError(
            f"{query}: {found['why']}: {found['path']}{where}",
            remedy="see to that machine's limits, file permissions and disks; then start again",
        )
    if gone := OWN_FILE.search(text):
        return TransientError(
            f"{query}: temporary files of Spark were removed from {gone['folder']}{where} while it ran",
            remedy="start again: nothing of the lake is lost; and exclude that directory from whatever cleans up "
            "temporary files, or choose another one (spark.local.dir; SPARK_LOCAL_DIRS of a standalone worker)",
        )
    return None


def of_tables(query: str, cause: BaseException | None, lake: str) -> ActivityError | None:
    """Say which table has lost files, of those that a stream computes, reads or looks into; None: something else.

    delta-rs and Arrow name the file in words of their own, and whether it is lost only the log tells. delta-rs, which
    merges, has one exception for all that it meets, without the file's name.
    """
    spec = topology.spec(query)
    if isinstance(cause, FileNotFoundError):
        text = f"{cause} {cause.filename or ''}"
        fault = missing.first_of(lake, (table for table in Table if f"{table.value}/" in text))
    elif isinstance(cause, DeltaError) and spec in topology.following():
        fault = missing.first_of(lake, spec.telling)
    else:
        return None
    return None if fault is None else _of_source(query, fault)


def of_feed(query: str, text: str) -> ActivityError | None:
    """Say what a change feed has lost; None when it was something else."""
    if TABLE_PUT_BACK in text:
        return TransientError(
            f"{query}: a table that it reads was restored to an earlier version while it ran",
            remedy="start again: the start compares the streams with their tables, and says how to go on",
        )
    if any(words in text for words in FILES_GONE):
        return ChangeFeedLost(
            f"{query}: files are gone of a table that it reads or writes",
            remedy=_without_feed(query),
        )
    return None


def of_executors(query: str, text: str) -> ActivityError | None:
    """Say which executor the others did not reach; None when it was something else."""
    if NOT_FETCHED not in text or (found := UNREACHED.search(text)) is None:
        return None
    host = found["host"] or found["address"]
    return TransientError(
        f"{query}: executors did not get data from the one on {host}, port {found['port']}",
        remedy=f"see whether it runs, and for how long; if it does, {reach.CONNECT}",
    )


def _without_feed(query: str) -> str:
    """Say how a stream goes on when what it had to read is gone."""
    spec = topology.spec(query)
    if spec.is_publisher:
        return f"find out what removed them; `activity resync {query} --reason …` sends what differs"
    if spec in topology.following():
        return f"{_builds_again(query)}; they are not kept for a stream that is off"
    return f"find out what removed them; {PUT_BACK}: nothing was skipped"


def _without_rows(query: str) -> str:
    """Say how a table comes back that follows from others."""
    return (
        f"find out what removed them, and {PUT_BACK}; or stop all streams, move the table's folder away and run "
        f"`activity rebuild --stream {query}`, which computes it again, before any stream is started"
    )


def _builds_again(query: str) -> str:
    sources = " and ".join(table.label for table in topology.spec(query).sources)
    return f"`activity recover {query} --reason …` builds its table again from {sources}"


def of_kafka(query: str, cause: BaseException | None, text: str, settings: Settings) -> ActivityError | None:
    """Say what Kafka refused or has lost; None when it was something else."""
    if isinstance(cause, OffsetsLost) or (topology.spec(query).topics and any(words in text for words in OFFSETS_GONE)):
        return offsets_lost(query, text, settings)
    refusals = (line.strip() for line in text.splitlines() if any(words in line for words in faults.JAVA_REFUSALS))
    if (line := next(refusals, None)) is None:
        return None
    return faults.refused(settings, line, str(query), is_signed_in="AuthorizationException" in line)


def planned_by_another(query: str, fencing_epoch: Callable[[], int | None]) -> ActivityError:
    """Say whose the stream is now that two drivers have planned a batch of it."""
    try:
        fencing_epoch()
    except LeaseLost as lost:
        return lost
    return TransientError(
        f"{query}: a zombie, a driver that was frozen, planned a batch in this stream's checkpoint when it woke",
        remedy="start again: the batch was not begun here, and is processed then",
    )


def offsets_lost(query: str, text: str, settings: Settings) -> ActivityError:
    """Name what Kafka has lost; where it has it again by now, say what was said."""
    try:
        loss.check(settings, topology.spec(query))
    except ActivityError as fault:
        return fault
    first = next((line for line in text.splitlines() if "offset" in line.lower()), text.splitlines()[0])
    return OffsetsLost(
        f"{query}: Kafka no longer has offsets that were never landed: {first}",
        remedy="find out what removed them; nothing was skipped",
    )


def disk_full(settings: Settings) -> DiskFull:
    """Say that there is no space left for the lake."""
    return DiskFull(f"no space left on the disk of {settings.lake}", remedy=FREE_SPACE)
