"""A lake whose bronze is fed record by record, and whose other queries are the real ones, on checkpoints of their own.

Only the topics are missing: the view is a list, and publish a batch whenever a test says so.
"""

from __future__ import annotations

import copy
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from customer_activity import application
from customer_activity.catalog import Table
from customer_activity.lake import delta
from support.pipeline import copied_lake
from support.quick_pipeline import QuickPipeline
from support.records import Record
from support.streams import Query

STREAMS = [query for query in Query if query not in (Query.BRONZE, Query.PUBLISH)]
REMEMBERED = ("log", "view", "batches", "cursors", "versions")


@dataclass
class StreamingPipeline(QuickPipeline):
    """All queries on one lake, those between the topics as a driver runs them."""

    def land(self, *records: Record) -> None:
        """Put records into bronze."""
        self.send(*records)
        self.hop(Query.BRONZE)

    def stream(self, *queries: Query) -> None:
        """Let queries take what is there, and end: silver, gold and what is behind them when none is named."""
        application.host(self.spark, self.settings, queries or STREAMS, threading.Event(), available_now=True)

    def publish(self) -> dict[str, dict[str, Any] | None]:
        """Publish what gold has; return what went out, by key."""
        self.restart()  # a driver begins: another gold may have taken the place of the one before
        before, marker = len(self.view.records), self.view.marker
        if marker is not None and marker.table_id != delta.table_id(self.settings.lake, Table.ACTIVITY_CHANGES):
            self.cursors.pop((Query.PUBLISH, Table.ACTIVITY_CHANGES), None)  # a first batch begins with version 0
        self.hop(Query.PUBLISH)
        sent = self.view.records[before:]
        assert len(dict(sent)) == len(sent)
        return dict(sent)

    def copied(self, folder: Path) -> StreamingPipeline:
        """Return one like this on a lake of its own."""
        kept = {"quality_docs": str(folder / "docs"), "max_bad_share": self.settings.max_bad_share}
        other = StreamingPipeline(self.spark, copied_lake(Path(self.settings.lake), folder, **kept))
        for name in REMEMBERED:
            setattr(other, name, copy.deepcopy(getattr(self, name)))
        return other
