"""`make pictures`: what docs/OPERATIONS.md shows of Airflow's pages, taken from a `make run` that stays up.

.venv/bin/python tests/end_to_end/pictures.py docs/images [--customer 608]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: only its own folder is searched
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import typer

from customer_activity import settings
from customer_activity.demo.run import local_airflow
from support import browser
from support.airflow import STREAM_DAG, TASK, Deployment

QUALITY_DAG, REBUILD_DAG = "customer_activity_quality", "customer_activity_rebuild"
RUN_SECONDS = 300.0


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


if __name__ == "__main__":
    typer.run(main)
