"""Keyed state in the lake: what was added is found, whatever came before; what cannot be relied on is made again."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from importlib.util import module_from_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.errors import ForeignCommit
from customer_activity.lake import delta, deltalog
from customer_activity.lake.feeds import Added
from customer_activity.maintenance import maintenance
from customer_activity.state import catalogue, sorted_runs
from customer_activity.state.sorted_runs import Run
from customer_activity.streams.silver import purchases, tasks
from support.streams import Query
from support.tables import append, entry, opened

Rows = dict[tuple[int, int], int]

MADE_BY = "these tests"
ROW_BYTES = 24
SCHEMA = pa.schema([(name, pa.int64()) for name in ("hi", "lo", "value")])

# Few values, so that fingerprints share a half, and the extremes of what a half can be.
HALF = st.sampled_from([-(2**63), -(2**63) + 1, -1, 0, 1, 2, 2**63 - 1])
ROWS = st.dictionaries(st.tuples(HALF, HALF), st.integers(0, 9), max_size=8)


def table(rows: Rows) -> pa.Table:
    high, low = ([key[half] for key in rows] for half in (0, 1))
    return pa.table({"hi": high, "lo": low, "value": list(rows.values())}, SCHEMA)


@settings(max_examples=80)
@given(st.lists(ROWS, max_size=12), ROWS, st.sampled_from([1, 2, 5, 1_000]))
def test_the_newest_row_of_each_key_is_found_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, adding: list[Rows], others: Rows, piece: int
) -> None:
    folder = str(tmp_path_factory.mktemp("runs"))
    known: Rows = {}
    runs: list[Run] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sorted_runs, "PIECE_BYTES", piece * ROW_BYTES)
        for rows in adding:
            runs = sorted_runs.added(folder, runs, table(rows))
            known |= rows
    keys = list(known | others)
    high, low = sorted_runs.halves(table(known | others))
    found: Rows = {}
    for which, held in sorted_runs.look_up(folder, runs, high, low):
        for number, value in zip(which.tolist(), held.column("value").to_pylist(), strict=True):
            assert keys[number] not in found  # one row a key
            found[keys[number]] = value
    assert found == known


def test_a_bucket_has_few_runs_however_often_it_grows(tmp_path: Path) -> None:
    runs: list[Run] = []
    for number in range(64):
        runs = sorted_runs.added(str(tmp_path), runs, table({(number, 0): number}))
    assert sum(run.rows for run in runs) == 64
    assert len(runs) <= 6  # the binary digits of 64, and not one a time


def test_runs_are_merged_in_pieces_however_large_a_bucket_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task holds a piece of each run, all of a few rows: of a thousand million ids a bucket has 16 million."""
    monkeypatch.setattr(sorted_runs, "PIECE_BYTES", 10 * ROW_BYTES)
    runs: list[Run] = []
    for first in (0, 1):
        runs = sorted_runs.added(str(tmp_path), runs, table({(2 * number + first, 0): 0 for number in range(100)}))
    (run,) = runs
    held = sorted_runs.read(str(tmp_path), run.path).to_batches()
    assert (run.rows, len(held)) == (200, 20)
    assert max(map(len, held)) <= 10 + 2
    highs = np.concatenate([sorted_runs.halves(piece)[0] for piece in held])
    assert highs.tolist() == list(range(200))


def test_a_piece_is_as_long_where_few_rows_are_much_longer_than_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where customers that are gone come together with fewer who have long texts."""
    monkeypatch.setattr(sorted_runs, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(sorted_runs, "GROWTH", 10)
    schema = pa.schema([("hi", pa.int64()), ("lo", pa.int64()), ("text", pa.string())])

    def rows(keys: range, text: str) -> pa.Table:
        return pa.table({"hi": list(keys), "lo": [0] * len(keys), "text": [text] * len(keys)}, schema)

    runs = sorted_runs.added(str(tmp_path), [], rows(range(0, 2_000, 2), ""))
    runs = sorted_runs.added(str(tmp_path), runs, rows(range(1, 2_000, 20), "x" * 2_000))
    (run,) = runs
    held = sorted_runs.read(str(tmp_path), run.path).to_batches()
    assert run.rows == 1_100
    assert max(piece.nbytes for piece in held) < 2 * sorted_runs.PIECE_BYTES


def test_a_fingerprint_is_of_all_of_a_key() -> None:
    keys = ["P-1", "P-1\x00", "P-1\x00x", "", "\u00e9", "e\u0301", "p-1"]
    pairs = zip(*sorted_runs.fingerprints(pa.array(keys)), strict=True)
    assert len(set(pairs)) == len(keys)


def test_buckets_are_evenly_filled() -> None:
    high, _ = sorted_runs.fingerprints(pa.array([f"P-{number}" for number in range(64_000)]))
    found = np.bincount(sorted_runs.buckets(high), minlength=sorted_runs.BUCKETS)
    assert found.min() > 800
    assert found.max() < 1_200


def bought(number: int) -> dict[str, object]:
    return {"purchase_id": f"P-{number}", "partition": 0, "offset": number}


def place(lake: str, version: int) -> deltalog.Position:
    return deltalog.position(lake, Table.PURCHASES, delta.table_id(lake, Table.PURCHASES), version)


def past(lake: str, **how: bool) -> tuple[list[str], list[int]]:
    """Return which runs tell of silver.purchases, and which versions' files do besides."""
    newest = place(lake, deltalog.newest_version(lake, Table.PURCHASES))
    found = catalogue.past(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: newest}, **how)
    versions = [file.version for file in found.files[Table.PURCHASES]]
    return [run.path for of in found.runs.values() for run in of], versions


@pytest.fixture
def noted(lake: str) -> tuple[str, Run]:
    """Return a lake whose third version of silver.purchases is in a run, and that run."""
    for number in range(3):
        append(lake, Table.PURCHASES, bought(number))
    run = sorted_runs.write(catalogue.folder(lake, Query.SILVER), table({(1, 1): 1}))
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 3)}, {0: [run]})
    return lake, run


def test_runs_tell_of_a_table_where_they_hold_it(noted: tuple[str, Run]) -> None:
    lake, run = noted
    assert past(lake) == ([run.path], [])


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param((purchases, "CONTENT_SQL", purchases.CONTENT_SQL.replace("VARCHAR", "TEXT")), id="how it is said"),
        pytest.param((purchases, "CONTENT", [pa.field("amount", pa.decimal128(18, 4))]), id="of which types"),
        pytest.param((sorted_runs, "digests", lambda texts: texts), id="how that is digested"),
    ],
)
def test_runs_whose_digests_were_made_otherwise_are_not_relied_on(
    monkeypatch: pytest.MonkeyPatch, changed: tuple[object, str, object]
) -> None:
    """A release that writes what a purchase says in another way would take each repeat for a conflict."""
    monkeypatch.setattr(*changed)
    assert tasks.__spec__ is not None
    assert tasks.__spec__.loader is not None
    tasks.__spec__.loader.exec_module(others := module_from_spec(tasks.__spec__))
    assert others.FORMAT != tasks.FORMAT


def test_what_came_since_is_read_from_its_files(noted: tuple[str, Run]) -> None:
    lake, run = noted
    for number in (3, 4):
        append(lake, Table.PURCHASES, bought(number))
    assert past(lake) == ([run.path], [4, 5])


def test_the_newest_catalogue_counts(noted: tuple[str, Run]) -> None:
    lake, run = noted
    append(lake, Table.PURCHASES, bought(3))
    newer = sorted_runs.write(catalogue.folder(lake, Query.SILVER), table({(2, 2): 2}))
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 4)}, {0: [run, newer]})
    assert past(lake) == ([run.path, newer.path], [])


def test_without_a_commit_of_ours_between_there_are_no_runs_and_all_files(lake: str) -> None:
    append(lake, Table.PURCHASES, bought(0))
    assert past(lake) == ([], [1])


def of_another_history(lake: str, _run: Run) -> None:
    catalogue.note(
        lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 3)._replace(commit="0123456789abcdef")}, {0: []}
    )
    next(Path(catalogue.folder(lake, Query.SILVER)).glob(f"*-{place(lake, 3).commit[:8]}.json")).unlink()


def of_another_table(lake: str, _run: Run) -> None:
    for file in Path(catalogue.folder(lake, Query.SILVER)).glob("*.json"):
        file.unlink()
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 3)._replace(table_id="another")}, {0: []})


def ahead(lake: str, _run: Run) -> None:
    entry(lake, Table.PURCHASES, 3).unlink()


def log_shortened(lake: str, _run: Run) -> None:
    append(lake, Table.PURCHASES, bought(3))
    opened(lake, Table.PURCHASES).create_checkpoint()
    entry(lake, Table.PURCHASES, 3).unlink()


def run_gone(lake: str, run: Run) -> None:
    Path(catalogue.folder(lake, Query.SILVER), run.path).unlink()


def run_cut(lake: str, run: Run) -> None:
    os.truncate(Path(catalogue.folder(lake, Query.SILVER), run.path), 100)


def of_another_contract(lake: str, _run: Run) -> None:
    (file,) = Path(catalogue.folder(lake, Query.SILVER)).glob("*.json")
    file.write_text(json.dumps({**json.loads(file.read_text(encoding="utf-8")), "made_by": "others"}), encoding="utf-8")


def catalogue_damaged(lake: str, _run: Run) -> None:
    (file,) = Path(catalogue.folder(lake, Query.SILVER)).glob("*.json")
    file.write_text(file.read_text(encoding="utf-8")[:-9], encoding="utf-8")


def compacted_and_removed(lake: str, _run: Run) -> None:
    for number in (3, 4):
        append(lake, Table.PURCHASES, bought(number))
    maintenance.compact(lake, Table.PURCHASES)
    opened(lake, Table.PURCHASES).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def folder_gone(lake: str, _run: Run) -> None:
    shutil.rmtree(Path(lake, "_state"))


@pytest.mark.parametrize(
    "happened",
    [
        of_another_history,
        of_another_table,
        ahead,
        log_shortened,
        run_gone,
        run_cut,
        of_another_contract,
        catalogue_damaged,
        compacted_and_removed,
        folder_gone,
    ],
    ids=lambda happened: happened.__name__,
)
def test_runs_that_cannot_be_relied_on_are_made_again(
    noted: tuple[str, Run], happened: Callable[[str, Run], None]
) -> None:
    lake, run = noted
    happened(lake, run)
    runs, files = past(lake)
    assert runs == []
    assert len(files) == len(opened(lake, Table.PURCHASES).file_uris())


def compacted_and_log_shortened(lake: str, run: Run) -> None:
    compacted_and_removed(lake, run)
    opened(lake, Table.PURCHASES).create_checkpoint()
    entry(lake, Table.PURCHASES, 4).unlink()


def test_files_that_were_compacted_and_removed_are_read_as_others_where_rows_may_come_again(
    noted: tuple[str, Run],
) -> None:
    lake, run = noted
    before = set(opened(lake, Table.PURCHASES).file_uris())
    maintenance.compact(lake, Table.PURCHASES)  # of what the run has: it is not read
    compacted = set(opened(lake, Table.PURCHASES).file_uris()) - before
    assert past(lake, may_repeat=True) == ([run.path], [])
    for number in (3, 4):
        append(lake, Table.PURCHASES, bought(number))
    there = past(lake, may_repeat=True)
    maintenance.compact(lake, Table.PURCHASES)
    assert past(lake, may_repeat=True) == there
    opened(lake, Table.PURCHASES).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert compacted
    append(lake, Table.PURCHASES, bought(5))
    newest = place(lake, deltalog.newest_version(lake, Table.PURCHASES))
    found = catalogue.past(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: newest}, may_repeat=True)
    (files,) = found.files.values()
    assert found.runs == {0: [run]}
    assert found.is_due
    assert sum(file.rows for file in files) == 6  # those that the run has came along
    uris = opened(lake, Table.PURCHASES).file_uris()
    assert {file.path for file in files} == {uri.rpartition("/")[2] for uri in uris}


def test_of_a_table_whose_small_files_were_compacted_and_removed_large_ones_do_not_come_again(lake: str) -> None:
    append(lake, Table.PURCHASES, *map(bought, range(5_000)))
    run = sorted_runs.write(catalogue.folder(lake, Query.SILVER), table({(1, 1): 1}))
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 1)}, {0: [run]})
    for number in (5_000, 5_001):
        append(lake, Table.PURCHASES, bought(number))
    found = opened(lake, Table.PURCHASES)
    found.optimize.compact(target_size=20_000)
    found.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    newest = {Table.PURCHASES: place(lake, 4)}
    seen = catalogue.past(lake, Query.SILVER, MADE_BY, newest, may_repeat=True)
    assert seen.runs == {0: [run]}
    assert [file.rows for file in seen.since] == [2]


def test_what_was_compacted_again_and_again_before_it_was_removed_is_read_once(noted: tuple[str, Run]) -> None:
    """A weekend: of a compaction's file nothing is left but another compaction's."""
    lake, run = noted
    for number in range(3, 9):
        append(lake, Table.PURCHASES, bought(number))
        if number % 2 == 0:
            maintenance.compact(lake, Table.PURCHASES)
    opened(lake, Table.PURCHASES).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    newest = {Table.PURCHASES: place(lake, deltalog.newest_version(lake, Table.PURCHASES))}
    seen = catalogue.past(lake, Query.SILVER, MADE_BY, newest, may_repeat=True)
    assert seen.runs == {0: [run]}
    assert sum(file.rows for file in seen.since) == 9
    assert len({file.path for file in seen.since}) == len(seen.since)


def test_what_is_compacted_without_a_file_since_does_not_come_again(lake: str) -> None:
    """As where executors bring old files to their size by night, some at a time."""
    append(lake, Table.PURCHASES, *map(bought, range(2_000)))
    append(lake, Table.PURCHASES, *map(bought, range(2_000, 4_000)))
    run = sorted_runs.write(catalogue.folder(lake, Query.SILVER), table({(1, 1): 1}))
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 2)}, {0: [run]})
    maintenance.compact(lake, Table.PURCHASES)
    for number in (4_000, 4_001):
        append(lake, Table.PURCHASES, bought(number))
    found = opened(lake, Table.PURCHASES)
    found.optimize.compact(target_size=20_000)
    found.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    newest = {Table.PURCHASES: place(lake, deltalog.newest_version(lake, Table.PURCHASES))}
    seen = catalogue.past(lake, Query.SILVER, MADE_BY, newest, may_repeat=True)
    assert seen.runs == {0: [run]}
    assert [file.rows for file in seen.since] == [2]


@pytest.mark.parametrize(("size", "is_near", "is_due"), [(16, True, False), (17, True, True), (33, False, True)])
def test_of_long_texts_few_rows_are_much(size: int, *, is_near: bool, is_due: bool) -> None:
    """By their bytes: a megabyte each, and some of them are what a small batch would read each time."""
    files = [Added(number, f"{number}.parquet", 1 << 20, 1) for number in range(size)]
    past = catalogue.Past({}, {Table.PROFILE_CHANGES: files})
    assert (past.is_near, past.is_due) == (is_near, is_due)


def test_rows_that_may_come_again_do_not_mend_a_log_that_was_shortened(noted: tuple[str, Run]) -> None:
    lake, run = noted
    compacted_and_log_shortened(lake, run)
    runs, files = past(lake, may_repeat=True)
    assert (runs, len(files)) == ([], len(opened(lake, Table.PURCHASES).file_uris()))


def test_a_commit_that_is_none_of_the_pipelines_is_refused(noted: tuple[str, Run]) -> None:
    lake, _ = noted
    opened(lake, Table.PURCHASES).delete("purchase_id = 'P-1'")
    with pytest.raises(ForeignCommit):
        past(lake)


def date(lake: str, seconds: float, *names: str) -> None:
    """Have files of state be of a time so many seconds from now."""
    for name in names:
        os.utime(Path(catalogue.folder(lake, Query.SILVER), name), (time.time() + seconds,) * 2)


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(-2 * catalogue.KEPT_SECONDS, id="old"),
        pytest.param(2 * catalogue.KEPT_SECONDS, id="of a clock that was ahead"),
    ],
)
def test_files_that_no_catalogue_names_go_after_an_hour(noted: tuple[str, Run], seconds: float) -> None:
    lake, run = noted
    folder = Path(catalogue.folder(lake, Query.SILVER))
    left, young = (sorted_runs.write(str(folder), table({(number, 0): 0})).path for number in range(2))
    date(lake, seconds, left, run.path)
    for number in range(3, 3 + catalogue.KEPT):
        append(lake, Table.PURCHASES, bought(number))
        catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, number + 1)}, {0: [run]})
    assert {path.name for path in folder.glob("*.arrow")} == {run.path, young}


def clock_ahead(lake: str) -> None:
    for number in (3, 4):
        append(lake, Table.PURCHASES, bought(number))
        run = sorted_runs.write(catalogue.folder(lake, Query.SILVER), table({(number, 0): 0}))
        catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, number + 1)}, {0: [run]})
    date(lake, 86_400, *catalogues(lake))


def table_put_back(lake: str) -> None:
    for version in (90, 91):
        at = place(lake, 3)._replace(version=version, commit="0123456789abcdef")
        catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: at}, {0: []})


def catalogues(lake: str) -> list[str]:
    return sorted(file.name for file in Path(catalogue.folder(lake, Query.SILVER)).glob("*.json"))


@pytest.mark.parametrize("before", [clock_ahead, table_put_back], ids=lambda before: before.__name__)
def test_what_was_noted_before_takes_no_runs_from_what_is_noted_now(
    noted: tuple[str, Run], before: Callable[[str], None]
) -> None:
    lake, _ = noted
    before(lake)
    stale = catalogues(lake)
    version = append(lake, Table.PURCHASES, bought(5))
    run = sorted_runs.write(catalogue.folder(lake, Query.SILVER), table({(5, 5): 5}))
    date(lake, -2 * catalogue.KEPT_SECONDS, run.path)
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, version)}, {0: [run]})
    assert past(lake) == ([run.path], [])
    date(lake, -2 * catalogue.KEPT_SECONDS, *set(stale).intersection(catalogues(lake)))
    for number in range(6, 5 + catalogue.KEPT):
        version = append(lake, Table.PURCHASES, bought(number))
        catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, version)}, {0: [run]})
    assert not set(stale).intersection(catalogues(lake))


def test_a_stream_that_was_put_back_keeps_its_runs(noted: tuple[str, Run]) -> None:
    """Gold was, and not silver, which it reads at its own place."""
    lake, _ = noted
    for number in range(3, 12):
        append(lake, Table.PURCHASES, bought(number))
    folder = catalogue.folder(lake, Query.SILVER)
    ahead = sorted_runs.write(folder, table({(9, 0): 0}))
    for version in (10, 11):  # which it had read before
        catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, version)}, {0: [ahead]})
    large, small = (sorted_runs.write(folder, table({(each, each): each})) for each in (5, 6))
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 5)}, {0: [large]})
    date(lake, -2 * catalogue.KEPT_SECONDS, large.path)
    at = {Table.PURCHASES: place(lake, 6)}
    catalogue.note(lake, Query.SILVER, MADE_BY, at, {0: [large, small]})
    assert catalogue.past(lake, Query.SILVER, MADE_BY, at).runs == {0: [large, small]}


def test_what_is_noted_late_takes_no_runs_from_what_came_after(noted: tuple[str, Run]) -> None:
    """A driver that is suspended behind its commit notes it when its successor has noted more."""
    lake, run = noted
    append(lake, Table.PURCHASES, bought(3))
    newer = sorted_runs.write(catalogue.folder(lake, Query.SILVER), table({(2, 2): 2}))
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 4)}, {0: [newer]})
    date(lake, -2 * catalogue.KEPT_SECONDS, newer.path, *catalogues(lake))
    catalogue.note(lake, Query.SILVER, MADE_BY, {Table.PURCHASES: place(lake, 3)}, {0: [run]})
    assert past(lake) == ([newer.path], [])
