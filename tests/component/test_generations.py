"""A swap of folders without Spark: what is interrupted is finished by the same command, and what is kept is whole."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from customer_activity.catalog import Table, checkpoint_path
from customer_activity.errors import SettingsError, SwapUnfinished
from customer_activity.lake import delta, generations
from customer_activity.lake.generations import CONFLICTS, REBUILT, Kept, Step
from customer_activity.rebuild import moving, swap
from customer_activity.settings import Settings
from support.streams import Query

NAME = "20261122T101500Z"
KEPT = Kept(NAME, datetime(2026, 11, 22, 10, 15, tzinfo=UTC), "--swap always", {"bronze.purchase_events": 3}, {})


@pytest.fixture
def begun(settings: Settings, tmp_path: Path) -> dict[Table, str]:
    """Begin a swap of two empty generations; return the tables' ids of the one that comes in."""
    delta.ensure_tables(settings.lake)
    candidate = tmp_path / "lake" / "_rebuild-x"
    delta.ensure_tables(str(candidate))
    shutil.rmtree(candidate / "bronze")
    for lake, name in ((settings.lake, "old"), (str(candidate), "new")):
        for query in (Query.BRONZE, Query.SILVER) if name == "old" else (Query.SILVER,):
            Path(checkpoint_path(lake, query)).mkdir(parents=True)
            (Path(checkpoint_path(lake, query)) / name).touch()
    coming = {table: delta.table_id(str(candidate), table) for table in REBUILT}
    places = pa.table({"partition": pa.array([], pa.int32()), "offset": pa.array([], pa.int64())})
    pq.write_table(places, candidate / CONFLICTS)
    moving.begin(settings.lake, candidate, KEPT)
    return coming


@pytest.mark.parametrize("step", list(Step)[:2])
def test_the_same_command_finishes_it_without_building_anything(
    settings: Settings, begun: dict[Table, str], step: Step
) -> None:
    if step is Step.IN:  # the live parts are out, and nothing is in

        def stop(_what: str) -> None:
            if generations.at_work(settings.lake) != before:
                raise InterruptedError

        before = generations.at_work(settings.lake)
        with pytest.raises(InterruptedError):
            moving.finish(settings, stop)
    swap_at_work = generations.at_work(settings.lake)
    assert swap_at_work is not None
    assert swap_at_work.step is step
    with pytest.raises(SwapUnfinished):
        delta.require_tables(settings.lake)

    assert swap.swap(settings, swap.When.IF_EQUAL) == (None, NAME)

    assert {table: delta.table_id(settings.lake, table) for table in REBUILT} == begun
    assert [path.name for path in Path(checkpoint_path(settings.lake, Query.SILVER)).iterdir()] == ["new"]
    assert [path.name for path in Path(checkpoint_path(settings.lake, Query.BRONZE)).iterdir()] == ["old"]
    assert generations.kept(settings.lake) == [KEPT]
    kept = generations.folder(settings.lake, NAME)
    assert [path.name for path in (kept / "_checkpoints" / "silver").iterdir()] == ["old"]
    assert not generations.folder(settings.lake, generations.NEXT).exists()
    (deed,) = Path(settings.lake, "_audit").iterdir()
    assert json.loads(deed.read_text())["kept"] == NAME
    delta.require_tables(settings.lake)


def test_a_name_is_the_time_and_no_name_is_given_twice(settings: Settings) -> None:
    now = datetime(2026, 11, 22, 10, 15, 0, 123, tzinfo=UTC)
    assert generations.new_name(settings.lake, now) == NAME
    generations.note_kept(settings.lake, KEPT)
    assert generations.new_name(settings.lake, now) == "20261122T101500000123Z"


def test_a_table_knows_whose_place_it_has_taken(settings: Settings) -> None:
    delta.create(settings.lake, Table.ACTIVITY_CHANGES, instead_of=["a", "b"])
    delta.create(settings.lake, Table.ACTIVITY)
    assert delta.instead_of(settings.lake, Table.ACTIVITY_CHANGES) == ["a", "b"]
    assert delta.instead_of(settings.lake, Table.ACTIVITY) == []


def test_a_generation_that_is_not_kept_is_named_with_those_that_are(settings: Settings) -> None:
    generations.note_kept(settings.lake, KEPT)
    (generations.folder(settings.lake, NAME) / generations.parts()[0]).mkdir()
    with pytest.raises(SettingsError, match=f"there are: {NAME}"):
        generations.find(settings.lake, "another")
