"""Verification of tables whose files have texts as Arrow's views, as delta-rs leaves them until they are repaired.

A replay or a merge that is killed leaves such files; whoever verifies then need not wait for the next driver.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.settings import Settings
from customer_activity.verification import lake
from customer_activity.verification.lake import Tombstone
from customer_activity.verification.verify import verify
from support.tables import opened
from support.world import World, failing
from support.world_rows import PROFILES, PURCHASES


def rewritten(path: str, world: World) -> None:
    """Write a world's tables, and have delta-rs write their files once more."""
    world.write(path)
    for table, rows in world.tables.items():
        column = "topic" if "topic" in rows[0] else "customer_id"
        before = set(files_of(path, table))
        opened(path, table).update({column: column})
        written = set(files_of(path, table)) - before
        assert {pq.read_schema(file).field(column).type for file in written} == {pa.string_view()}


def files_of(path: str, table: Table) -> list[Path]:
    return list(Path(table_path(path, table)).glob("*.parquet"))


@pytest.mark.parametrize("sample", [None, 10], ids=["all", "a sample"])
def test_it_is_as_equal_as_before(sample: int | None, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    rewritten(settings.lake, world)
    world.serve(monkeypatch)
    assert failing(verify(settings, settle_seconds=0, sample=sample)) == set()


@pytest.mark.parametrize(
    ("table", "topic", "found"),
    [
        pytest.param(Table.PROFILE_EVENTS, PROFILES, [(1, 1, b"C4")], id="of bronze"),
        pytest.param(Table.PROFILE_EVENTS, "another", [], id="of another topic"),
        pytest.param(Table.QUARANTINE, PURCHASES, [(0, 9, b"P9")], id="of quarantine"),
    ],
)
def test_tombstones_are_found_by_topic(table: Table, topic: str, found: list[Tombstone], settings: Settings) -> None:
    world = World()
    world.tables[Table.QUARANTINE].append(
        world.tables[Table.QUARANTINE][0] | {"offset": 9, "value": None, "reason": "missing_value"}
    )
    rewritten(settings.lake, world)
    assert list(lake.tombstones(opened(settings.lake, table), topic)) == found


def test_what_is_too_large_is_found_by_topic(settings: Settings) -> None:
    world = World()
    nothing = dict.fromkeys(world.tables[Table.QUARANTINE][0])
    world.tables[Table.QUARANTINE] += [
        nothing | {"reason": reason, "topic": topic, "key": topic.encode(), "value": reason.encode()}
        for topic, reason in (("daily", "too_large_to_publish"), ("daily", "not_json"), ("x", "too_large_to_publish"))
    ]
    rewritten(settings.lake, world)
    too_large = lake.too_large(opened(settings.lake, Table.QUARANTINE), "daily")
    assert list(too_large) == [(b"daily", b"too_large_to_publish")]
