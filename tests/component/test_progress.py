"""Where a query is, as its checkpoint says, and where a lake is."""

from __future__ import annotations

import pytest

from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint
from customer_activity.errors import CheckpointMismatch
from customer_activity.settings import Settings
from customer_activity.storage.filesystem import filesystem
from support.inspected import delta_offset, write_batch, write_times
from support.streams import Query


class TestCheckpoints:
    def test_progress_is_that_of_the_newest_committed_batch(self, settings: Settings) -> None:
        write_batch(settings, Query.BRONZE, 9, {"purchase-events": {"0": 5, "1": 6}})
        write_batch(settings, Query.BRONZE, 10, {"purchase-events": {"0": 50, "1": 60}})
        write_batch(settings, Query.BRONZE, 11, {"purchase-events": {"0": 500, "1": 600}}, is_committed=False)

        progress = checkpoint.progress(settings.lake, Query.BRONZE)

        assert progress is not None
        assert (progress.batch_id, progress.topic_offsets) == (10, {"purchase-events": {0: 50, 1: 60}})

    def test_there_is_none_before_the_first_commit(self, settings: Settings) -> None:
        assert checkpoint.progress(settings.lake, Query.GOLD) is None
        write_batch(settings, Query.GOLD, 0, "-", is_committed=False)
        assert checkpoint.progress(settings.lake, Query.GOLD) is None

    @pytest.mark.parametrize(
        ("version", "index", "is_snapshot", "read"),
        [
            pytest.param(12, -1, False, 11, id="the version is the next to read"),
            pytest.param(12, 0, False, 12, id="a commit with change files was read whole"),
            pytest.param(12, 4, True, 11, id="a snapshot is read up to a file of it"),
        ],
    )
    def test_a_delta_offset_tells_the_newest_version_read(
        self, settings: Settings, version: int, index: int, is_snapshot: bool, read: int
    ) -> None:
        table = write_times(settings, Table.SUMMARIES, 0)
        write_batch(settings, Query.GOLD, 3, delta_offset(table, version, index, is_snapshot=is_snapshot), "-")

        progress = checkpoint.progress(settings.lake, Query.GOLD)

        assert progress is not None
        assert progress.table_versions == {str(table.metadata().id): read}

    @pytest.mark.parametrize("line", ['{"purchase-events": {"0":', "[1]", '{"reservoirId": "x"}'])
    def test_a_damaged_offsets_file_is_named(self, settings: Settings, line: str) -> None:
        write_batch(settings, Query.SILVER, 2, line)
        with pytest.raises(CheckpointMismatch, match=r"silver.*offsets/2"):
            checkpoint.progress(settings.lake, Query.SILVER)

    def test_an_s3_lake_is_on_the_file_system_of_s3(self) -> None:
        pytest.importorskip("pyarrow.fs").S3FileSystem  # noqa: B018 - not every build of pyarrow has it
        files, path = filesystem("s3a://bucket/lake/_checkpoints/bronze?region=eu-west-1")
        assert (files.type_name, path) == ("s3", "bucket/lake/_checkpoints/bronze")
