"""The streams' driver as a task: started on a worker, then waited for without one.

    worker     `activity driver start`: starts the driver, or finds the one that runs; then the task defers
    triggerer  `activity driver watch`: a line a look, until there is something for a worker to do
    worker     `resume`: the shift is over: success; the driver ended: start it again; too often: fail

The driver is nobody's child. It was started with `--attended`: when no triggerer watches it any more it stops by
itself, so nothing that dies here leaves a driver behind that nobody looks after.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import Asset, BaseOperator, ResumableJobMixin
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from activity_dags import lineage, place, program
from activity_dags.links import PortalLink
from activity_dags.pipelines import Pipeline
from activity_dags.watching import WELL, DriverTrigger

ATTENDED_SECONDS = 120.0  # a triggerer that died is replaced within 30 s, Airflow's own limit, and some to start
MAX_FAILURES, FAILURE_WINDOW_SECONDS = 5, 15 * 60.0
PAUSE_SECONDS = 10.0  # longer by so much with every failure after the first, after which it starts at once
STALLED, STOPPED = "stalled", "stopped"


class DriverOperator(ResumableJobMixin, BaseOperator):
    """Keep the driver running for one shift.

    Args:
        pipeline: whose driver it is.
        shift: after so long the task succeeds, and tells what depends on gold how gold is. The driver runs on, and the
            next run of the DAG finds it.
        gold: the asset that is told.
    """

    external_id_key = "driver"
    operator_extra_links = (PortalLink(),)
    ui_color = "#dcebf5"

    def __init__(self, *, pipeline: Pipeline, shift: timedelta, gold: Asset, **kwargs: Any) -> None:
        """Take whose driver it is, and how long a shift is."""
        super().__init__(outlets=[gold], **kwargs)
        self.pipeline = pipeline
        self.shift = shift
        self.gold = gold
        self.failures: list[float] = []
        self.until = 0.0
        self.is_killed = False

    def execute(self, context: Any) -> None:
        """Start the driver or find it, and wait for it.

        Raises:
            AirflowFailException: it cannot start, and trying again would not help.
        """
        self.until = time.time() + self.shift.total_seconds()
        with self.counted(context):
            self.execute_resumable(context)

    def submit_job(self, context: Any) -> int:
        """Start the driver, or find the one that runs; return its process's number."""
        started = ("driver", "start", "--attended", str(ATTENDED_SECONDS))
        settings = {**place.settings(self.pipeline), **lineage.parents(context)}
        found = program.report(self.pipeline, *started, settings=settings)
        self.log.info("Driver %s %s", found["pid"], "started" if found["is_new"] else "runs already")
        return int(found["pid"])

    def get_job_status(self, external_id: Any, context: Any) -> str:  # noqa: ARG002 - Airflow's signature
        """Return how the driver is, by the word that `activity driver status` has for it."""
        found = program.report(self.pipeline, "driver", "status")
        return str(found["state"]) if found["pid"] == external_id else STOPPED

    def is_job_active(self, status: str) -> bool:
        """Whether there is a driver to wait for."""
        return status in WELL

    def is_job_succeeded(self, status: str) -> bool:  # noqa: ARG002 - Airflow's signature
        """Say no: a stream has no end."""
        return False

    def poll_until_complete(self, external_id: Any, context: Any) -> None:  # noqa: ARG002 - Airflow's signature
        """Give the worker back until there is something to do."""
        self.defer(
            trigger=DriverTrigger(pipeline=self.pipeline.name, dag_id=self.dag_id, until=self.until),
            method_name="resume",
            kwargs={"failures": self.failures, "until": self.until},
        )

    def get_job_result(self, external_id: Any, context: Any) -> None:
        """Return nothing: what there is to know is with the asset."""

    def resume(self, context: Any, event: dict[str, Any], failures: list[float], until: float) -> None:
        """Go on after the watch, by what it saw last.

        Raises:
            AirflowFailException: the driver has failed too often; or not for the first time, and with an exit code that
                says that starting it again does not help. Carries why.
        """
        self.until = until
        state, message, words = event["state"], event.get("message", ""), event.get("last_words", "")
        self.failures = [at for at in failures if at > time.time() - FAILURE_WINDOW_SECONDS]
        if state in WELL:
            return self.tell(context, event)
        self.log.warning("Driver %s: %s%s", state, message or "it says no more", f"\n{words}" if words else "")
        # Once it is tried: what is final is mostly refused at the start, and the status may be a former driver's.
        if event.get("exit_code") == program.TERMINAL and self.failures:
            raise AirflowFailException(f"{state}, with exit code {program.TERMINAL}: {message}\n{words}")
        if state == STALLED:
            self.log.info("Stopping it: %s", program.report(self.pipeline, "driver", "stop"))
        if state != STOPPED:  # a driver that was told to stop has not failed
            return self.again(context, f"{state}: {message}\n{words}")
        return self.start_again(context)

    def again(self, context: Any, why: str) -> None:
        """Count a failure, and start the driver again: at once after the first, a little later after each more.

        Raises:
            AirflowFailException: it was one too many.
        """
        self.failures.append(time.time())
        if len(self.failures) >= MAX_FAILURES:
            raise AirflowFailException(
                f"{len(self.failures)} failures within {FAILURE_WINDOW_SECONDS / 60:.0f} minutes, the last one: {why}"
            )
        if (pause := PAUSE_SECONDS * (len(self.failures) - 1)) > 0:
            self.log.info("Starting again in %.0f s", pause)
            self.defer(
                trigger=TimeDeltaTrigger(timedelta(seconds=pause)),
                method_name="resume_start",
                kwargs={"failures": self.failures, "until": self.until},
            )
        self.start_again(context)

    def resume_start(self, context: Any, event: Any, failures: list[float], until: float) -> None:  # noqa: ARG002
        """Go on after a pause."""
        self.failures, self.until = failures, until
        self.start_again(context)

    def start_again(self, context: Any) -> None:
        """Start the driver and wait for it."""
        with self.counted(context):
            self.poll_until_complete(self.submit_job(context), context)

    @contextmanager
    def counted(self, context: Any) -> Iterator[None]:
        """Take a start that may work later for one more failure, unless the task is being ended."""
        try:
            yield
        except AirflowFailException:
            raise
        except AirflowException as error:
            if self.is_killed:  # Airflow has ended what this task was running, too: that is what failed
                raise
            self.again(context, str(error))

    def tell(self, context: Any, driver: dict[str, Any]) -> None:
        """Tell whoever depends on gold how it is at the end of this shift."""
        told = {
            "version": driver["gold_version"],
            "rows": driver["gold_rows"],
            "freshness_seconds": driver["freshness_seconds"],
        }
        context["outlet_events"][self.gold].extra = told
        self.log.info("The shift is over, the driver goes on: gold %s", told)

    def on_kill(self) -> None:
        """Stop the driver when the task is ended while a worker has it; a trigger does while it is deferred."""
        self.is_killed = True
        self.log.info("Stopping the driver: %s", program.report(self.pipeline, "driver", "stop", outlives=True))
