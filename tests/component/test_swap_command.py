"""`activity rebuild --swap`, `--back`, `--list` and `--drop` as people and machines see them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from customer_activity import cli
from customer_activity.commands import rebuild as command
from customer_activity.errors import EXIT_CHECK_FAILED, EXIT_OK, EXIT_TERMINAL
from customer_activity.lake import delta, generations
from customer_activity.lake.generations import Kept, Step, Swap
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.run import Rebuilt
from customer_activity.rebuild.swap import Swapped, When
from customer_activity.settings import Settings

EQUAL = Rebuilt({"gold.activity_changes": 7}, 3, {}, [Compared("gold.activity_changes", 3, 3, 0, 0, 0, {}, [])], 1.0)
UNLIKE = EQUAL._replace(tables=[Compared("gold.activity_changes", 3, 3, 0, 0, 1, {"address": 1}, ["C-1"])])
NAME = "20261122T101500Z"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[Any]:
    """Stand in for the swap and the way back, and take what they are asked for."""
    calls: list[Any] = []

    def take(_settings: Settings, what: object, _on_step: object) -> Swapped:
        calls.append(what)
        return Swapped(*request.param)

    monkeypatch.setattr(command, "build_and_swap", take)
    monkeypatch.setattr(command, "go_back", take)
    return calls


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(["rebuild", *arguments])
    return int(str(ended.value.code))


def keep(lake: str, name: str = NAME) -> None:
    """Leave a generation of nothing but its folders."""
    kept = Kept(
        name, datetime(2026, 11, 22, 10, 15, tzinfo=UTC), "--swap always", {}, {"bronze.purchase_events": {0: 5}}
    )
    generations.note_kept(lake, kept)
    (generations.folder(lake, name) / generations.parts()[0]).mkdir()


KEPT = "swapped, the former generation is kept as"


@pytest.mark.parametrize(
    ("asked", "arguments", "wanted", "ended"),
    [
        pytest.param(
            (EQUAL, NAME),
            ["--swap", "if-equal"],
            When.IF_EQUAL,
            (EXIT_OK, f"equal: {KEPT} {NAME}"),
            id="equal",
        ),
        pytest.param(
            (UNLIKE, ""),
            ["--swap", "if-equal"],
            When.IF_EQUAL,
            (EXIT_CHECK_FAILED, "1 rows differ: not swapped"),
            id="not equal",
        ),
        pytest.param(
            (UNLIKE, NAME),
            ["--swap", "always"],
            When.ALWAYS,
            (EXIT_OK, f"1 rows differ: {KEPT} {NAME}"),
            id="told to",
        ),
        pytest.param((UNLIKE, "B"), ["--back", NAME], NAME, (EXIT_OK, f"1 rows differ: {KEPT} B"), id="back"),
        pytest.param(
            (None, NAME),
            ["--swap", "always"],
            When.ALWAYS,
            (EXIT_OK, f"finished the swap that was interrupted; the former generation is kept as {NAME}"),
            id="finished",
        ),
    ],
    indirect=["asked"],
)
def test_the_last_line_and_the_exit_code_say_what_came_of_it(
    asked: list[Any],
    arguments: list[str],
    wanted: object,
    ended: tuple[int, str],
    *,
    deployment: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, last = ended
    assert call(*arguments) == code
    assert asked == [wanted]
    assert capsys.readouterr().out.splitlines()[-1] == last


@pytest.mark.parametrize("asked", [pytest.param((UNLIKE, NAME), id="swapped")], indirect=True)
def test_machines_are_told_the_same(asked: list[Any], deployment: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--swap", "always", "--json") == EXIT_OK
    told = json.loads(capsys.readouterr().out)
    assert (told["differences"], told["swapped"], told["kept"]) == (1, True, NAME)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--swap", "always", "--customer", "C-1"], "--swap is of everybody's rows", id="some customers"),
        pytest.param(["--swap", "if-equal", "--since", "2026-11-01"], "--swap is of everybody's rows", id="a time"),
        pytest.param(["--back", NAME, "--until", "2026-11-01"], "--back is of everybody's rows", id="back, a time"),
        pytest.param(
            ["--swap", "always", "--back", NAME], "--swap, --back cannot be asked for together", id="both ways"
        ),
        pytest.param(["--list", "--drop", NAME], "--list, --drop cannot be asked for together", id="two things"),
        pytest.param(["--swap", "maybe"], "--swap", id="a word that is none"),
        pytest.param(["--back", NAME], f"no generation {NAME} is kept", id="none is kept"),
        pytest.param(["--drop", NAME], f"no generation {NAME} is kept", id="none is kept to drop"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], said: str, deployment: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(*arguments) == EXIT_TERMINAL
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("arguments", [["--swap", "if-equal"], ["--back", NAME]], ids=["swap", "back"])
def test_an_object_store_is_compared_only(
    arguments: list[str], deployment: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACTIVITY_LAKE", "s3a://bucket/lake")
    assert call(*arguments) == EXIT_TERMINAL
    assert "which object stores cannot" in " ".join(capsys.readouterr().err.split())


def test_generations_are_listed_and_dropped(deployment: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--list") == EXIT_OK
    assert "no generation is kept" in capsys.readouterr().out
    keep(deployment.lake)
    keep(deployment.lake, "20261122T111500Z")
    (generations.folder(deployment.lake, generations.NEXT) / generations.parts()[0]).mkdir(parents=True)
    assert call("--list") == EXIT_OK
    assert "--swap always" in capsys.readouterr().out
    assert call("--list", "--json") == EXIT_OK
    told = json.loads(capsys.readouterr().out)
    assert [kept["name"] for kept in told] == [NAME, "20261122T111500Z"]
    assert told[0]["landed"] == {"bronze.purchase_events": {"0": 5}}

    assert call("--drop", NAME) == EXIT_OK
    assert [kept.name for kept in generations.kept(deployment.lake)] == ["20261122T111500Z"]
    assert not generations.folder(deployment.lake, NAME).exists()


@pytest.mark.parametrize(("back", "remedy"), [("", "--swap if-equal"), (NAME, f"--back {NAME}")], ids=["swap", "back"])
def test_an_unfinished_swap_names_what_finishes_it(
    back: str, remedy: str, deployment: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    delta.ensure_tables(deployment.lake)
    generations.set_to_work(deployment.lake, Swap(Step.IN, NAME, back, "--swap always"))
    assert call() == EXIT_TERMINAL
    said = " ".join(capsys.readouterr().err.split())
    assert "a swap of generations was interrupted (next step: in)" in said
    assert f"`activity rebuild {remedy}` finishes it" in said
    keep(deployment.lake)
    assert call("--drop", NAME) == EXIT_TERMINAL
    assert [kept.name for kept in generations.kept(deployment.lake)] == [NAME]
