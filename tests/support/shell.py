"""`activity` commands, one after the other in one process: they share a JVM, which a process each would start anew.

A line in is a command's arguments as JSON; what it prints comes out, and then a line with its exit code. The command
`spark-settings` prints what the session that such commands use has been told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from customer_activity.lake import jvm
from customer_activity.settings import PREFIX, Settings

END = "\x1e"
LAST_CHARACTERS = 4_000  # of its standard error, which has each thread's stack where a signal has ended it


def environment(settings: Settings, **variables: str) -> dict[str, str]:
    """Return what a process needs to work with these settings and no others, and to import what the tests do."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith((PREFIX, "AWS_"))}
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**inherited, **settings.environment(), **variables, "PYTHONPATH": path}


class Shell:
    """The process; `errors` is the file that its standard error goes to."""

    def __init__(self, settings: Settings, variables: dict[str, str], errors: Path) -> None:
        """Start it with these settings, and with variables that are none of ours."""
        self.path = errors
        self.errors: IO[bytes] = errors.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment(settings, **variables),
        )

    def begin(self, *arguments: str) -> None:
        """Begin a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str]:
        """Wait for it; return its exit code and what it printed."""
        assert self.process.stdout is not None
        printed: list[str] = []
        for line in self.process.stdout:
            if line.startswith(END):
                return int(line.removeprefix(END)), "".join(printed)
            printed.append(line)
        said = self.path.read_text(encoding="utf-8", errors="replace")[-LAST_CHARACTERS:]
        raise AssertionError(f"the process has ended with {self.process.wait()}: {said}")

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run a command."""
        self.begin(*arguments)
        return self.end()

    def report(self, *arguments: str) -> Any:
        """Run a command that succeeds; return what it reports as JSON."""
        code, printed = self.run(*arguments, "--json")
        assert code == 0, printed
        return json.loads(printed)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """End it: it has nothing more to read."""
        if error is not None:
            self.process.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.errors.close()


def _each(iterator: Any) -> Iterator[Any]:
    """Walk a Java iterator."""
    while iterator.hasNext():
        yield iterator.next()


def _spark_settings() -> None:
    from customer_activity import settings  # noqa: PLC0415
    from customer_activity.engine import session  # noqa: PLC0415

    spark = session.start(settings.load())
    entries = _each(jvm.hadoop_settings(spark).iterator())
    hadoop = {entry.getKey(): entry.getValue() for entry in entries}
    print(json.dumps({"spark": dict(spark.sparkContext.getConf().getAll()), "hadoop": hadoop}))  # noqa: T201
    spark.stop()


def _serve() -> None:
    from customer_activity import application, cli  # noqa: PLC0415

    application.WATCH_SECONDS = application.ENDING_SECONDS = 0.1  # as in the tests' own session
    for line in sys.stdin:
        arguments = json.loads(line)
        try:
            if arguments[0] == "spark-settings":
                _spark_settings()
                code: object = 0
            else:
                cli.main(arguments)
        except SystemExit as ended:
            code = ended.code
        sys.stdout.write(f"{END}{code}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
