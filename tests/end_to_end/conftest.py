"""One deployment for all: a real broker, a real Airflow with this project's DAGs, and the stream's DAG switched on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from customer_activity.demo.broker import process
from customer_activity.demo.run import local_airflow, parts
from customer_activity.kafka import topics
from support import addresses
from support.airflow import Deployment, settings_in


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long things took that tests noted."""
    for report in terminalreporter.getreports("passed"):
        for what, seconds in report.user_properties:
            terminalreporter.write_line(f"{what}: {seconds} s")


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    settings = settings_in(folder, addresses.free(), addresses.free_port())
    process.start(settings)
    deployed = Deployment(settings)
    try:
        topics.check(settings, create=True)
        deployed.start_airflow()
        local_airflow.switch_on(settings)
        yield deployed
    finally:
        deployed.stop_airflow()
        parts.stop(settings)


@pytest.fixture
def running(deployment: Deployment) -> Deployment:
    """The stream's task is deferred, and its driver is well, whatever the test before did."""
    deployment.is_streaming()
    return deployment
