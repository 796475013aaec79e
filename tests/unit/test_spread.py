"""What large batches cost where: read from logs, and judged."""

from __future__ import annotations

import json

import pytest

from benchmarks import drains, spread
from benchmarks.spread import ALL, DRIVER, Case, Measured

SMALL, LARGE = Case(1_000_000), Case(4_000_000)
CASES = spread.cases([4_000_000, 1_000_000], [2, 1], 0.3)
ALONE, HOT, HERE = CASES[2:]


def figures(driver: float, executors: float, **more: float) -> dict[str, float]:
    usual = {"busier_cpu": executors / 2, "batch_seconds": 1.0, "driver_mb": 900.0, "next_cpu": 1.0}
    sizes = {"result_bytes": 20_000, "files": 10}
    return {"driver_cpu": driver, "executors_cpu": executors, **usual, **sizes, **more}


def test_one_command_measures_sizes_and_the_largest_in_other_ways() -> None:
    alone, hot = Case(4_000_000, workers=1), Case(4_000_000, hot=0.3)
    assert CASES == [SMALL, LARGE, alone, hot, Case(4_000_000, placement=DRIVER)]  # noqa: SIM300
    assert spread.cases([5], [2], 0.0) == [Case(5), Case(5, placement=DRIVER)]


def test_runs_become_medians_and_streams_are_added_up() -> None:
    runs = [
        (SMALL, "silver", {"cpu": 3.0, "driver_mb": 800, "told": "text"}),
        (SMALL, "silver", {"cpu": 9.0, "driver_mb": 810, "told": "text"}),
        (SMALL, "silver", {"cpu": 4.0, "driver_mb": 820, "told": "text"}),
        (SMALL, "gold", {"cpu": 2.0, "driver_mb": 700, "told": "text"}),
    ]
    measured = spread.medians(runs)
    assert measured[SMALL, "silver"] == {"cpu": 4.0, "driver_mb": 810}
    assert measured[SMALL, ALL] == {"cpu": 6.0, "driver_mb": 810}


MEASURED: Measured = {
    (SMALL, "silver"): figures(2.0, 10.0),
    (LARGE, "silver"): figures(3.0, 40.0),
    (ALONE, "silver"): figures(3.0, 39.0, busier_cpu=39.0),
    (HOT, "silver"): figures(3.0, 44.0),
    (HERE, "silver"): figures(14.0, 0.0, next_cpu=26.0),
}


@pytest.mark.parametrize(
    ("changed", "figure", "measured", "is_met"),
    [
        pytest.param({}, "executors' share of each further million", 0.968, True, id="share"),
        pytest.param(
            {(LARGE, "silver"): figures(5.0, 40.0)},
            "executors' share of each further million",
            0.909,
            False,
            id="a driver that works more the larger the batch is",
        ),
        pytest.param({}, "driver's peak memory, largest to smallest", 1.0, True, id="memory"),
        pytest.param(
            {(LARGE, "silver"): figures(3.0, 40.0, driver_mb=1_000.0)},
            "driver's peak memory, largest to smallest",
            1.111,
            False,
            id="memory that grows with the batch",
        ),
        pytest.param({}, "bytes into the driver a file", 2_000.0, True, id="bytes"),
        pytest.param(
            {(LARGE, "silver"): figures(3.0, 40.0, files=8)},
            "bytes into the driver a file",
            2_500.0,
            False,
            id="more bytes than a report has",
        ),
        pytest.param({}, "busier worker's processor time, two workers to one", 0.513, True, id="two workers"),
        pytest.param(
            {(LARGE, "silver"): figures(3.0, 40.0, busier_cpu=30.0)},
            "busier worker's processor time, two workers to one",
            0.769,
            False,
            id="one worker does most",
        ),
        pytest.param({}, "processor time, two workers to one", 1.024, True, id="two workers' whole time"),
        pytest.param({}, "processor time, hot key to none", 1.093, True, id="hot key"),
        pytest.param(
            {(HOT, "silver"): figures(3.0, 70.0)}, "processor time, hot key to none", 1.698, False, id="a dear hot key"
        ),
        pytest.param({}, "processor time, executors to driver", 1.1, True, id="executors"),
        pytest.param(
            {(HERE, "silver"): figures(14.0, 0.0)},
            "processor time, executors to driver",
            2.933,
            False,
            id="a driver that has left nothing for later",
        ),
    ],
)
def test_figures_are_compared_with_what_they_must_be(
    changed: Measured, figure: str, measured: float, is_met: bool
) -> None:
    verdicts = {verdict.what: verdict for verdict in spread.judged(MEASURED | changed, CASES)}
    assert (verdicts[figure].measured, verdicts[figure].is_met) == (measured, is_met)


def test_what_was_not_measured_is_not_judged() -> None:
    found = {verdict.what for verdict in spread.judged({(SMALL, "silver"): figures(2.0, 10.0)}, CASES)}
    assert found == set()


def test_batches_are_read_from_a_drivers_log() -> None:
    began = {"time": "2026-11-25T01:00:10.500Z", "message": "silver started", "query": "silver"}
    ended = {"query": "silver", "batch": 3, "rows": 1020, "seconds": 2.5, "phases": {"read": 1.2}, "place": "executors"}
    ended |= {"time": "2026-11-25T01:00:20.000Z", "why": "1,020 rows are many"}
    lines = [json.dumps(began), json.dumps(ended), "java.lang.Exception: rows=5"]
    (batch,) = drains.batches(lines)
    assert (batch.query, batch.number, batch.rows, batch.seconds) == ("silver", 3, 1_020, 2.5)
    assert batch.told == "read=1ms executors: 1,020 rows are many"
    assert batch.end_ms - batch.start_ms == 2_500


def ended(executor: str, size: int, millis: int, began_ms: int = 1_000) -> str:
    return json.dumps(
        {
            "Event": "SparkListenerTaskEnd",
            "Task Info": {"Executor ID": executor, "Launch Time": began_ms},
            "Task Metrics": {"Result Size": size, "Executor Run Time": millis},
        }
    )


def test_tasks_are_summed_up_by_executor() -> None:
    failed = {"Event": "SparkListenerTaskEnd", "Task Info": {"Executor ID": "1", "Launch Time": 2_000}}
    lines = [
        ended("1", 1_650, 250, began_ms=999),
        ended("0", 1_000, 500),
        json.dumps({"Event": "SparkListenerJobStart"}),
        ended("1", 100, 250),
        ended("0", 50, 500),
        json.dumps(failed),
    ]
    assert drains.tasks(lines, start_ms=1_000.0) == (5, 1_150, 2_800, {"0": 1.0, "1": 0.5})
