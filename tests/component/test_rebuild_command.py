"""`activity rebuild` as people and machines see it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from customer_activity.commands import rebuild as command
from customer_activity.errors import EXIT_CHECK_FAILED, EXIT_OK, EXIT_TERMINAL
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.comparison import Compared
from customer_activity.rebuild.run import Rebuilt
from support.command import call

PURCHASES = Compared("silver.purchases", 1_469_307, 1_469_307, 0, 0, 0, {}, [])
GOLD = Compared("gold.activity_changes", 801, 800, 2, 1, 3, {"address": 3, "total_amount": 1}, ["C-1", "C-2"])
VERSIONS = {"bronze.purchase_events": 12, "gold.activity_changes": 7}


def rebuilt(*tables: Compared) -> Rebuilt:
    return Rebuilt(VERSIONS, 2_469, {"bronze.purchase_events": 1_469_307}, list(tables), 9.87)


@pytest.fixture(autouse=True)
def choices(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[Choice]:
    """Stand in for the rebuild, and take what is chosen."""
    asked: list[Choice] = []
    tables = getattr(request, "param", (PURCHASES,))

    def build(_settings: object, choice: Choice, _on_step: object) -> Rebuilt:
        asked.append(choice)
        return rebuilt(*tables)

    monkeypatch.setattr(command, "build", build)
    return asked


def test_equal(choices: list[Choice], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("rebuild") == EXIT_OK
    assert choices == [Choice()]
    printed = capsys.readouterr().out
    assert "1,469,307" in printed
    assert "compared at bronze.purchase_events 12, gold.activity_changes 7" in printed
    assert printed.splitlines()[-1] == "equal"


@pytest.mark.parametrize("choices", [pytest.param((PURCHASES, GOLD), id="gold differs")], indirect=True)
def test_differences_are_named_and_end_with_1(choices: list[Choice], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("rebuild") == EXIT_CHECK_FAILED
    printed = capsys.readouterr().out
    assert "gold.activity_changes: other values in address (3), total_amount (1)" in printed
    assert "gold.activity_changes: for one, C-1, C-2" in printed
    assert printed.splitlines()[-1] == "6 rows differ"

    assert call("rebuild", "--json") == EXIT_CHECK_FAILED
    told = json.loads(capsys.readouterr().out)
    assert (told["differences"], told["tables"][1]["columns"]) == (6, {"address": 3, "total_amount": 1})
    assert told["versions"] == VERSIONS


def test_customers_and_times_are_handed_on(choices: list[Choice]) -> None:
    customers = ("--customer=C-1", "--customer=C-2")
    arguments = (*customers, "--since", "2026-11-01", "--until", "2026-11-02T13:30:00+01:00")
    assert call("rebuild", *arguments) == EXIT_OK
    expected = Choice(["C-1", "C-2"], datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, 12, 30, tzinfo=UTC))
    assert choices == [expected]


def test_a_time_that_is_none_is_refused(choices: list[Choice], capsys: pytest.CaptureFixture[str]) -> None:
    assert call("rebuild", "--since", "yesterday") == EXIT_TERMINAL
    assert choices == []
    assert "--since" in capsys.readouterr().err
