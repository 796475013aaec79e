"""Configuration: one frozen object, read once from `ACTIVITY_…` variables by the command line and passed down."""

from __future__ import annotations

from customer_activity.settings.analysts import OWN_KEY
from customer_activity.settings.deployment import SECRETS, Settings, load
from customer_activity.settings.pipeline import PIPELINE, PIPELINE_NAME, PIPELINE_NAME_LENGTH, PREFIX, VAR_FOLDERS
from customer_activity.settings.project import IS_INSTALLED, PACKAGE, PROJECT, TO_GET_JARS

__all__ = [
    "IS_INSTALLED",
    "OWN_KEY",
    "PACKAGE",
    "PIPELINE",
    "PIPELINE_NAME",
    "PIPELINE_NAME_LENGTH",
    "PREFIX",
    "PROJECT",
    "SECRETS",
    "TO_GET_JARS",
    "VAR_FOLDERS",
    "Settings",
    "load",
]
