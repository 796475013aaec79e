"""Buttons of tasks that lead to pages outside Airflow: the portal, where the pipeline's settings say where it is."""

from __future__ import annotations

import os
from typing import Any

from airflow.sdk import BaseOperatorLink

PORTAL = "ACTIVITY_PORTAL_URL"
SERVED = ("https://", "http://")  # a link that a browser would run is none


class PortalLink(BaseOperatorLink):
    """The button “Portal”: customers as they change, the pipeline's flow, quality's verdicts."""

    @property
    def name(self) -> str:
        """Return what the button says."""
        return "Portal"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return where the portal is; empty where nothing says so."""
        try:
            settings = operator.pipeline.settings()
        except ValueError:  # the task itself has said what is wrong with the file
            return ""
        # What is in the environment is of the only pipeline, or of none.
        place = (settings if operator.pipeline.file else os.environ).get(PORTAL, "")
        return place if place.startswith(SERVED) else ""
