"""What a platform team does in Airflow's pages, clicked in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from customer_activity.catalog import Table
from customer_activity.demo.run import local_airflow
from support import browser
from support.airflow import STREAM_DAG, Deployment, until
from support.broker import rows, send
from support.records import profile, purchase

REBUILD_DAG = "customer_activity_rebuild"
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def page(deployment: Deployment) -> Iterator[Chrome]:
    """A browser in which somebody is signed in."""
    found = local_airflow.start(deployment.settings)
    with browser.opened() as opened:
        browser.sign_in(opened, found.url, found.password)
        yield opened


@pytest.fixture
def url(running: Deployment) -> str:
    return local_airflow.url(running.settings)


@pytest.fixture(autouse=True)
def keep_what_was_seen(page: Chrome, tmp_path: Path) -> Iterator[None]:
    """What the page looked like at the end: shown with a test that fails."""
    yield
    browser.picture(page, tmp_path / "last.png")
    print(f"the last page: {tmp_path / 'last.png'}")  # noqa: T201


def test_the_list_shows_every_dag(page: Chrome, url: str) -> None:
    page.get(f"{url}/dags")
    browser.says(page, *(f"customer_activity_{name}" for name in ("stream", "batch", "maintenance", "quality")))
    browser.says(page, REBUILD_DAG)


def test_the_stream_waits_deferred_and_its_log_says_how_the_driver_is(
    page: Chrome, url: str, running: Deployment
) -> None:
    run = running.task()["dag_run_id"]
    page.get(f"{url}/dags/{STREAM_DAG}/runs/{run}")
    browser.says(page, "Deferred")
    page.get(f"{url}/dags/{STREAM_DAG}/runs/{run}/tasks/driver")
    browser.says(page, "The driver is watched", seconds=90)


def test_a_rebuild_is_asked_for_by_its_form(page: Chrome, url: str, running: Deployment) -> None:
    send(running.settings, profile("C-1"), purchase("P-browser", "C-1"))
    until(lambda: _has(running, "P-browser"), 90)
    browser.fill_in(page, url, REBUILD_DAG, {"customers": "C-1"})
    before = running.runs(REBUILD_DAG)
    browser.send_off(page)
    run = running.ended(REBUILD_DAG, after=before)
    assert (run["state"], run["conf"]["customers"]) == ("success", ["C-1"])
    page.get(f"{url}/dags/{REBUILD_DAG}/runs/{run['dag_run_id']}/tasks/compare")
    browser.says(page, "equal")


def _has(running: Deployment, name: str) -> None:
    assert name in {row["purchase_id"] for row in rows(running.settings, Table.PURCHASES)}
    assert rows(running.settings, Table.ACTIVITY)


def test_the_switch_stops_the_stream_and_starts_it(page: Chrome, url: str, running: Deployment) -> None:
    browser.switch(page, url, STREAM_DAG)
    running.has_stopped()
    browser.switch(page, url, STREAM_DAG)
    running.is_streaming()
