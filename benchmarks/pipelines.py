"""The pipelines under test as processes: start, watch, stop, kill, and the proof that ours is right."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psutil

from benchmarks.usage import INTERVAL_SECONDS, Sampler
from customer_activity.settings import PROJECT, Settings

PYTHON = Path(sys.executable)  # of the project's environment
PEERS = Path(__file__).parent / "peers"
STREAMS_JAR = PEERS / "kafka_streams" / "target" / "activity-streams.jar"
STOP_SECONDS = 120.0  # a batch at work may finish; the tutorial's can take a minute
VERIFY_SECONDS = 1_800.0
LAST_LINES = 8


class Command(NamedTuple):
    """How to start a pipeline.

    Attributes:
        name: what results call it.
        arguments: of the process.
    """

    name: str
    arguments: tuple[str, ...]


OURS = Command("ours", (str(PYTHON.with_name("activity")), "stream"))
TUTORIAL = Command("tutorial", (str(PYTHON), str(PEERS / "tutorial.py")))
NIGHTLY = Command("nightly", (str(PYTHON), str(PEERS / "nightly.py")))
STREAMS = Command("kafka_streams", ("java", "-jar", str(STREAMS_JAR)))


class PipelineEnded(Exception):
    """Raised when a pipeline ended that should run; carries the end of its log."""


class Pipeline:
    """A running pipeline: a process in a session of its own, watched for memory, processor time and disk."""

    def __init__(
        self,
        command: Command,
        settings: Settings,
        log: Path,
        every: float = INTERVAL_SECONDS,
        *,
        is_told: bool = False,
    ) -> None:
        """Start it, and look at it with so many seconds in between; `started_ms` is the moment before.

        With `is_told` it reads lines that it is told, until the last.
        """
        self.command = command
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        settings.run_dir.mkdir(parents=True, exist_ok=True)
        self.started_ms = time.time() * 1000
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command.arguments,
                cwd=settings.run_dir,
                env={**os.environ, **settings.environment()},
                stdin=subprocess.PIPE if is_told else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.is_over = False
        self.usage = Sampler(self.process.pid, every)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """End whatever still runs."""
        self.kill()

    def tell(self, line: str | None) -> None:
        """Tell it a line; None after the last.

        Raises:
            PipelineEnded: it does not run.
        """
        assert self.process.stdin is not None
        if line is None:
            self.process.stdin.close()
            return
        try:
            self.process.stdin.write(f"{line}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.wait(STOP_SECONDS)
            self.check()

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            PipelineEnded: it does not.
        """
        if (code := self.process.poll()) is not None:
            raise PipelineEnded(f"{self.command.name} ended with {code}: {self.last_lines()}")

    def wait(self, seconds: float) -> None:
        """Wait for the end of a pipeline that ends by itself.

        Raises:
            PipelineEnded: it failed.
        """
        self._end(self.process.wait(seconds))

    def stop(self) -> None:
        """Stop it as an operator would (SIGTERM) and wait for its end.

        Raises:
            PipelineEnded: it had ended before, it does not end, or not well.
        """
        self.check()
        self.usage.stop()
        self.process.send_signal(signal.SIGTERM)
        try:
            self._end(self.process.wait(STOP_SECONDS), " after SIGTERM")
        except subprocess.TimeoutExpired:
            self.kill()
            raise PipelineEnded(f"{self.command.name} did not end {STOP_SECONDS:.0f} s after SIGTERM") from None

    def _end(self, code: int, when: str = "") -> None:
        self.usage.stop()
        if code != 0:
            raise PipelineEnded(f"{self.command.name} ended with {code}{when}: {self.last_lines()}")
        self.is_over = True

    def kill(self) -> None:
        """End it at once with all its processes (SIGKILL), wherever it is; nothing when it was stopped before."""
        if self.is_over:
            return
        self.usage.stop()
        descendants = family(self.process.pid)  # Spark's Python workers are in a group of their own
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for process in descendants:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()
        self.is_over = True

    def last_lines(self) -> str:
        """Return the end of its log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return " | ".join(lines[-LAST_LINES:]) or "its log is empty"


def build_streams() -> None:
    """Build the Kafka Streams application, unless what is built is newer than its sources.

    Raises:
        FileNotFoundError: there is no Maven.
        subprocess.CalledProcessError: Maven failed; it has said why.
    """
    project = PEERS / "kafka_streams"
    newest = max(path.stat().st_mtime for path in (project / "pom.xml", *(project / "src").rglob("*")))
    if not STREAMS_JAR.exists() or STREAMS_JAR.stat().st_mtime < newest:
        maven = shutil.which("mvn")
        if maven is None:
            raise FileNotFoundError("Maven (mvn) builds the Kafka Streams application, and is not on the PATH")
        subprocess.run([maven, "-q", "-f", str(project / "pom.xml"), "package"], check=True)


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all its descendants; none when it has gone."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def verify(settings: Settings, log: Path) -> dict[str, Any]:
    """Let `activity verify` compare ours with its input: `equal`, the verdict, and how long that took."""
    started = time.monotonic()
    with log.open("wb") as output:
        answer = subprocess.run(
            [str(PYTHON.with_name("activity")), "verify", "--json"],
            env={**os.environ, **settings.environment()},
            stdout=subprocess.PIPE,
            stderr=output,
            timeout=VERIFY_SECONDS,
            check=False,
            cwd=PROJECT,
        )
    log.write_bytes(log.read_bytes() + answer.stdout)
    try:
        report = json.loads(answer.stdout)
    except json.JSONDecodeError:
        report = {"verdict": f"no report, exit code {answer.returncode}: see {log}"}
    return {
        "equal": answer.returncode == 0 and report.get("differences") == 0,
        "verdict": report["verdict"],
        "purchases": report.get("purchases"),
        "customers": report.get("customers"),
        "seconds": round(time.monotonic() - started, 1),
    }
