"""Buttons of tasks that lead outside Airflow: where the pipeline's settings say, and only to what is served."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from activity_dags.conventions import gold
from activity_dags.driver import DriverOperator
from activity_dags.judging import JudgeOperator
from activity_dags.links import PORTAL, PortalLink
from activity_dags.pipelines import DEFAULT, Pipeline


@pytest.mark.parametrize(
    ("place", "leads_to"),
    [
        pytest.param("https://portal.example.org", "https://portal.example.org", id="a server"),
        pytest.param(None, "", id="nowhere"),
        pytest.param("javascript:alert(1)", "", id="what a browser would run"),
    ],
)
def test_a_task_leads_to_the_portal(monkeypatch: pytest.MonkeyPatch, place: str | None, leads_to: str) -> None:
    monkeypatch.delenv(PORTAL, raising=False)
    if place is not None:
        monkeypatch.setenv(PORTAL, place)
    pipeline = Pipeline(DEFAULT)
    driver = DriverOperator(pipeline=pipeline, task_id="driver", shift=timedelta(minutes=1), gold=gold(pipeline))
    for task in (driver, JudgeOperator(pipeline=pipeline, task_id="judge")):
        links = {link.name: link.get_link(task, ti_key=None) for link in task.operator_extra_links}
        assert links["Portal"] == leads_to


def test_each_pipeline_has_a_portal_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PORTAL, "https://portal.example.org")
    file = tmp_path / "orders-eu.env"
    judge = JudgeOperator(pipeline=Pipeline("orders-eu", file), task_id="judge")
    file.write_text(f"ACTIVITY_PIPELINE=orders-eu\n{PORTAL}=https://eu.example.org\n", encoding="utf-8")
    assert PortalLink().get_link(judge, ti_key=None) == "https://eu.example.org"
    file.write_text("ACTIVITY_PIPELINE=orders-eu\n", encoding="utf-8")
    assert PortalLink().get_link(judge, ti_key=None) == ""
    file.write_text("no setting\n", encoding="utf-8")
    assert PortalLink().get_link(judge, ti_key=None) == ""
