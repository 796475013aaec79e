"""Rules, routes and the dashboard, by the real Prometheus and Alertmanager: queries have data, alerts fire and clear.

The driver is the product's own server, on a lake whose batches run here; a whole one, with a broker, is watched so in
tests/integration/test_monitoring.py, once a night.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.engine import gate
from customer_activity.engine.gate import Failure
from customer_activity.metrics import pacing, serving
from customer_activity.metrics.listed import METRICS
from customer_activity.metrics.looks import Looking
from customer_activity.metrics.pacing import Paced
from customer_activity.quality.verdicts import Outcome
from customer_activity.supervision import endpoint
from support import monitoring, tables
from support.monitoring import FOLDER
from support.observed import World, judged, now_ms, observed
from support.records import Record, profile, purchase
from support.streams import Query
from support.waiting import until

MANY = 40


@pytest.fixture(autouse=True)
def _programs() -> None:
    if (lacking := monitoring.missing()) and "CI" not in os.environ:
        pytest.skip(f"needs {', '.join(lacking)}")
    assert not lacking, "apt-get install prometheus prometheus-alertmanager"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(["promtool", "check", "rules", "rules.yml"], id="rules"),
        pytest.param(["promtool", "check", "config", "--syntax-only", "prometheus.yml"], id="scraping"),
        pytest.param(["promtool", "test", "rules", "rules.test.yml"], id="each alert fires and clears"),
        pytest.param(["amtool", "check-config", "alertmanager.yml"], id="routes"),
    ],
)
def test_the_programs_take_the_files(line: list[str]) -> None:
    said = subprocess.run(line, cwd=FOLDER, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_each_alert_is_tested() -> None:
    cases = [case for test in monitoring.read("rules.test.yml")["tests"] for case in test["alert_rule_test"]]
    for outcome in (True, False):
        assert {case["alertname"] for case in cases if bool(case["exp_alerts"]) is outcome} == monitoring.rules().keys()


@pytest.mark.parametrize("alert", monitoring.rules())
def test_an_alert_says_what_and_whom_it_reaches(alert: str) -> None:
    rule = monitoring.rules()[alert]
    assert set(rule["annotations"]) == {"summary", "description"}
    line = ["amtool", "config", "routes", "test", "--config.file=alertmanager.yml", f"alertname={alert}"]
    line.append(f"severity={rule['labels']['severity']}")
    said = subprocess.run(line, cwd=FOLDER, capture_output=True, text=True, check=True).stdout
    assert said.strip() == {"critical": "on-call", "warning": "team"}[rule["labels"]["severity"]]


def test_queries_are_of_metrics_that_there_are() -> None:
    queries = [query for of_panel in monitoring.panels().values() for query in of_panel]
    queries += [rule["expr"] for rule in monitoring.rules().values()]
    asked = {selector.partition("{")[0] for query in queries for selector in monitoring.selectors(query)} - {"up"}
    ends = ("_bucket", "_sum", "_count")
    known = {metric.name for metric in METRICS} | {f"{metric.name}{end}" for metric in METRICS for end in ends}
    assert asked <= known


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Return a driver that Prometheus watches."""
    if monitoring.missing():
        pytest.skip("see above")
    folder = tmp_path_factory.mktemp("watched")
    with observed(folder) as world, pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setattr(pacing, "COST_SHARE", 0)
        driver = Watched(world, folder, stack)
        driver.serve()
        driver.world.hop(*topology.names())
        yield driver
        driver.stop()


class Watched:
    """A driver that is served and watched."""

    def __init__(self, world: World, folder: Path, stack: ExitStack) -> None:
        self.world = world
        self.settings = world.settings
        self.served = ExitStack()
        self.number = 0
        self.monitoring = stack.enter_context(monitoring.running(folder, self.settings.run_dir / endpoint.FILE))

    def serve(self) -> None:
        """Begin as a driver does."""
        looking = Looking(self.settings, self.world.epochs)
        paced = Paced(looking.take, every=0.5)
        self.world.observe = self.served.enter_context(serving.exported(self.settings, self.world.epochs, paced))

    def stop(self) -> None:
        """End as a driver does."""
        self.served.close()

    def buy(self, *streams: str) -> None:
        """Let records come through."""
        at = now_ms()
        new = range(self.number, self.number + MANY)
        self.number += MANY
        self.world.send(profile("C-1", at, sent=at), *(purchase(f"P-{each}", "C-1", at=at, sent=at) for each in new))
        self.world.hop(*(streams or topology.names()))

    def buy_badly(self) -> None:
        """Let records come that are none."""
        self.world.send(*(Record("purchase-events", b"P", b"no JSON", now_ms()) for _ in range(MANY)))
        self.buy(Query.BRONZE)

    def judge(self, outcome: Outcome) -> None:
        """Have quality judge."""
        judged(self.settings.lake, outcome)


def test_each_panel_and_each_rule_has_data(watched: Watched) -> None:
    watched.judge(Outcome.FAILED)
    queries = [query for of_panel in monitoring.panels().values() for query in of_panel]
    queries += [selector for rule in monitoring.rules().values() for selector in monitoring.selectors(rule["expr"])]
    left = set(queries)

    def all_have() -> bool:
        watched.buy_badly()
        watched.buy()
        left.difference_update([query for query in left if watched.monitoring.has_data(query)])
        return not left

    until(all_have, seconds=60, every=1.0)


def is_held(watched: Watched) -> None:
    gate.update(watched.settings.lake, [], {"one_row": Failure("gold/customer_activity", "2 rows", "now", "run-1")})


def is_open(watched: Watched) -> None:
    gate.update(watched.settings.lake, ["one_row"], {})


def lags(watched: Watched) -> None:
    """A commit to gold has waited for some minutes for the merge."""
    watched.buy(Query.BRONZE, Query.SILVER, Query.GOLD)
    tables.date(watched.settings.lake, Table.ACTIVITY_CHANGES, now_ms() - 200_000)


Act = Callable[[Watched], None]


@pytest.mark.parametrize(
    ("alert", "receiver", "fault", "remedy"),
    [
        pytest.param("DriverDown", "on-call", Watched.stop, Watched.serve, id="a stopped driver"),
        pytest.param("QuarantineFlood", "on-call", Watched.buy_badly, Watched.buy, id="a quarantine flood"),
        pytest.param("GateHeld", "on-call", is_held, is_open, id="a held gate"),
        pytest.param("MergeLagging", "team", lags, Watched.buy, id="a lagging merge"),
        pytest.param(
            "QualityRuleFailed",
            "team",
            partial(Watched.judge, outcome=Outcome.FAILED),
            partial(Watched.judge, outcome=Outcome.PASSED),
            id="a rule that warns",
        ),
    ],
)
def test_somebody_is_told_and_told_that_it_is_over(
    alert: str, receiver: str, fault: Act, remedy: Act, watched: Watched
) -> None:
    for act, status in ((fault, "FIRING"), (remedy, "RESOLVED")):
        act(watched)
        goes_on = alert == "QuarantineFlood"  # which is a rate

        def is_told(act: Act = act, status: str = status, *, goes_on: bool = goes_on) -> bool:
            if goes_on:
                act(watched)
            return watched.monitoring.is_told(receiver, alert, status)

        until(is_told, seconds=60, every=0.5)
    message = json.dumps(watched.monitoring.told[receiver])
    assert "C-1" not in message
    assert "no value" not in message, "a template names a label that there is not"
