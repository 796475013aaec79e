"""Run the `activity` command from tasks and triggers.

It lives in an environment of its own: Airflow's Spark provider writes into the same import package as pyspark. So DAGs
never import the product, they run it, and rely on what its command line promises: `--json`, one line a look, and exit
codes that say whether trying again helps.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from activity_dags import shown
from activity_dags.pipelines import PREFIX, PROGRAM, Pipeline

BESIDE = Path(__file__).resolve().parents[2] / ".venv" / "bin" / "activity"
# Airflow's own settings hold its secrets, and its import path is not the product's.
WITHHELD = ("AIRFLOW", "_AIRFLOW", "PYTHONPATH")
CHECK_FAILED, TERMINAL = 1, 2
LOOK_BYTES = 4 << 20  # of a line: a look may have a driver's last words
LAST_CHARACTERS = 4_000
LAST_WORDS = "last_words"
END_SECONDS = 60.0


def command(pipeline: Pipeline, *arguments: str) -> list[str]:
    """Return the command line that runs `activity` for a pipeline with these arguments.

    Raises:
        AirflowFailException: it is not there, or the pipeline's settings cannot be read.
    """
    found = environment(pipeline).get(PROGRAM) or (str(BESIDE) if BESIDE.exists() else shutil.which("activity"))
    if not found:
        raise AirflowFailException(f"the command `activity` is not on this machine\n  → name it in {PROGRAM}")
    return [found, *arguments]


def environment(pipeline: Pipeline) -> dict[str, str]:
    """Return what the command sees of a task's environment, and the settings of its pipeline.

    Raises:
        AirflowFailException: they cannot be read.
    """
    withheld = WITHHELD if pipeline.file is None else (*WITHHELD, PREFIX)  # whatever is there is another pipeline's
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(withheld)}
    try:
        return inherited | pipeline.settings()
    except ValueError as error:
        raise AirflowFailException(str(error)) from None


def report(
    pipeline: Pipeline,
    *arguments: str,
    settings: Mapping[str, str] = MappingProxyType({}),
    outlives: bool = False,
) -> dict[str, Any]:
    """Run a command with `--json` and return what it reports, also when it reports that a check failed.

    The command gets `settings` besides those of its pipeline. One that `outlives` its task goes on when Airflow kills
    all processes of the task, five seconds after it has told the task to end.

    Raises:
        AirflowFailException: it ended with an error that trying again does not help.
        AirflowException: it ended with one that may pass.
    """
    done = subprocess.run(  # noqa: S603 - the product's own command line
        command(pipeline, *arguments, "--json"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        env={**environment(pipeline), **settings},
        start_new_session=outlives,
        check=False,
    )
    if done.returncode not in (0, CHECK_FAILED):
        raise failure(done.returncode, done.stderr, arguments)
    try:
        return parsed(done.stdout)
    except (TypeError, ValueError):  # without a report no check has failed: something was unforeseen, and may pass
        raise failure(done.returncode, done.stderr or done.stdout, arguments, final=(TERMINAL,)) from None


def parsed(report: str | bytes) -> dict[str, Any]:
    """Read a report, with its texts as they can be shown: only last words have several lines.

    Raises:
        ValueError: it is none.
    """
    return {
        name: said if not isinstance(said, str) else shown.lines(said) if name == LAST_WORDS else shown.in_a_line(said)
        for name, said in dict(json.loads(report)).items()
    }


def failure(
    code: int, words: str, arguments: tuple[str, ...], *, final: tuple[int, ...] = (CHECK_FAILED, TERMINAL)
) -> AirflowException:
    """Make the exception for a command that failed: final when its exit code says that trying again does not help."""
    last = shown.lines(words.strip()[-LAST_CHARACTERS:])
    kind = AirflowFailException if code in final else AirflowException
    return kind(f"`activity {' '.join(arguments)}` ended with exit code {code}:\n{last}")


def start(
    pipeline: Pipeline, *arguments: str, settings: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    """Start a command whose words are read line by line; it ends when the task that started it is gone.

    The command gets `settings` besides those of its pipeline.

    Raises:
        AirflowFailException: it is not there.
    """
    # Part of every Linux (util-linux). Elsewhere a command outlives a task that was killed, and ends by itself.
    bound = [setpriv, "--pdeathsig", "TERM"] if (setpriv := shutil.which("setpriv")) else []
    return subprocess.Popen(  # noqa: S603 - the product's own command line
        [*bound, *command(pipeline, *arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="backslashreplace",
        env={**environment(pipeline), **settings},
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> None:
    """Ask a command to end, and kill it and what it started when it does not in time."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@asynccontextmanager
async def running(pipeline: Pipeline, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command beside the event loop, and end it when the block is left."""
    process = await asyncio.create_subprocess_exec(
        *command(pipeline, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment(pipeline),
        start_new_session=True,
        limit=LOOK_BYTES,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()  # it only looks: there is nothing to finish
            await process.communicate()  # what is left unread is read: until then asyncio does not take it for ended
