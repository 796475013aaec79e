"""The trigger that watches the streams' driver, and stops it when its task is cleared or marked, or its DAG paused.

Airflow tells a trigger when its task is cleared or marked (`on_kill`). It tells nobody when a DAG is paused, and tasks
of a paused DAG get no worker: so the trigger asks Airflow's REST API, with the pipeline's connection `…_airflow`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import structlog
from airflow.triggers.base import BaseTrigger, TriggerEvent

from activity_dags import pipelines, program, shown
from activity_dags.pausing import Pausing
from activity_dags.pipelines import Pipeline

EVERY_SECONDS = 5.0
ASK_SECONDS = 10.0  # between two questions whether the DAG is paused
TOLD_SECONDS = 60.0  # between two lines in the task's log
STOP_SECONDS = 60.0
SILENT_SECONDS = 120.0  # of a watch, which looks every EVERY_SECONDS: by then a driver that it attends stops itself
WELL = ("starting", "running")

log = structlog.get_logger(__name__)


class DriverTrigger(BaseTrigger):
    """Watch the driver until a worker has something to do.

    The event is the last look, as `activity driver watch --json` prints it: the driver is not well, or the shift is
    over, or the DAG was paused (the driver is stopped then) and is not any longer.

    Args:
        pipeline: whose driver it is.
        dag_id: the DAG that a pause is looked for of.
        until: when the shift is over, in seconds since the epoch: a time, so that a trigger that moves keeps it.
    """

    def __init__(self, *, pipeline: str, dag_id: str, until: float) -> None:
        """Take until when to watch."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline = pipelines.named(pipeline)
        self.dag_id = dag_id
        self.until = until

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return how Airflow makes the trigger again elsewhere."""
        mine = {"pipeline": self.pipeline.name, "dag_id": self.dag_id, "until": self.until}
        return f"{__name__}.{type(self).__name__}", mine

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch."""
        pausing = Pausing(self.pipeline, self.dag_id)
        driver = await self.watch(pausing)
        if pausing.is_seen:
            await log.ainfo("The DAG is paused: stopping the driver")
            await stop(self.pipeline)
            await pausing.end()
            driver = {**driver, "state": "stopped", "message": "the DAG was paused"}
        yield TriggerEvent(driver)  # type: ignore[no-untyped-call]

    async def watch(self, pausing: Pausing) -> dict[str, Any]:
        """Return the look at which there was something to do, or why there is none."""
        told = asked = 0.0
        words: list[str] = []
        async with program.running(self.pipeline, "driver", "watch", "--json", "--every", str(EVERY_SECONDS)) as looks:
            while True:
                line, fault = await _line(looks)
                if fault:
                    return {"state": "unwatched", "message": fault}
                if not line:
                    break
                driver = _parsed(line)
                if driver is None:  # not a look: what it says when it cannot look
                    words.append(line.decode(errors="replace"))
                    continue
                now = time.time()
                if now - told >= TOLD_SECONDS:
                    told = now
                    await log.ainfo(how_it_is(driver))
                if driver["state"] not in WELL or now >= self.until:
                    return driver
                if now - asked >= ASK_SECONDS:
                    asked = now
                    if await pausing.is_paused():
                        return driver
            await looks.wait()
        said = shown.lines("".join(words).strip())
        return {"state": "unwatched", "message": f"the watch ended with {looks.returncode}: {said}"}

    async def on_kill(self) -> None:
        """Stop the driver: the task was cleared or marked."""
        await log.ainfo("Stopping the driver")
        await stop(self.pipeline)


def how_it_is(driver: dict[str, Any]) -> str:
    """Say in one line how the driver is, as `activity driver watch` does for people."""
    words = [f"The driver is watched: {driver.get('pid')} {driver['state']}"]
    for what, unit in (("lag_records", "records to land"), ("lag_versions", "commits to read")):
        if driver.get(what) is not None:
            words.append(f"{driver[what]:,} {unit}")
    if driver.get("freshness_seconds") is not None:
        words.append(f"view {driver['freshness_seconds']:,.1f} s behind")
    return "; ".join([", ".join(words), *(driver[what] for what in ("message", "placed") if driver.get(what))])


async def stop(pipeline: Pipeline) -> None:
    """Stop the driver gracefully. It goes on being stopped when whoever waits for it here is not there any more."""
    stopping = await asyncio.create_subprocess_exec(
        *program.command(pipeline, "driver", "stop", "--seconds", str(STOP_SECONDS)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=program.environment(pipeline),
        start_new_session=True,
    )
    await stopping.wait()


def _parsed(line: bytes) -> dict[str, Any] | None:
    """Read a look; None where the line is none, be it JSON (an event of the log) or not."""
    try:
        found = program.parsed(line)
    except (TypeError, ValueError):
        return None
    return found if isinstance(found.get("state"), str) else None


async def _line(process: asyncio.subprocess.Process) -> tuple[bytes, str]:
    """Return what a watch says next, which is nothing where it has ended; and why it is not listened to any longer."""
    if process.stdout is None:
        return b"", ""
    try:
        return await asyncio.wait_for(process.stdout.readline(), SILENT_SECONDS), ""
    except TimeoutError:
        return b"", f"the watch has said nothing for {SILENT_SECONDS:.0f} s"
    except ValueError:  # of a StreamReader, beyond its limit
        return b"", f"the watch has printed a line of more than {program.LOOK_BYTES:,} bytes"
