"""Looks at the lake for all who ask: shared, waited for not long, and in nobody's way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from customer_activity.errors import EnvironmentFault
from customer_activity.portal import looks
from customer_activity.portal.looks import Looks
from customer_activity.quality import results, verdicts


class Lake:
    """A lake that answers when it is let."""

    def __init__(self) -> None:
        self.begun, self.answers = threading.Event(), threading.Event()
        self.looks = 0
        self.failure: Exception | None = None

    def look(self, *about: Any) -> tuple[Any, ...]:
        self.looks += 1
        self.begun.set()
        self.answers.wait(20)
        if self.failure is not None:
            raise self.failure
        return about


@pytest.fixture
def lake() -> Iterator[Lake]:
    made = Lake()
    yield made
    made.answers.set()


@pytest.mark.parametrize("failure", [None, OSError("lake")], ids=["a result", "a failure"])
def test_who_asks_the_same_gets_the_same_of_one_look(lake: Lake, failure: Exception | None) -> None:
    lake.failure = failure

    async def run() -> list[Any]:
        shared = Looks()
        asked = [asyncio.create_task(shared.take("flow", lake.look)) for _ in range(50)]
        await asyncio.to_thread(lake.begun.wait, 20)
        lake.answers.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        lake.failure = None
        assert await shared.take("flow", lake.look) == ()  # what is over is looked at anew
        return found

    assert asyncio.run(run()) == [failure or ()] * 50
    assert lake.looks == 2


def test_a_lake_that_hangs_is_given_up_and_is_in_no_other_routes_way(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        shared = Looks()
        monkeypatch.setattr(looks, "WAIT_SECONDS", 0.05)
        for _ in range(2):  # those who come later find it under way
            asked = [shared.take("windows", lake.look, str(customer)) for customer in range(100)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(each) for each in found} == {EnvironmentFault}
        assert lake.looks == looks.THREADS
        monkeypatch.setattr(looks, "WAIT_SECONDS", 20.0)
        assert await shared.take("flow", lambda: "found") == "found"
        assert await asyncio.to_thread(lambda: "free") == "free"
        lake.answers.set()
        assert await shared.take("windows", lake.look, "200") == ("200",)

    asyncio.run(run())


def judge(lake: str, *runs: tuple[datetime, list[str]]) -> None:
    """Keep results of runs: each of some rules, which passed."""
    rows = [
        dict.fromkeys(results.SCHEMA.names)
        | {"run_id": f"{at}", "judged_at": at, "rule": rule, "suite": "gold", "severity": "warn", "outcome": "passed"}
        for at, rules in runs
        for rule in rules
    ]
    write_deltalake(verdicts.path(lake), pa.Table.from_pylist(rows, results.SCHEMA), mode="append")


def test_verdicts_are_of_the_last_day_before_the_newest_run_and_read_once_a_version(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, now = str(tmp_path), datetime(2026, 3, 1, 12, 0, 0, 123_456, UTC)
    newest = verdicts.Newest()
    assert newest.read(lake).judged_at is None
    judge(lake, *((now - timedelta(hours=hour), ["a", "old"]) for hour in range(25, 90)))
    judge(lake, (now - timedelta(hours=23), ["b"]), (now - timedelta(hours=1), ["a"]), (now, ["a"]))
    rows: list[int] = []
    scan = DeltaTable.to_pyarrow_dataset

    def counted(table: DeltaTable) -> Any:
        def to_table(**asked: Any) -> pa.Table:
            found = scan(table).to_table(**asked)
            rows.append(found.num_rows)
            return found

        return SimpleNamespace(to_table=to_table)

    monkeypatch.setattr(DeltaTable, "to_pyarrow_dataset", counted)
    for _ in range(3):
        found = newest.read(lake)
        assert found.judged_at == now
        assert [(rule["rule"], rule["judged_at"]) for rule in found.rules] == [
            ("a", now),
            ("b", now - timedelta(hours=23)),
        ]
    assert rows == [3]
    judge(lake, (now + timedelta(hours=2), ["b"]))
    assert [rule["rule"] for rule in newest.read(lake).rules] == ["a", "b"]
    assert len(rows) == 2
