"""Who may read what lies beside the tables: its owner alone, whatever the umask is, and whoever made it before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.engine import heartbeat
from customer_activity.lake import delta
from customer_activity.lake.delta import PRIVATE_FOLDERS
from customer_activity.settings import Settings


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.fixture(autouse=True)
def _open_to_all() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.parametrize("is_there", [False, True], ids=["a new lake", "a lake of a former release"])
def test_nobody_else_reads_what_lies_beside_the_tables(settings: Settings, is_there: bool) -> None:
    for folder in PRIVATE_FOLDERS if is_there else ():
        Path(settings.lake, folder).mkdir(parents=True)
    delta.ensure_tables(settings.lake)
    found = {folder: rights(Path(settings.lake, folder)) for folder in PRIVATE_FOLDERS}
    assert found == dict.fromkeys(("_index", "_state", "_checkpoints", "_history", "_audit", "_corrections"), 0o700)


def test_analysts_read_the_tables(settings: Settings) -> None:
    delta.ensure_tables(settings.lake)
    for path in (Path(settings.lake), *Path(table_path(settings.lake, Table.ACTIVITY)).rglob("*")):
        assert rights(path) & 0o044 == 0o044, path


def test_a_run_directory_of_ours_is_private_and_somebody_elses_folder_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    before = rights(tmp_path / "theirs")
    for name in ("ours", "theirs"):
        heartbeat.touch(tmp_path / name)
    assert (rights(tmp_path / "ours"), rights(tmp_path / "theirs")) == (0o700, before)
