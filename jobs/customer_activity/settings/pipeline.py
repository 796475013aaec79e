"""The name of a pipeline, which everything of its own is named after."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, StringConstraints, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX = "ACTIVITY_"
PIPELINE = "customer-activity"  # whose names have always been these
PIPELINE_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
PIPELINE_NAME_LENGTH = 63  # of a DNS label, which Kubernetes makes of it; Kafka's topics and Airflow's ids take more
VAR_FOLDERS = ("airflow", "kafka", "lake", "quality", "run")  # of the default pipeline, where others have theirs

TopicName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,249}$")]


class Pipeline(BaseSettings):
    """Which pipeline this is."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    pipeline: str = Field(
        PIPELINE,
        description="Name of this pipeline, unique on its Kafka and its Airflow. Everything of its own is named after "
        "it: view and progress topics, transactional id, DAGs, connections, folders.",
    )

    @field_validator("pipeline")
    @classmethod
    def _usable_name(cls, name: str) -> str:
        if len(name) > PIPELINE_NAME_LENGTH or not PIPELINE_NAME.fullmatch(name):
            raise ValueError(
                "a pipeline's name is lower-case letters and digits with single dashes between them, begins with a "
                f"letter, and has at most {PIPELINE_NAME_LENGTH} characters"
            )
        if name in VAR_FOLDERS:
            raise ValueError(f"the default pipeline has a folder of that name, ./var/{name}")
        return name
