"""What `activity verify` prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from customer_activity.commands import verify as command
from customer_activity.errors import SettingsError
from customer_activity.settings import Settings
from customer_activity.verification.comparison import Check
from support.reports import verified
from support.world_rows import PROFILES, PURCHASES


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Run the command on a report that has these checks."""

    def run_on(checks: list[Check], *arguments: str, **changes: Any) -> Result:
        counted = {"purchases": 1_469_307, "customers": 801, "turnover": 453_218_905}
        report = verified(*checks, records={PURCHASES: 1_469_307, PROFILES: 801}, **counted | changes)
        monkeypatch.setattr(command, "run_checks", lambda *_, **__: report)
        app = typer.Typer()
        app.command()(command.verify)
        return CliRunner().invoke(app, list(arguments), obj=settings)

    return run_on


EQUAL = Check("gold", 801, 801, 0)
DIFFERENT = Check("silver [x]", 3, 2, 7, ("C1 differs: name", "C2 [/] is missing"))
IMPOSSIBLE = Check("accounting", {"read": 1}, {}, 0, impossible="the log was cleaned")


@pytest.mark.parametrize(
    ("checks", "changes", "last_line", "code"),
    [
        pytest.param([EQUAL], {}, "equal", 0, id="equal"),
        pytest.param([EQUAL, DIFFERENT], {}, "7 differences", 1, id="differences"),
        pytest.param([Check("gold", 1, 0, 1, ("C1 is missing",))], {}, "1 difference", 1, id="one difference"),
        pytest.param([EQUAL, IMPOSSIBLE], {}, "equal (1 check was not possible)", 0, id="not possible"),
        pytest.param(
            [DIFFERENT],
            {"growth": 1200},
            "7 differences; 1,200 records arrived meanwhile: traffic is running: stop it and verify again",
            1,
            id="traffic",
        ),
        pytest.param([DIFFERENT], {"growth": 9, "sample": 5}, "7 differences", 1, id="traffic, and a sample"),
    ],
)
def test_the_last_line_is_the_verdict(
    checks: list[Check], changes: dict[str, Any], last_line: str, code: int, run: Callable[..., Result]
) -> None:
    result = run(checks, **changes)
    assert (result.stdout.splitlines()[-1], result.exit_code) == (last_line, code)


def test_the_table_names_checks_examples_and_figures(run: Callable[..., Result]) -> None:
    printed = run([EQUAL, DIFFERENT, IMPOSSIBLE], from_lake={PURCHASES: 0, PROFILES: 12}, sample=3, moving=1).stdout
    for part in (
        "silver [x]: C2 [/] is missing",
        "silver [x]: and 5 more",
        "accounting: not possible: the log was cleaned",
        "1,470,108 records read from Kafka",
        "801 customers in the view, 1,469,307 purchases counted, turnover 4,532,189.05 EUR",
        "because Kafka has removed them: customer-profile-state 12",
        "a sample of 3 customers, 1 set aside: records of theirs arrived meanwhile",
    ):
        assert part in printed


def test_json_is_for_machines(run: Callable[..., Result]) -> None:
    result = run([EQUAL, DIFFERENT], "--json")
    data = json.loads(result.stdout)
    expected = {"verdict": "7 differences", "differences": 7, "turnover": "4532189.05"}
    assert (result.exit_code, {name: data[name] for name in expected}) == (1, expected)
    assert [check["ok"] for check in data["checks"]] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "compared"),
    [
        pytest.param([], None, id="everything"),
        pytest.param(["--only", "view", "--only", "silver.purchases"], {"view", "silver.purchases"}, id="two of them"),
    ],
)
def test_what_is_chosen_is_compared(
    arguments: list[str], compared: set[str] | None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[frozenset[str] | None] = []
    monkeypatch.setattr(command, "run_checks", lambda *_, only, **__: asked.append(only))
    app = typer.Typer()
    app.command()(command.verify)
    CliRunner().invoke(app, arguments, obj=settings)
    assert asked == [compared]


def test_a_table_that_there_is_not_is_refused_by_name(run: Callable[..., Result]) -> None:
    refused = run([EQUAL], "--only", "gold.nothing").exception
    assert isinstance(refused, SettingsError)
    assert "there is no gold.nothing to compare" in str(refused)
    assert "gold.customer_activity" in (refused.remedy or "")
