"""A task that runs one `activity` command to its end, with the command's output in the task's log."""

from __future__ import annotations

import subprocess
from collections import deque
from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator

from activity_dags import lineage, place, program, shown
from activity_dags.pipelines import Pipeline

LAST_LINES = 40


class ActivityOperator(BaseOperator):
    """Run `activity …`; an exit code that says "try again" is retried, any other failure is final.

    Args:
        pipeline: whose command it is.
        arguments: what comes after `activity`; templated, and empty ones are left out.
        on_spark: whether it runs on the pipeline's Spark, which its connection may name.
    """

    template_fields: Sequence[str] = ("arguments",)
    ui_color = "#e8f1e4"

    def __init__(self, *, pipeline: Pipeline, arguments: list[str], on_spark: bool = False, **kwargs: Any) -> None:
        """Take what to run."""
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.arguments = arguments
        self.on_spark = on_spark
        self.process: subprocess.Popen[str] | None = None

    def execute(self, context: Any) -> None:
        """Run it.

        Raises:
            AirflowFailException: it failed for good, or a check found differences; carries its last words.
            AirflowException: it failed, and trying again may help.
        """
        arguments = tuple(argument for argument in self.arguments if argument)
        last: deque[str] = deque(maxlen=LAST_LINES)
        settings = {**(place.settings(self.pipeline) if self.on_spark else {}), **lineage.parents(context)}
        with program.start(self.pipeline, *arguments, settings=settings) as self.process:
            for line in self.process.stdout or ():
                self.heard(line.rstrip())
                last.append(line)
        if code := self.process.returncode:
            raise program.failure(code, "".join(last), arguments)

    def heard(self, line: str) -> None:
        """Put a line that the command says into the task's log."""
        self.log.info("%s", shown.escaped(line))

    def on_kill(self) -> None:
        """End the command when the task is ended from outside."""
        if self.process is not None:
            program.end(self.process)
