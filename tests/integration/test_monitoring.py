"""A whole driver, with a broker, as Prometheus and Alertmanager see it: queries have data, alerts fire and clear.

Short of it are tests/component/test_monitoring.py, on a driver's server alone, and tests/integration/test_driver.py,
which scrapes a whole driver.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from customer_activity import topology
from customer_activity.engine import gate
from customer_activity.engine.gate import Failure
from customer_activity.quality.run import run as judge
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import Settings
from customer_activity.supervision import driver, endpoint
from support import monitoring
from support.broker import send
from support.monitoring import Monitoring
from support.observed import judged, now_ms
from support.records import Record, profile, purchase
from support.waiting import until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1_200)]
DAY = 86_400_000
SECONDS = 300.0
MANY = 40


class Deployment:
    """A driver that goes on while records come."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.number = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **more: float) -> None:
        """Start the driver."""
        _, self.process = driver.start(self.settings.model_copy(update=more), attended=None, wait_seconds=SECONDS)

    def stop(self) -> None:
        """Stop the driver."""
        driver.stop(self.settings, 60)
        if self.process is not None:
            self.process.wait(30)

    def buy(self) -> None:
        """Send purchases, one of them late and one twice."""
        at = now_ms()
        new = [purchase(f"P-{self.number + each}", "C-1", at=at, sent=at) for each in range(MANY)]
        self.number += MANY
        send(
            self.settings,
            profile("C-1", at),
            profile("C-1", at - DAY),
            *new,
            new[0],
            purchase(f"L-{self.number}", "C-1", at=at - 9 * DAY),
        )

    def buy_badly(self) -> None:
        """Send records that are none."""
        send(self.settings, *(Record("purchase-events", b"P", b"no JSON") for _ in range(MANY)))


@pytest.fixture
def deployed(settings: Settings) -> Iterator[Deployment]:
    """Return a deployment whose driver runs."""
    if lacking := monitoring.missing():
        pytest.skip(f"needs {', '.join(lacking)}")
    chosen = {"merge_seconds": 1.0, "metrics_port": 0, "max_bad_share": 1.0, "streams": "late_events"}
    topology.switch_on(["late_events"])
    own = Deployment(settings.model_copy(update=chosen))
    yield own
    own.stop()
    topology.switch_on([])


def told(watched: Monitoring, receiver: str, alert: str, status: str, meanwhile: Callable[[], None]) -> None:
    """Wait until somebody was told; records come meanwhile."""

    def is_told() -> bool:
        meanwhile()
        return watched.is_told(receiver, alert, status)

    until(is_told, seconds=SECONDS, every=1.0)


def nothing() -> None:
    """Let nothing come."""


def test_people_see_and_are_told_what_happens(deployed: Deployment, tmp_path: Path) -> None:
    lake = deployed.settings.lake
    deployed.buy()
    deployed.start()
    with monitoring.running(tmp_path, deployed.settings.run_dir / endpoint.FILE) as watched:
        queries = [query for of_panel in monitoring.panels().values() for query in of_panel]
        queries += [one for rule in monitoring.rules().values() for one in monitoring.selectors(rule["expr"])]
        left = set(queries)
        until(lambda: watched.has_data('activity_table_rows{table="gold.customer_activity"} > 0'))
        judge(deployed.settings)
        judged(lake, Outcome.FAILED)

        def all_have_data() -> bool:
            deployed.buy()
            deployed.buy_badly()
            left.difference_update([query for query in left if watched.has_data(query)])
            return not left

        until(all_have_data, seconds=SECONDS, every=1.0)

        told(watched, "on-call", "QuarantineFlood", "FIRING", deployed.buy_badly)
        told(watched, "on-call", "QuarantineFlood", "RESOLVED", deployed.buy)

        gate.update(lake, [], {"one_row": Failure("gold/customer_activity", "2 rows", "now", "run-1")})
        told(watched, "on-call", "GateHeld", "FIRING", deployed.buy)
        gate.update(lake, ["one_row"], {})
        told(watched, "on-call", "GateHeld", "RESOLVED", nothing)

        deployed.stop()
        told(watched, "on-call", "DriverDown", "FIRING", nothing)
        deployed.buy()
        deployed.start(merge_seconds=200.0)  # what comes after its first merge waits for longer than the alert does
        told(watched, "on-call", "DriverDown", "RESOLVED", nothing)
        told(watched, "team", "MergeLagging", "FIRING", deployed.buy)
        told(watched, "team", "MergeLagging", "RESOLVED", nothing)
        assert not [name for name in watched.told if name not in ("on-call", "team")]
