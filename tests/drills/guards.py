"""`make guards`: take each guard out of a copy of the code, and see the drill or test that is about it fail.

    .venv/bin/python tests/drills/guards.py [--only WORDS ...]

guards.toml lists them. A guard whose test stays green without it is not tested. Exit 1 when there is one, when a guard
is no longer in the code as the list has it, or when its tests could not run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

if not __package__:  # run as a file: only its own folder is searched, and packages lie in the two above
    sys.path[:1] = [str(folder) for folder in Path(__file__).resolve().parents[1:3]]

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.trial import say

PROJECT = Path(__file__).resolve().parents[2]
COPIED = (
    "jobs",
    "tests",
    "benchmarks",
    "infra",
    "docs",
    "expectations",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "Makefile",
)
OWN = "own"  # the folder of jars that set-up compiles
COMPILE = "infra/spark/compile.sh"  # does nothing where the jar is of these sources
SUMMARY = re.compile(r"(FAILED|ERROR) \S")  # how pytest names a test; a line of a log has more spaces
GREEN = 0  # pytest's exit code; what failed it names, and others say that it could not run


class Guard(NamedTuple):
    """A guard and what is about it.

    Attributes:
        name: what it does.
        file: below jobs/customer_activity, or `infra/…` or `expectations/…`.
        code: its text there.
        tests: arguments of pytest.
        without: the text without it.
    """

    name: str
    file: str
    code: str
    tests: tuple[str, ...]
    without: str = ""

    def path(self, project: Path) -> Path:
        """Return where its file is in a copy of the project."""
        is_beside = self.file.startswith(("infra/", "expectations/"))
        return project / self.file if is_beside else project / "jobs/customer_activity" / self.file


class Verdict(StrEnum):
    """How it went without the guard."""

    RED = "red, as it must be"
    STAYED_GREEN = "STAYED GREEN"
    NOT_FOUND = "NOT IN THE CODE"
    BROKEN = "TESTS DID NOT RUN"


def listed() -> tuple[Guard, ...]:
    """Read guards.toml, in which each table is a guard and its key the guard's name."""
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return tuple(
        Guard(name, **entry | {"tests": tuple(shlex.split(entry["tests"]))}) for name, entry in entries.items()
    )


GUARDS = listed()


def main(
    *,
    only: Annotated[list[str] | None, typer.Option(help="Guards whose name has this; may be repeated.")] = None,
) -> None:
    """Take out one guard after the other; exit 1 when one is not missed."""
    chosen = [guard for guard in GUARDS if not only or any(word in guard.name for word in only)]
    verdicts = []
    table = Table("guard", "its test without it", "s")
    with tempfile.TemporaryDirectory(prefix="guards-") as name:
        copy = Path(name)
        for guard in chosen:
            started = time.monotonic()
            verdict, words = without(guard, copy)
            verdicts.append(verdict)
            seconds = f"{time.monotonic() - started:.0f}"
            say(f"{guard.name}: {verdict} ({seconds} s) {words}")
            table.add_row(guard.name, verdict.value, seconds)
    Console().print(table)
    if any(verdict is not Verdict.RED for verdict in verdicts):
        raise typer.Exit(1)


def without(guard: Guard, copy: Path) -> tuple[Verdict, str]:
    """Run a guard's tests in a copy of the project that lacks it; return the verdict and why the tests failed."""
    for name in COPIED:
        place = copy / name
        if (PROJECT / name).is_dir():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(PROJECT / name, place, ignore=shutil.ignore_patterns("__pycache__", "target"))
        else:
            shutil.copy(PROJECT / name, place)
    if not (copy / ".venv").exists():
        (copy / ".venv").symlink_to(PROJECT / ".venv")
        copy_jars(copy)
    path = guard.path(copy)
    text = path.read_text(encoding="utf-8")
    if text.count(guard.code) != 1:
        return Verdict.NOT_FOUND, f"{text.count(guard.code)} times in {guard.file}"
    path.write_text(text.replace(guard.code, guard.without), encoding="utf-8")
    compiled = subprocess.run([copy / COMPILE], capture_output=True, text=True, check=False)
    if compiled.returncode:
        return Verdict.BROKEN, compiled.stderr[-300:]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *guard.tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "jobs")},  # drivers that the tests start must lack it, too
        capture_output=True,
        text=True,
        check=False,
    )
    words = next((line for line in done.stdout.splitlines() if SUMMARY.match(line)), "")
    if words.startswith("FAILED"):  # whatever a thread that the test has left makes of the process's end
        return Verdict.RED, words
    return (Verdict.STAYED_GREEN if done.returncode == GREEN else Verdict.BROKEN), words or done.stdout[-300:]


def copy_jars(copy: Path) -> None:
    """Link the jars, and copy those that are compiled here: what is compiled without a guard is the copy's alone."""
    jars = copy / ".jars"
    jars.mkdir()
    for path in (PROJECT / ".jars").iterdir():
        if path.name != OWN:
            (jars / path.name).symlink_to(path)
    shutil.copytree(PROJECT / ".jars" / OWN, jars / OWN)


if __name__ == "__main__":
    typer.run(main)
