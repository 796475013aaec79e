"""The page about adding a stream: its edits, made on a copy of the project, give a stream that its own test proves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "ADDING_A_STREAM.md"
COPIED = ("jobs", "tests", "expectations", "infra", "pyproject.toml")
# Tests that look at all streams there are: one that is added breaks none of them.
KNOWING = (
    "tests/unit/test_topology.py",
    "tests/unit/test_registering.py",
    "tests/unit/test_inspection_commands.py",
    "tests/component/test_declared.py",
    "tests/component/test_rules.py",
)
EDIT = re.compile(
    r"^<!-- (?:file: (?P<file>\S+)|in: (?P<within>\S+), after: (?P<line>.+?)) -->\n"
    r"```(?:python|diff)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def edited(project: Path) -> list[str]:
    """Make the page's edits; return the files that are new or changed."""
    touched = []
    for edit in EDIT.finditer(PAGE.read_text(encoding="utf-8")):
        touched.append(edit["file"] or edit["within"])
        place = project / touched[-1]
        if edit["file"]:
            place.write_text(edit["code"], encoding="utf-8")
            continue
        added = re.sub(r"^\+", "", edit["code"], flags=re.MULTILINE)
        before = place.read_text(encoding="utf-8")
        assert before.count(f"{edit['line']}\n") == 1, f"{edit['line']} is once in {touched[-1]}"
        place.write_text(before.replace(f"{edit['line']}\n", f"{edit['line']}\n{added}"), encoding="utf-8")
    return touched


def test_the_page_adds_a_stream_that_its_test_proves(tmp_path: Path) -> None:
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tmp_path / name)
    assert len(set(edited(tmp_path))) == 5, "a table's name and columns, the stream, the registry and a test"
    assert "6 passed" in passed(tmp_path, "tests/spark/test_product_days.py")
    passed(tmp_path, *KNOWING)


def passed(project: Path, *files: str) -> str:
    """Run some of a copy's tests; return what pytest said of them."""
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", *files],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "jobs"), "ACTIVITY_JARS_DIR": str(PROJECT / ".jars")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert tested.returncode == 0, tested.stdout + tested.stderr
    return tested.stdout
