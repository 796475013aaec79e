"""What commits said: the log's and those it has no longer, each under its own version whoever writes meanwhile."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyarrow import fs

from customer_activity.catalog import Table, history_path, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import delta, history
from customer_activity.settings import Settings
from customer_activity.verification import lake as verified
from support.streams import Query

TABLE = Table.PURCHASES


def commit(lake: str, note: object) -> None:
    write_deltalake(
        table_path(lake, TABLE),
        arrow_schema(TABLE).empty_table(),
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": json.dumps(note)}),
    )


@pytest.fixture
def lake(settings: Settings) -> str:
    """Return a lake in which silver's batch n is version n of a table."""
    delta.ensure_tables(settings.lake)
    for number in range(1, 6):
        commit(settings.lake, {"query": "silver", "batch_id": number})
    return settings.lake


def batches(said: list[dict[str, str]]) -> dict[int, int | None]:
    return {int(entry["version"]): json.loads(entry.get("userMetadata", "{}")).get("batch_id") for entry in said}


def test_commits_that_come_meanwhile_move_no_version(lake: str) -> None:
    opened = DeltaTable(table_path(lake, TABLE))
    for number in (6, 7):
        commit(lake, {"query": "silver", "batch_id": number})
    expected = {0: None, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    assert batches(list(history.log_entries(lake, TABLE, opened.version()))) == expected
    noted = [note["batch_id"] for note in verified.commits(lake, TABLE, opened).metadata if "batch_id" in note]
    assert sorted(noted) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("first", [0, 1, 4])
def test_a_log_that_is_far_away_is_told_as_one_that_is_near(
    first: int, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several entries are asked for at once there."""
    for version in range(first):
        Path(table_path(lake, TABLE), "_delta_log", f"{version:020}.json").unlink()
    near = list(history.log_entries(lake, TABLE, 5))
    away = fs.SubTreeFileSystem(lake, fs.LocalFileSystem())
    monkeypatch.setattr(history, "filesystem", lambda location: (away, str(Path(location).relative_to(lake))))
    assert list(history.log_entries(lake, TABLE, 5)) == near
    assert [said["version"] for said in near] == [*range(5, first - 1, -1)]


@pytest.mark.parametrize(
    ("upto", "batch"),
    [
        pytest.param(None, 5, id="the newest of all"),
        pytest.param(3, 3, id="up to a version"),
        pytest.param(0, None, id="before the first"),
    ],
)
def test_a_querys_newest_note(lake: str, upto: int | None, batch: int | None) -> None:
    commit(lake, {"query": "maintenance"})
    commit(lake, "somebody else's")
    assert history.latest_metadata(lake, TABLE, Query.SILVER, upto).get("batch_id") == batch
    assert history.latest_metadata(lake, TABLE, Query.GOLD) == {}


def test_log_and_history_are_whole_together(lake: str) -> None:
    entries = [(version, f"{table_path(lake, TABLE)}/_delta_log/{version:020}.json") for version in range(5)]
    history.keep(lake, TABLE, entries)
    for _, path in entries:
        Path(path).unlink()
    said = [*history.log_entries(lake, TABLE, 5), *history.archived_entries(lake, TABLE)]
    assert batches(said) == {0: None} | {number: number for number in range(1, 6)}


def keep_and_remove(lake: str, versions: range) -> None:
    """Shorten the log by some entries, as maintenance does."""
    entries = [(version, f"{table_path(lake, TABLE)}/_delta_log/{version:020}.json") for version in versions]
    history.keep(lake, TABLE, entries)
    for _, path in entries:
        Path(path).unlink()


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Have the system refuse to write more into a file, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_history_whose_writing_failed_is_not_there(lake: str) -> None:
    entries = [(1, f"{table_path(lake, TABLE)}/_delta_log/{1:020}.json")]
    with files_of_at_most(50), pytest.raises(OSError, match="too large"):
        history.keep(lake, TABLE, entries)
    assert list(history.archived_entries(lake, TABLE)) == []
    assert list(Path(history_path(lake, TABLE)).glob("*.jsonl")) == []
    history.keep(lake, TABLE, entries)
    with files_of_at_most(50), pytest.raises(OSError, match="too large"):
        history.keep(lake, TABLE, entries)
    assert batches(list(history.archived_entries(lake, TABLE))) == {1: 1}


@pytest.mark.parametrize("keeps", [0, 0.4, 0.999], ids=["nothing", "some lines", "nearly all"])
def test_a_file_that_a_former_release_left_cut_off_is_made_up_for_by_the_next(lake: str, keeps: float) -> None:
    folder = Path(history_path(lake, TABLE))
    history.keep(
        lake, TABLE, [(version, f"{table_path(lake, TABLE)}/_delta_log/{version:020}.json") for version in (0, 1, 2)]
    )
    (torn,) = folder.iterdir()
    whole = torn.read_bytes()
    torn.write_bytes(whole[: int(len(whole) * keeps)])

    keep_and_remove(lake, range(4))

    said = [*history.log_entries(lake, TABLE, 5), *history.archived_entries(lake, TABLE)]
    assert batches(said) == {0: None} | {number: number for number in range(1, 6)}
    assert verified.commits(lake, TABLE, DeltaTable(table_path(lake, TABLE))).first_version == 0


def test_a_draft_is_no_history(lake: str) -> None:
    keep_and_remove(lake, range(2))
    Path(history_path(lake, TABLE), "0-9.jsonl.draft").write_text('{"version"')
    assert batches(list(history.archived_entries(lake, TABLE))) == {0: None, 1: 1}
    assert verified.commits(lake, TABLE, DeltaTable(table_path(lake, TABLE))).first_version == 0
