"""Quality as a task: its verdicts are in the log, and its page links to the Data Docs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperatorLink

from activity_dags.command import ActivityOperator

SERVED = ("https://", "http://", "s3://", "s3a://")  # where pages are; a link that a browser would run is none
PAGES = "pages: "  # how `activity quality` begins the line that says where they are


class PagesLink(BaseOperatorLink):
    """The button “Data Docs” on the task's page: Airflow keeps where it leads with the run."""

    @property
    def name(self) -> str:
        """Return what the button says."""
        return "Data Docs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return where the pages of this run are; empty when it did not come to write any."""
        return operator.pages if isinstance(operator, JudgeOperator) else ""


class JudgeOperator(ActivityOperator):
    """Run `activity quality`; red with the failed rules' names when one of severity `hold` fails."""

    operator_extra_links = (PagesLink(),)

    def __init__(self, **kwargs: Any) -> None:
        """Know the command."""
        super().__init__(arguments=["quality"], **kwargs)
        self.pages = ""

    def heard(self, line: str) -> None:
        """Take note of where the pages are; a folder as a link that a browser on that machine opens."""
        super().heard(line)
        if line.startswith(PAGES):
            place = line.removeprefix(PAGES)
            if "://" not in place:
                self.pages = Path(place).as_uri()
            elif place.startswith(SERVED):
                self.pages = place
