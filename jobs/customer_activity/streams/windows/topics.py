"""Topics of windows: each figure as it runs, and each once when it is final.

Reads      the change feeds of gold.daily_customer_purchases, weekly_customer_purchases and customer_sessions
Writes     Kafka: for each table a topic of running figures and one of final ones, each a stream of its own
Grain      running: one record per window that a version of the table changed, or null when the window is gone (a late
           purchase has joined two sessions). Final: one record per window, when it closes
On restart what the marker covers is out already and is left out

A final figure that is corrected afterwards, on purpose (`activity reprocess`, `activity rebuild --apply`), goes out
once more: whoever has used the first one learns of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow.compute as pc

from customer_activity.catalog import PROGRESS_ROLE, Table
from customer_activity.contracts import published
from customer_activity.engine.closing import IS_FINAL
from customer_activity.engine.stream import Record
from customer_activity.settings import Settings
from customer_activity.streams.publish.changed import Changed
from customer_activity.streams.publish.published import Published
from customer_activity.streams.windows import daily, sessions, weekly
from customer_activity.topology import Reads, Spec, Topic, Writes

FINAL = "_final"  # at the end of the name of a stream, and of its topic's role


def running(key: tuple[str, ...], rows: Changed, _settings: Settings) -> Iterator[tuple[int, Record]]:
    """Make a record of each window as it is now; null where it is gone."""
    pairs = zip(published.keys(rows.rows, key), published.values(rows.rows), rows.is_gone.to_pylist(), strict=True)
    for number, (name, value, is_gone) in enumerate(pairs):
        yield number, (name, None if is_gone else value)


def final(key: tuple[str, ...], rows: Changed, _settings: Settings) -> Iterator[tuple[int, Record]]:
    """Make a record of each window that has become final, and of each that was and is another one now.

    One that is final no longer, since it was recomputed with another grace, is deleted.
    """
    was_final = pc.fill_null(rows.before.column(IS_FINAL), fill_value=False)
    is_final = pc.and_(rows.rows.column(IS_FINAL), pc.invert(rows.is_gone))
    numbers = pc.indices_nonzero(pc.or_(was_final, is_final))
    chosen = Changed(*(each.take(numbers) for each in (rows.rows, pc.invert(is_final), rows.before)))
    for number, (_, record) in zip(numbers.to_pylist(), running(key, chosen, _settings), strict=True):
        yield number, record


def topic(name: str, table: Table, key: tuple[str, ...], *, is_final: bool) -> Published:
    """Return the stream that publishes the windows of a table; its topic's role has its name."""
    what = "figure once when it is final" if is_final else "change of a figure"
    spec = Spec(
        f"publish_{name}",
        reads=(Reads(table, progress=Topic(PROGRESS_ROLE)),),
        writes=(
            Writes(Topic(name), key=key, expected="FROM stored WHERE is_final" if is_final else "FROM stored"),
            Writes(Topic(PROGRESS_ROLE)),
            Writes(Table.QUARANTINE),
        ),
        promises=f"exactly once for read_committed consumers: each {what}, with the progress marker in one transaction",
        is_behind=True,
        is_gated=True,
        is_optional=True,
    )
    return Published(spec, key, partial(final if is_final else running, key))


STREAMS = tuple(
    topic(stream.spec.name + suffix, stream.target, stream.key, is_final=bool(suffix))
    for stream in (daily.STREAM, weekly.STREAM, sessions.STREAM)
    for suffix in ("", FINAL)
)
