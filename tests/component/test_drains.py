"""A driver that is measured: each drain's cost is its own, and one that fails is told with the end of its log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import drains
from benchmarks.pipelines import PipelineEnded
from customer_activity.settings import Settings

# For each line of its input it leaves what a drain leaves; how much, the setting `TOPIC_PURCHASES` says.
DRIVER = f"""
import json, os, sys, time
from datetime import UTC, datetime
from pathlib import Path
for number, line in enumerate(sys.stdin):
    given = json.loads(line)
    orders = json.loads(given["ACTIVITY_TOPIC_PURCHASES"])
    if "fails" in orders:
        sys.exit(orders["fails"])
    began, used = time.monotonic(), time.process_time()
    began_ms = time.time() * 1000
    while time.process_time() - used < orders["cpu"]:
        pass
    table = Path(given["ACTIVITY_LAKE"]) / "silver" / "purchases"
    table.mkdir(parents=True, exist_ok=True)
    for which in range(orders["files"]):
        (table / f"{{number}}-{{which}}.parquet").touch()
    def task(size, launched_ms):
        return {{
            "Event": "SparkListenerTaskEnd",
            "Task Info": {{"Executor ID": "driver", "Launch Time": launched_ms}},
            "Task Metrics": {{"Result Size": size, "Executor Run Time": 250}},
        }}
    tasks = [task(1_000, began_ms - 5_000), task(orders["bytes"], time.time() * 1000)]  # one of the session's start
    events = Path(os.environ["SPARK_CONF_DIR"]) / "events" / f"app-{{number}}"
    events.write_text("\\n".join(map(json.dumps, tasks)))
    seconds = time.monotonic() - began
    told = {{"query": sys.argv[1], "batch": number, "rows": orders["rows"], "seconds": seconds, "phases": {{}}}}
    if orders["rows"]:
        print(json.dumps({{"time": datetime.now(UTC).isoformat(), **told}}))
    print("{drains.DRAINED}", flush=True)
    if "dies" in orders:
        os._exit(orders["dies"])
"""


@pytest.fixture(autouse=True)
def another_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drains, "DRAIN", DRIVER)


def ordered(settings: Settings, **orders: Any) -> Settings:
    usual = {"cpu": 0.0, "rows": 0, "bytes": 0, "files": 0}
    return settings.model_copy(update={"topic_purchases": json.dumps(usual | orders)})


def test_what_a_drain_has_cost_is_its_own_alone(settings: Settings, tmp_path: Path) -> None:
    with drains.draining(settings, ["silver"], tmp_path) as drained:
        first = drained(ordered(settings, cpu=1.0, rows=900, bytes=5_000, files=3))
        second = drained(ordered(settings, rows=7, bytes=40, files=1))
    counted = ("rows", "batches", "files", "tasks", "result_bytes", "result_bytes_with_start", "busier_task_seconds")
    assert [first[name] for name in counted] == [900, 1, 3, 2, 5_000, 6_000, 0.5]
    assert [second[name] for name in counted] == [7, 1, 1, 2, 40, 1_040, 0.5]
    assert first["driver_cpu"] > 0.5 > second["driver_cpu"]


def test_a_drain_with_nothing_to_take_has_cost_nothing(settings: Settings, tmp_path: Path) -> None:
    with drains.draining(settings, ["silver"], tmp_path) as drained:
        drained(ordered(settings, rows=900))
        idle = drained(ordered(settings))
    assert [idle[name] for name in ("rows", "batches", "batch_seconds", "driver_cpu")] == [0, 0, 0, 0]


def drained_twice(settings: Settings, folder: Path, first: dict[str, Any], then: dict[str, Any]) -> None:
    with drains.draining(settings, ["silver"], folder) as drained:
        drained(ordered(settings, **first))
        drained(ordered(settings, **then))


@pytest.mark.parametrize(
    ("first", "then", "why"),
    [
        pytest.param({}, {"fails": "no master at 7077"}, "silver ended with 1: .*no master at 7077", id="at work"),
        pytest.param({"dies": 3}, {}, "silver ended with 3: .*drained", id="between two drains"),
    ],
)
def test_a_driver_that_ends_is_told_with_the_end_of_its_log(
    first: dict[str, Any], then: dict[str, Any], why: str, settings: Settings, tmp_path: Path
) -> None:
    with pytest.raises(PipelineEnded, match=why):
        drained_twice(settings, tmp_path, first, then)


def test_a_driver_that_fails_after_its_last_drain_is_told(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drains, "DRAIN", f"{DRIVER}\nsys.exit('its session did not end')")
    with pytest.raises(PipelineEnded, match="its session did not end"):
        drains.drain(ordered(settings), ["silver"], tmp_path)
