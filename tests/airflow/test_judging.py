"""Quality as a task: red by the failed rule's name, and a button that leads to its pages."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from activity_dags.judging import JudgeOperator, PagesLink, ReportOperator
from activity_dags.pipelines import DEFAULT, Pipeline


@pytest.mark.parametrize(
    ("said", "leads_to"),
    [
        pytest.param(["pages: /srv/quality/index.html"], "file:///srv/quality/index.html", id="a folder"),
        pytest.param(["pages: s3://docs/quality/index.html"], "s3://docs/quality/index.html", id="a bucket"),
        pytest.param(["pages: https://dq.example.org/index.html"], "https://dq.example.org/index.html", id="a server"),
        pytest.param(["there is no lake"], "", id="none were written"),
    ],
)
def test_its_button_leads_to_the_pages_of_its_run(program: Any, said: list[str], leads_to: str) -> None:
    program.answers(quality=[{"lines": ["61 of 61 rules passed", *said]}])
    judge = JudgeOperator(pipeline=Pipeline(DEFAULT), task_id="judge")
    judge.execute({})
    link, _ = judge.operator_extra_links
    assert (link.name, link.get_link(judge, ti_key=None)) == ("Data Docs", leads_to)
    assert program.asked[0][0] == "quality"


def test_a_rule_that_fails_is_named_and_its_pages_are_a_click_away(program: Any) -> None:
    program.answers(
        quality=[
            {"lines": ["pages: /q/index.html"], "error": "purchases_count_once: a purchase is there twice", "code": 1}
        ]
    )
    judge = JudgeOperator(pipeline=Pipeline(DEFAULT), task_id="judge")
    with pytest.raises(AirflowFailException, match="purchases_count_once"):
        judge.execute({})
    assert PagesLink().get_link(judge, ti_key=None) == "file:///q/index.html"


def test_the_reports_button_leads_to_its_page(program: Any) -> None:
    program.answers(report=[{"lines": ["report: https://dq.example.org/report.html"]}])
    report = ReportOperator(pipeline=Pipeline(DEFAULT), task_id="report")
    report.execute({})
    link, _ = report.operator_extra_links
    assert (link.name, link.get_link(report, ti_key=None)) == ("Report", "https://dq.example.org/report.html")
