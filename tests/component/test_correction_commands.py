"""`activity rebuild --apply`, `--undo`, `--list` and `--drop` as people and machines see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.commands import rebuild as command
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import EXIT_OK, EXIT_TERMINAL, EXIT_TRY_AGAIN, LeaseLost
from customer_activity.lake import corrections, delta
from customer_activity.lake.corrections import Change, Rows
from customer_activity.lease import lease
from customer_activity.rebuild import finishing
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.repair import Applied
from customer_activity.rebuild.run import Rebuilt
from customer_activity.settings import Settings
from support import tables
from support.command import call
from support.corrections import BLANK, correct, correction_of
from support.streams import Query

UNLIKE = Rebuilt(
    {"gold.activity_changes": 7},
    3,
    {},
    [Compared("gold.activity_changes", 3, 3, 0, 0, 1, {"address": 1}, ["C-1"])],
    1.0,
)
EQUAL = UNLIKE._replace(tables=[Compared("gold.activity_changes", 3, 3, 0, 0, 0, {}, [])])
CHANGE = Change(("customer_id", "view_version"), Rows("r", 1_000_000, 1_200), Rows("a", 500_000, 1_300))
DONE = correction_of({Table.ACTIVITY_CHANGES: CHANGE, Table.PURCHASES: Change(("purchase_id",), Rows(), Rows())})
RUN = BLANK.run
CORRECTED = f"corrected; `activity rebuild --undo {RUN}` undoes it"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[Any]:
    """Stand in for the correction and its undoing, and take what is asked for."""
    calls: list[Any] = []

    def take(_settings: Settings, *what: object) -> Applied:
        calls.append(what[:-1])
        return Applied(*request.param)

    monkeypatch.setattr(command, "build_and_apply", take)
    monkeypatch.setattr(command, "take_back", take)
    return calls


@pytest.mark.parametrize(
    ("asked", "arguments", "wanted", "said"),
    [
        pytest.param((EQUAL, None), ["--apply"], (), ["equal: nothing to correct"], id="equal"),
        pytest.param(
            (UNLIKE, DONE),
            ["--apply"],
            (),
            ["  gold.activity_changes: 1,200 rows retracted, 1,300 added", CORRECTED],
            id="corrected",
        ),
        pytest.param((None, BLANK), ["--apply"], (), [CORRECTED], id="finished"),
        pytest.param(
            (None, BLANK, 2),
            ["--undo", RUN],
            (RUN,),
            ["  2 keys have changed since, and stay as they are", CORRECTED],
            id="undone",
        ),
    ],
    indirect=["asked"],
)
def test_the_last_lines_say_what_came_of_it(
    asked: list[Any],
    arguments: list[str],
    wanted: object,
    said: list[str],
    *,
    deployment: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert call("rebuild", *arguments) == EXIT_OK
    assert asked == [wanted]
    assert capsys.readouterr().out.splitlines()[-len(said) :] == said


@pytest.mark.parametrize("asked", [pytest.param((UNLIKE, DONE), id="corrected")], indirect=True)
def test_machines_are_told_the_same(asked: list[Any], deployment: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("rebuild", "--apply", "--json") == EXIT_OK
    told = json.loads(capsys.readouterr().out)
    assert (told["differences"], told["correction"]["run"], told["passed_over"]) == (1, RUN, 0)
    assert told["correction"]["tables"][0] == {"table": "gold.activity_changes", "retracted": 1_200, "added": 1_300}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--apply", "--customer", "C-1"], "--apply is for all customers", id="some customers"),
        pytest.param(["--apply", "--since", "2026-11-01"], "--apply is for all customers", id="a time"),
        pytest.param(["--undo", RUN, "--until", "2026-11-01"], "--undo is for all customers", id="undo, a time"),
        pytest.param(["--apply", "--undo", RUN], "--apply, --undo cannot be used together", id="both ways"),
        pytest.param(["--list", "--drop", RUN], "--list, --drop cannot be used together", id="two things"),
        pytest.param(["--undo", RUN], f"no correction {RUN} is kept", id="none is kept"),
        pytest.param(["--drop", RUN], f"no correction {RUN} is kept", id="none is kept to drop"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], said: str, deployment: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("rebuild", *arguments) == EXIT_TERMINAL
    assert said in " ".join(capsys.readouterr().err.split())


def test_corrections_are_listed_and_dropped(deployment: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("rebuild", "--list") == EXIT_OK
    assert "no correction is kept" in capsys.readouterr().out
    delta.ensure_tables(deployment.lake)
    rows = pa.Table.from_pylist([{"purchase_id": "P-1"}], arrow_schema(Table.PURCHASES))
    kept = corrections.keep(deployment.lake, Table.PURCHASES, RUN, "added", rows.to_batches())
    correction = correction_of({Table.PURCHASES: Change(("purchase_id",), Rows(), kept)})
    corrections.begin(deployment.lake, correction)
    assert call("rebuild", "--list") == EXIT_OK
    assert "no correction is kept" in capsys.readouterr().out  # it is at work
    assert call("rebuild", "--drop", RUN) == EXIT_TERMINAL
    assert "was interrupted" in capsys.readouterr().err
    corrections.finish(deployment.lake, correction)
    assert call("rebuild", "--list") == EXIT_OK
    assert "rebuild --apply" in capsys.readouterr().out
    assert call("rebuild", "--list", "--json") == EXIT_OK
    (told,) = json.loads(capsys.readouterr().out)
    assert told["tables"] == [{"table": "silver.purchases", "retracted": 0, "added": 1}]

    assert call("rebuild", "--drop", RUN) == EXIT_OK
    assert corrections.kept(deployment.lake) == []


def corrected(lake: str) -> tuple[str, int]:
    """Correct a row of gold's changes, as a whole correction does; return its name and its version there."""
    wrong, right = ({"customer_id": "C-1", "view_version": version} for version in (1, 2))
    tables.append(lake, Table.ACTIVITY_CHANGES, wrong, query=Query.GOLD)
    change = correct(lake, Table.ACTIVITY_CHANGES, ("customer_id", "view_version"), [wrong], [right])
    correction = correction_of(
        {Table.ACTIVITY_CHANGES: change}, run=Path(change.added.path).name.removesuffix(".added.parquet")
    )
    corrections.begin(lake, correction)
    corrections.finish(lake, correction)
    return correction.run, tables.newest(lake, Table.ACTIVITY_CHANGES)


@pytest.mark.parametrize(
    ("read", "planned", "needs_it"),
    [
        pytest.param(None, None, True, id="it has not begun"),
        pytest.param(-1, None, True, id="it has not read it"),
        pytest.param(-1, 0, True, id="its batch has it, and is not through"),
        pytest.param(0, None, False, id="it has read it"),
        pytest.param(0, 1, False, id="it is behind it"),
    ],
)
def test_what_a_stream_has_to_read_is_not_dropped(
    deployment: Settings,
    capsys: pytest.CaptureFixture[str],
    *,
    read: int | None,
    planned: int | None,
    needs_it: bool,
) -> None:
    lake, table = deployment.lake, Table.ACTIVITY_CHANGES
    delta.ensure_tables(lake)
    run, version = corrected(lake)
    tables.append(lake, table, {"customer_id": "C-1", "view_version": 3}, query=Query.GOLD)
    for query in topology.readers(table):
        is_late = query == Query.PUBLISH
        if is_late and read is None:
            continue
        upto = [None if at is None else version + at for at in ((read, planned) if is_late else (1, None))]
        places = [offsets.after(delta.table_id(lake, table), at) for at in upto if at is not None]
        batch = OffsetRange(places[:1] if len(places) > 1 else None, places[-1:])
        checkpoint.write(lake, query, "g-1", len(places) - 1, batch, is_committed=len(places) == 1)
    assert call("rebuild", "--drop", run) == (EXIT_TRY_AGAIN if needs_it else EXIT_OK)
    assert ("publish has not read it of gold.activity_changes" in " ".join(capsys.readouterr().err.split())) == needs_it
    assert [kept.run for kept in corrections.kept(lake)] == ([run] if needs_it else [])
    assert len([*Path(lake).rglob(f"{run}.*.parquet")]) == (2 if needs_it else 0)


@pytest.mark.parametrize("command", ["rebuild", "quality", "verify", "migrate", "maintain"])
def test_an_unfinished_correction_names_what_finishes_it(
    command: str, deployment: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    delta.ensure_tables(deployment.lake)
    corrections.begin(deployment.lake, BLANK)
    assert call(command) == EXIT_TERMINAL
    said = " ".join(capsys.readouterr().err.split())
    assert f"correction {RUN} was interrupted" in said
    assert "`activity rebuild --apply` finishes it" in said


def test_a_correction_that_lost_its_lease_does_not_begin(settings: Settings) -> None:
    delta.ensure_tables(settings.lake)

    def fencing_epoch(query: str) -> int:
        raise lease.lost(query, 1)

    with pytest.raises(LeaseLost):
        finishing.begin(settings.lake, BLANK, fencing_epoch)
    assert corrections.at_work(settings.lake) is None


def test_rows_of_a_correction_that_never_began_are_swept(settings: Settings) -> None:
    delta.ensure_tables(settings.lake)
    rows = pa.Table.from_pylist([{"purchase_id": "P-1"}], arrow_schema(Table.PURCHASES)).to_batches()
    kept = corrections.keep(settings.lake, Table.PURCHASES, RUN, "added", rows)
    started = correction_of({Table.PURCHASES: Change(("purchase_id",), Rows(), kept)})
    corrections.begin(settings.lake, started)
    corrections.finish(settings.lake, started)
    corrections.keep(settings.lake, Table.PURCHASES, "20270101T000000Z", "added", rows)
    corrections.sweep(settings.lake)
    assert [path.name for path in Path(settings.lake).rglob("*.added.parquet")] == [f"{started.run}.added.parquet"]
