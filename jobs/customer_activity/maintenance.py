"""Upkeep of tables while the streams run: checkpoints of their logs, compaction of small files.

delta-rs does both beside the streams, without a Spark job. A compaction changes no row and no reader of the change
feed sees it. It commits to a table that the driver's JVM also commits to, and on a local disk two processes' commits
are not safe from each other (ADR 4): the caller holds the table's writers while it runs.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.checksums import write_checksum
from customer_activity.storage import filesystem

COMMITS_A_CHECKPOINT = 100  # a reader that opens the table reads so many small log files at most
SMALL_FILES = 100  # compacted when there are so many: a few minutes of batches
# Small enough that a writer waits for some tenths of a second only: with 32 MB every compaction rewrote most of the one
# before, and bronze waited five seconds. Larger files are for a rewrite off the streams.
SMALL_BYTES = 512 << 10
COMPACTED_BYTES = 2 * SMALL_BYTES


def checkpoint(lake: str, table: Table, *, every: int = COMMITS_A_CHECKPOINT) -> None:
    """Write a checkpoint of a table's log that has grown by so many commits, and remove expired log files.

    delta-rs does it in some hundredths of a second, where Spark does it inside a commit.
    """
    log = DeltaTable(table_path(lake, table))
    if log.version() - _last_checkpoint(lake, table) >= every:
        log.create_checkpoint()
        log.cleanup_metadata()


def _last_checkpoint(lake: str, table: Table) -> int:
    """Return the version of a table's newest checkpoint; 0 when it has none."""
    files, folder = filesystem(table_path(lake, table))
    try:
        with files.open_input_stream(f"{folder}/_delta_log/_last_checkpoint") as stream:
            return int(json.loads(stream.read())["version"])
    except FileNotFoundError:
        return 0


def needs_compaction(lake: str, table: Table) -> bool:
    """Whether a table has SMALL_FILES small files."""
    sizes = pa.table(DeltaTable(table_path(lake, table)).get_add_actions()).column("size_bytes")
    return bool((pc.sum(pc.less(sizes, SMALL_BYTES)).as_py() or 0) >= SMALL_FILES)


def compact(lake: str, table: Table) -> int | None:
    """Rewrite a table's small files as few; nobody may write to it meanwhile.

    Returns:
        The new version; None when there was nothing to do.
    """
    path = table_path(lake, table)
    log = DeltaTable(path)
    done = log.optimize.compact(
        target_size=COMPACTED_BYTES,
        max_concurrent_tasks=1,
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps({"query": "maintenance"})}),
    )
    if not done["numFilesRemoved"]:
        return None
    write_checksum(path, log.version())
    return log.version()
