"""What commits said: the log's and those it has no longer, each under its own version whoever writes meanwhile."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyarrow import fs

from customer_activity.catalog import Table, history_path
from customer_activity.lake import history
from customer_activity.verification import lake as verified
from support import tables
from support.streams import Query

TABLE = Table.PURCHASES


@pytest.fixture
def lake(lake: str) -> str:
    """Return a lake in which silver's batch n is version n of a table."""
    for number in range(1, 6):
        tables.append(lake, TABLE, batch_id=number)
    return lake


def batches(said: list[dict[str, str]]) -> dict[int, int | None]:
    return {int(entry["version"]): json.loads(entry.get("userMetadata", "{}")).get("batch_id") for entry in said}


def test_commits_that_come_meanwhile_move_no_version(lake: str) -> None:
    opened = tables.opened(lake, TABLE)
    for number in (6, 7):
        tables.append(lake, TABLE, batch_id=number)
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
        tables.entry(lake, TABLE, version).unlink()
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
    tables.append(lake, TABLE, query="maintenance")
    tables.commit(lake, TABLE, "somebody else's")
    assert history.latest_metadata(lake, TABLE, Query.SILVER, upto).get("batch_id") == batch
    assert history.latest_metadata(lake, TABLE, Query.GOLD) == {}


def test_log_and_history_are_whole_together(lake: str) -> None:
    keep_and_remove(lake, range(5))
    said = [*history.log_entries(lake, TABLE, 5), *history.archived_entries(lake, TABLE)]
    assert batches(said) == {0: None} | {number: number for number in range(1, 6)}


def keep(lake: str, versions: range) -> None:
    """Keep what some entries of the log say."""
    history.keep(lake, TABLE, [(version, str(tables.entry(lake, TABLE, version))) for version in versions])


def keep_and_remove(lake: str, versions: range) -> None:
    """Shorten the log by some entries, as maintenance does."""
    keep(lake, versions)
    for version in versions:
        tables.entry(lake, TABLE, version).unlink()


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
    with files_of_at_most(50), pytest.raises(OSError, match="too large"):
        keep(lake, range(1, 2))
    assert list(history.archived_entries(lake, TABLE)) == []
    assert list(Path(history_path(lake, TABLE)).glob("*.jsonl")) == []
    keep(lake, range(1, 2))
    with files_of_at_most(50), pytest.raises(OSError, match="too large"):
        keep(lake, range(1, 2))
    assert batches(list(history.archived_entries(lake, TABLE))) == {1: 1}


@pytest.mark.parametrize("keeps", [0, 0.4, 0.999], ids=["nothing", "some lines", "nearly all"])
def test_a_file_that_a_former_release_left_cut_off_is_made_up_for_by_the_next(lake: str, keeps: float) -> None:
    keep(lake, range(3))
    (torn,) = Path(history_path(lake, TABLE)).iterdir()
    whole = torn.read_bytes()
    torn.write_bytes(whole[: int(len(whole) * keeps)])

    keep_and_remove(lake, range(4))

    said = [*history.log_entries(lake, TABLE, 5), *history.archived_entries(lake, TABLE)]
    assert batches(said) == {0: None} | {number: number for number in range(1, 6)}
    assert verified.commits(lake, TABLE, tables.opened(lake, TABLE)).first_version == 0


def test_a_draft_is_no_history(lake: str) -> None:
    keep_and_remove(lake, range(2))
    Path(history_path(lake, TABLE), "0-9.jsonl.draft").write_text('{"version"')
    assert batches(list(history.archived_entries(lake, TABLE))) == {0: None, 1: 1}
    assert verified.commits(lake, TABLE, tables.opened(lake, TABLE)).first_version == 0
