"""Tasks that the driver does itself: what they pass on comes to its lane, and what goes wrong is told as what it is."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from customer_activity.catalog import Table
from customer_activity.engine import spreading, workers
from customer_activity.engine.executors import ByLane, InputGone, Parcel
from customer_activity.engine.workers import Here
from customer_activity.errors import TransientError
from customer_activity.lake.feeds import Added
from customer_activity.state.catalogue import Past
from customer_activity.state.sorted_runs import BUCKETS, Run

ROWS, LANES = 5, 3


def pack(shares: Iterable[int]) -> Iterator[Parcel]:
    """Pass a share's rows on, one to each lane in turn."""
    for share in shares:
        yield from (Parcel(number % LANES, f"{share}.{number}".encode() * 100) for number in range(ROWS))


def unpack(parcels: Iterable[bytes]) -> Iterator[dict[str, int]]:
    yield {"bytes": sum(len(parcel) for parcel in parcels)}


WORK = ByLane(pack, LANES, unpack)


def run(work: ByLane = WORK) -> list[int]:
    return [report["bytes"] for report in Here().run_by_lane(2, work, lambda _: None)]


@pytest.mark.parametrize("held", [pytest.param(1 << 20, id="in memory"), pytest.param(300, id="spilled")])
def test_all_rows_come_to_their_lane(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "HELD_BYTES", held)
    assert run() == [1200, 1200, 600]


def halved(rows: int) -> list[Run]:
    """A bucket's runs, each half as large as the one before it: one more row takes all of them in."""
    return [Run(f"{number}.arrow", rows >> number, 0) for number in range(rows.bit_length())]


@pytest.mark.parametrize(
    ("held", "new", "is_added", "lanes"),
    [
        pytest.param([], 25_000, True, 1, id="nothing is held"),
        pytest.param(halved(1_500_000), 25_000, False, 1, id="nothing is added"),
        pytest.param([Run("a.arrow", 3_000_000, 0)], 25_000, True, 1, id="a large run stays"),
        pytest.param(halved(8_000), 25_000, True, 1, id="small ones are taken in"),
        pytest.param(halved(1_500_000), 25_000, True, BUCKETS, id="large ones are taken in"),
        pytest.param(halved(100_000), 25_000, True, 12, id="some of all buckets"),
    ],
)
def test_a_task_does_not_write_many_runs_again(held: list[Run], new: int, *, is_added: bool, lanes: int) -> None:
    """It is not heard of before it ends: a driver that is silent for long is taken for stalled."""
    files = [Added(1, "a.parquet", 1 << 20, new)]
    past = Past(dict.fromkeys(range(BUCKETS), held), {Table.PURCHASES: files})
    assert spreading.lanes(files, past, Here(), is_added=is_added) == lanes


def test_an_input_that_is_gone_is_told(tmp_path: Path) -> None:
    def missing(_: Iterable[int]) -> Iterator[Parcel]:
        yield Parcel(0, (tmp_path / "gone.parquet").read_bytes())

    with pytest.raises(InputGone):
        run(WORK._replace(pack=missing))


def test_a_folder_of_temporary_files_that_is_gone_is_not_taken_for_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "removed by whoever tidies up"
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(workers, "HELD_BYTES", 300)
    with pytest.raises(TransientError, match=r"temporary files.*removed by whoever") as told:
        run()
    assert not isinstance(told.value, InputGone)
