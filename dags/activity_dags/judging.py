"""Commands that write pages as tasks: quality and the report. What they say is in the log, and a button leads there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from airflow.sdk import BaseOperatorLink

from activity_dags.command import ActivityOperator
from activity_dags.links import PortalLink

SERVED = ("https://", "http://", "s3://", "s3a://")  # where pages are; a link that a browser would run is none


class PagesLink(BaseOperatorLink):
    """The button “Data Docs” on the task's page: Airflow keeps where it leads with the run."""

    @property
    def name(self) -> str:
        """Return what the button says."""
        return "Data Docs"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return where the pages of this run are; empty when it did not come to write any."""
        return operator.pages if isinstance(operator, PagesOperator) else ""


class ReportLink(PagesLink):
    """The button “Report”."""

    @property
    def name(self) -> str:
        """Return what the button says."""
        return "Report"


class PagesOperator(ActivityOperator):
    """Run a command that writes pages, and says in a line where they are."""

    begins: ClassVar[str]  # how the command begins that line

    def __init__(self, **kwargs: Any) -> None:
        """Have no pages yet."""
        super().__init__(**kwargs)
        self.pages = ""

    def heard(self, line: str) -> None:
        """Take note of where the pages are; a folder as a link that a browser on that machine opens."""
        super().heard(line)
        if line.startswith(self.begins):
            place = line.removeprefix(self.begins)
            if "://" not in place:
                self.pages = Path(place).as_uri()
            elif place.startswith(SERVED):
                self.pages = place


class JudgeOperator(PagesOperator):
    """Run `activity quality`; red with the failed rules' names when one of severity `hold` fails."""

    operator_extra_links = (PagesLink(), PortalLink())
    begins = "pages: "

    def __init__(self, **kwargs: Any) -> None:
        """Know the command."""
        super().__init__(arguments=["quality"], **kwargs)


class ReportOperator(PagesOperator):
    """Run `activity report`."""

    operator_extra_links = (ReportLink(), PortalLink())
    begins = "report: "

    def __init__(self, **kwargs: Any) -> None:
        """Know the command."""
        super().__init__(arguments=["report"], **kwargs)
