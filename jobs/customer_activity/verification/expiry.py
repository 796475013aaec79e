"""What a topic must still have although its oldest records have expired: what was published after those that are left.

Kafka removes records from the beginning of a partition alone. So whatever went out after the oldest record that each
partition still has is there, and a row went out after it was committed: the table's change feed tells when that was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from customer_activity.settings import Settings
from customer_activity.verification import kafka_input

BEFORE, AFTER = ("delete", "update_preimage"), ("insert", "update_postimage")
OF_FEED = ["_change_type", "_commit_version", "_commit_timestamp"]


def complete_since(
    settings: Settings, topic: str, begins: Mapping[int, int], oldest: Mapping[int, int | None]
) -> int | None:
    """Return since when no record has expired from a topic, in milliseconds since 1970; None where that is not known.

    Args:
        settings: which broker.
        topic: which topic.
        begins: the first offset that each partition has.
        oldest: the timestamp of the first record of each partition that has any.

    Raises:
        BrokerUnavailable: Kafka does not answer.
    """
    kept_for = kafka_input.kept_for(settings, topic)
    at_most = None if kept_for is None else int(time.time() * 1000) - kept_for
    moments = [oldest.get(partition, at_most) for partition, begin in begins.items() if begin]
    known = [moment for moment in moments if moment is not None]
    return max(known) if known and len(known) == len(moments) else None


def changed_since(table: DeltaTable, moment: int) -> tuple[pa.Table, pa.Table] | None:
    """Return the rows that commits after a moment replaced, and those that they wrote, as far back as files are there.

    None where there are none.
    """
    versions = sorted(entry["version"] for entry in table.history() if entry["timestamp"] > moment)
    while versions:
        try:
            found = pa.table(table.load_cdf(starting_version=versions[0], ending_version=table.version()))
        except (DeltaError, OSError, pa.ArrowInvalid):  # maintenance has removed the files of what is older
            versions = versions[max(1, len(versions) // 2) :]
            continue
        is_view = pa.types.is_string_view  # texts of a feed, which Arrow does not filter
        texts = [each.with_type(pa.string()) if is_view(each.type) else each for each in found.schema]
        feed = found.cast(pa.schema(texts))
        rows, kind = feed.drop_columns(OF_FEED), feed.column(OF_FEED[0])
        return rows.filter(pc.is_in(kind, pa.array(BEFORE))), rows.filter(pc.is_in(kind, pa.array(AFTER)))
    return None


def required(before: Iterator[tuple[bytes, Any]], after: Iterator[tuple[bytes, Any]]) -> set[bytes]:
    """Return the keys of records that rows made which were not there before as they are."""
    known: dict[bytes, list[Any]] = {}
    for key, row in before:
        known.setdefault(key, []).append(row)
    return {key for key, row in after if row not in known.get(key, ())}
