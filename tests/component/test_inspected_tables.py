"""What tables and topics hold, as their logs and offsets say."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.errors import BrokerUnavailable
from customer_activity.inspection import tables, topics
from customer_activity.inspection.topics import Topic
from customer_activity.settings import Settings
from support.inspected import NOON, strip, write_times


class TestTopics:
    def test_behind_counts_what_comes_after_the_offsets_read(self) -> None:
        topic = Topic("t", {0: (0, 100), 1: (40, 60), 2: (0, 0)}, NOON)
        assert topic.records == 120
        assert topic.behind({}) == 120
        assert topic.behind({0: 90, 1: 10, 2: 0}) == 10 + 20  # partition 1 begins after what was read
        assert topic.behind({0: 100, 1: 61, 2: 0}) == 0

    def test_a_broker_that_is_down_is_said_at_once(self, settings: Settings) -> None:
        with pytest.raises(BrokerUnavailable, match="localhost:1"):
            topics.topics(settings, ["purchase-events"])


class TestTables:
    def test_contents_come_from_the_log(self, settings: Settings) -> None:
        write_times(settings, Table.PURCHASES, 0, 30)
        write_times(settings, Table.PURCHASES, 10)

        found = tables.contents(settings.lake, Table.PURCHASES)

        assert found is not None
        assert (found.rows, found.files, found.version, found.newest) == (3, 2, 1, NOON + timedelta(seconds=30))

    def test_files_without_statistics_are_read(self, settings: Settings) -> None:
        write_times(settings, Table.PURCHASES, 0, 30)
        log = Path(table_path(settings.lake, Table.PURCHASES)) / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        log.write_text("\n".join(json.dumps(strip(action)) for action in actions))

        found = tables.contents(settings.lake, Table.PURCHASES)

        assert found is not None
        assert (found.rows, found.newest) == (2, NOON + timedelta(seconds=30))

    def test_an_empty_table_has_no_newest_row(self, settings: Settings) -> None:
        write_times(settings, Table.ACTIVITY)
        found = tables.contents(settings.lake, Table.ACTIVITY)
        assert found is not None
        assert (found.rows, found.newest) == (0, None)
