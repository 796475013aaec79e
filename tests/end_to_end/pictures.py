"""`make pictures`: what the docs show of Airflow's pages, Data Docs and the portal, taken from a running `make run`.

.venv/bin/python tests/end_to_end/pictures.py docs/images [--customer 608]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: only its own folder is searched
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import httpx
import typer
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from customer_activity import settings
from customer_activity.demo.run import local_airflow
from customer_activity.settings import Settings
from support import browser
from support.airflow import STREAM_DAG, TASK, Deployment
from support.broker import send
from support.records import profile

QUALITY_DAG, REBUILD_DAG = "customer_activity_quality", "customer_activity_rebuild"
RUN_SECONDS = 300.0
MOVED_TO, PORTAL_HEIGHT = "38 New Street, 20095 Hamburg", 1080


def main(
    folder: Annotated[Path, typer.Argument(help="Where the pictures go.")],
    *,
    customer: Annotated[str, typer.Option(help="Whose rows are rebuilt.")] = "608",
) -> None:
    """Take them all; each page is waited for until it says what it is shown for."""
    deployment = Deployment(settings.load())
    airflow = local_airflow.start(deployment.settings)
    with browser.opened() as page:
        browser.sign_in(page, airflow.url, airflow.password)

        page.get(f"{airflow.url}/dags")
        browser.says(page, STREAM_DAG, REBUILD_DAG)
        browser.picture(page, folder / "airflow-dags.png")

        run = deployment.newest_run(STREAM_DAG)["dag_run_id"]
        page.get(f"{airflow.url}/dags/{STREAM_DAG}/runs/{run}/tasks/{TASK}")
        browser.says(page, "Deferred", "The driver is watched", seconds=90)
        browser.picture(page, folder / "airflow-stream.png")

        browser.fill_in(page, airflow.url, REBUILD_DAG, {"customers": customer})
        browser.picture(page, folder / "airflow-rebuild-form.png")
        before = deployment.runs(REBUILD_DAG)
        browser.send_off(page)
        run = deployment.ended(REBUILD_DAG, after=before, seconds=RUN_SECONDS)["dag_run_id"]
        page.get(f"{airflow.url}/dags/{REBUILD_DAG}/runs/{run}/tasks/compare")
        browser.says(page, "equal")
        browser.picture(page, folder / "airflow-rebuild.png")

        run = str(deployment.run(QUALITY_DAG, seconds=RUN_SECONDS)["dag_run_id"])
        page.get(f"{airflow.url}/dags/{QUALITY_DAG}/runs/{run}/tasks/judge")
        browser.says(page, "rules passed")
        browser.scroll_up(page)
        browser.says(page, "across.join_match")
        browser.picture(page, folder / "airflow-quality.png")

        data_docs(page, deployment.settings, folder)
        portal(page, deployment.settings, customer)
        browser.picture(page, folder / "portal.png")


def data_docs(page: Chrome, own: Settings, folder: Path) -> None:
    """Take the index of Data Docs and a suite's page, where the portal serves them."""
    page.get(f"{own.portal_data_docs}/")
    browser.says(page, "The newest run of quality", "across.join_match")
    browser.picture(page, folder / "data-docs.png")
    page.find_element(By.LINK_TEXT, "across.join_match").click()
    browser.says(page, "customers_with_a_profile")
    browser.picture(page, folder / "data-docs-join-match.png")


def portal(page: Chrome, own: Settings, customer: str) -> None:
    """Open the portal at a customer, and have the address change at its source: the page shows what it was."""
    row = httpx.get(f"{own.portal_page}/customers/{customer}", timeout=10).raise_for_status().json()["customer"]
    page.set_window_size(browser.WIDTH, PORTAL_HEIGHT)
    page.get(f"{own.portal_page}/#customer={customer}")
    browser.says(page, row["name"], row["address"], "rules passed", "bronze")
    kept = {name: row[name] for name in ("name", "email", "loyaltyStatus")}
    send(own, profile(customer, int(time.time() * 1000), address=MOVED_TO, **kept))
    browser.says(page, MOVED_TO, "in the view")


if __name__ == "__main__":
    typer.run(main)
