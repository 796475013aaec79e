"""What the demonstration adds to the command line, and that nothing else needs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from customer_activity import cli
from customer_activity.commands import extras
from customer_activity.settings import PROJECT

OF_THE_DEMONSTRATION = {"produce", "run", "stop", "airflow"}


@pytest.fixture(scope="module")
def without_demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the import root of a source tree that lacks the demonstration."""
    tree = tmp_path_factory.mktemp("production")
    without = shutil.ignore_patterns("demo", "__pycache__")
    shutil.copytree(PROJECT / "jobs", tree / "jobs", ignore=without)
    (tree / "infra").symlink_to(PROJECT / "infra")
    return tree / "jobs"


def listed(help_page: str) -> set[str]:
    """Return the commands that a page of help lists."""
    return set(re.findall(r"^│ (\w[\w-]*) ", help_page, re.MULTILINE))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the package in a folder."""
    line = [sys.executable, "-m", "customer_activity", *arguments]
    variables = {**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}
    return subprocess.run(line, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_a_group_has_the_commands_of_production_and_of_the_demonstration() -> None:
    assert listed(CliRunner().invoke(cli.app, ["broker", "--help"]).stdout) == {
        *("topics", "acls"),
        *("start", "stop", "status"),
    }


def test_every_command_of_the_demonstration_is_there() -> None:
    assert listed(CliRunner().invoke(cli.app, ["--help"]).stdout) == {*cli.COMMANDS, *OF_THE_DEMONSTRATION}
    assert set(extras.commands()) == {*OF_THE_DEMONSTRATION, "broker"}
    assert set(extras.checks()) == {"port"}


def test_without_the_demonstration_the_other_commands_are_there(without_demo: Path) -> None:
    done = run(without_demo, "--help")
    assert done.returncode == 0, done.stderr
    assert listed(done.stdout) == set(cli.COMMANDS)


def test_without_the_demonstration_kafka_has_topics_and_rights(without_demo: Path) -> None:
    assert run(without_demo, "broker", "topics", "--help").returncode == 0
    refused = run(without_demo, "broker", "start")
    assert refused.returncode == 2
    assert "No such command 'start'" in refused.stderr


def test_without_the_demonstration_the_doctor_makes_its_other_checks(without_demo: Path) -> None:
    done = run(without_demo, "doctor", "--json")
    assert '"check": "broker"' in done.stdout, done.stderr
    assert '"check": "port"' not in done.stdout
