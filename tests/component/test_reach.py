"""Files that executors say they have written are committed when the driver sees them whole, and not before."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.engine import reach
from customer_activity.errors import SettingsError
from customer_activity.lake.datafiles import DataFile

WRITTEN = {Table.PURCHASE_EVENTS: [DataFile("a.parquet", 3, 1, "{}"), DataFile("b.parquet", 5, 1, "{}")]}


def with_master(master: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        pytest.param({"a.parquet": 3, "b.parquet": 5}, None, id="all of them, whole"),
        pytest.param({"a.parquet": 3}, "b.parquet", id="one is on another disk"),
        pytest.param({"a.parquet": 2, "b.parquet": 5}, "a.parquet", id="one is another file"),
        pytest.param({}, "a.parquet", id="nothing is here"),
    ],
)
def test_a_file_that_the_driver_does_not_see_is_not_committed(
    tmp_path: Path, there: dict[str, int], missing: str | None
) -> None:
    folder = Path(table_path(str(tmp_path), Table.PURCHASE_EVENTS))
    folder.mkdir(parents=True)
    for name, size in there.items():
        (folder / name).write_bytes(b"x" * size)
    elsewhere = with_master("spark://master:7077")
    if missing is None:
        reach.require_here(elsewhere, str(tmp_path), WRITTEN)
        return
    with pytest.raises(SettingsError, match=f"an executor has written {missing}, .*\n.*in a bucket"):
        reach.require_here(elsewhere, str(tmp_path), WRITTEN)
    reach.require_here(with_master("local[2]"), str(tmp_path), WRITTEN)  # threads of the driver: nothing is asked
