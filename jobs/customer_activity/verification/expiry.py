"""What a topic must still have although its oldest records have expired: what was published after those that are left.

Kafka removes records from the beginning of a partition alone. So whatever went out after the oldest record that each
partition still has is there, and a row went out after it was committed: the table's change feed tells when that was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity.catalog import Table
from customer_activity.verification import lake

VERSIONS_AT_A_TIME = 50  # of a change feed: what they changed is in memory at once
CLOCK_MILLIS = 60_000  # by so much the clocks of who commits and of who publishes may differ
NOT_FOUND = "not found"  # in object_store's words for a file that is gone
# What commits added or changed; a row that one rewrote as it was is not among them.
CHANGED = """
WITH told AS (SELECT * EXCLUDE (_change_type, _commit_timestamp), _change_type AS kind FROM feed)
SELECT * EXCLUDE (_commit_version) FROM (
    SELECT * EXCLUDE (kind) FROM told WHERE kind IN ('insert', 'update_postimage')
    EXCEPT SELECT * EXCLUDE (kind) FROM told WHERE kind IN ('delete', 'update_preimage')
)
"""


def complete_since(begins: Mapping[int, int], oldest: Mapping[int, int | None]) -> int | None:
    """Return since when no record has expired from a topic, in milliseconds since 1970; None where that is not known.

    It is not where a partition has no record left, or its first one no time.

    Args:
        begins: the first offset that each partition has.
        oldest: the timestamp of the first record of each partition that has any.
    """
    moments = [oldest.get(partition) for partition, begin in begins.items() if begin]
    known = [moment for moment in moments if moment is not None]
    return max(known) + CLOCK_MILLIS if known and len(known) == len(moments) else None


def changed_since(path: str, name: Table, table: DeltaTable, moment: int) -> Iterator[pa.Table]:
    """Yield the rows that commits after a moment added or changed, newest first, as far back as log and files go.

    Args:
        path: of the lake.
        name: which table.
        table: the same, open at the version to begin with.
        moment: in milliseconds since 1970.

    Raises:
        DeltaError, OSError: storage does not answer.
    """
    newer = takewhile(lambda commit: commit["timestamp"] > moment, lake.log(path, name, table.version()))
    versions = [commit["version"] for commit in newer]
    for number in range(0, len(versions), VERSIONS_AT_A_TIME):
        part = versions[number : number + VERSIONS_AT_A_TIME]
        if (found := _changed(table, part[-1], part[0])) is not None:
            yield found
            continue
        for version in part:  # maintenance has removed files of one of them, and of all before it
            if (found := _changed(table, version, version)) is None:
                return
            yield found


def _changed(table: DeltaTable, first: int, last: int) -> pa.Table | None:
    """Return what some versions changed; None if any of their files has been removed."""
    try:
        feed = pa.table(table.load_cdf(starting_version=first, ending_version=last))
    except (DeltaError, OSError, pa.ArrowInvalid) as error:
        if NOT_FOUND in str(error):
            return None
        raise
    with duckdb.connect(":memory:") as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("feed", feed)
        return database.sql(CHANGED).to_arrow_table()
