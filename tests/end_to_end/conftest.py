"""One deployment for all: a real broker, a real Airflow with this project's DAGs, and the stream's DAG switched on."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from customer_activity.demo.broker import process
from customer_activity.demo.run import local_airflow, parts
from customer_activity.kafka import topics
from customer_activity.settings import Settings
from support.airflow import Deployment


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how long things took that tests noted."""
    for report in terminalreporter.getreports("passed"):
        for what, seconds in report.user_properties:
            terminalreporter.write_line(f"{what}: {seconds} s")


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("deployment")
    settings = Settings(
        lake=str(folder / "lake"),
        kafka_bootstrap_servers=f"127.0.0.1:{free_port()}",
        kafka_config=None,
        broker_dir=folder / "kafka",
        run_dir=folder / "run",
        airflow_dir=folder / "airflow",
        airflow_port=free_port(),
        quality_docs=str(folder / "quality"),
    )
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
