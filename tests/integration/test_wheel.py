"""The built wheel, alone in an empty folder: it carries what its code reads, and does a deployment's work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from customer_activity.demo.broker import node
from customer_activity.inspection import doctor
from customer_activity.kafka import acls, topics
from customer_activity.quality import rules
from customer_activity.settings import PREFIX, PROJECT, Settings
from support.broker import send, view
from support.records import profile, purchase

READ_BY_CODE = [topics.TOPICS_FILE, acls.ACLS_FILE, node.LOG4J_FILE, doctor.PINS, *rules.FOLDER.rglob("*.yaml")]
END = "\x1e"
ONE_AFTER_THE_OTHER = f"""
import json, sys
from customer_activity import cli
for arguments in json.loads(sys.argv[1]):
    try:
        cli.main(arguments)
    except SystemExit as ended:
        if ended.code:
            raise
    print({END!r}, end="", flush=True)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel and install it by itself; return the folder that it is in."""
    built, folder = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("installed")
    uv = str(PROJECT / "infra" / "uv.sh")
    subprocess.run([uv, "build", "--wheel", "--out-dir", str(built)], check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    alone = ["--python", sys.executable, "--no-deps", "--offline", "--target", str(folder)]
    subprocess.run([uv, "pip", "install", *alone, str(wheel)], check=True, capture_output=True)
    return folder


class Shell:
    """A shell in an empty folder, whose Python knows the wheel and the libraries that it depends on."""

    def __init__(self, folder: Path, installed: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        # The tests' Python knows the source tree as well: what PYTHONPATH names comes before it.
        others = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self.environment = {**others, "PYTHONPATH": str(installed), **variables}

    def python(self, *arguments: str) -> str:
        """Run Python, which must succeed; return what it prints."""
        line = [sys.executable, *arguments]
        done = subprocess.run(
            line, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-2_000:]}\n{done.stderr[-2_000:]}"
        return done.stdout

    def activity(self, *arguments: str) -> str:
        """Run a command of the wheel, which must succeed; return what it prints."""
        return self.python("-m", "customer_activity", *arguments)

    def activities(self, *commands: Sequence[str]) -> list[str]:
        """Run commands one after the other in one process, each of which must succeed; return what each prints."""
        *printed, _ = self.python("-c", ONE_AFTER_THE_OTHER, json.dumps(commands)).split(END)
        return printed


@pytest.fixture
def shell(installed: Path, settings: Settings, tmp_path: Path) -> Shell:
    """Return a shell that is told where Kafka and the jars are, and nothing of the source tree."""
    told = ("kafka_bootstrap_servers", "purchase_topic", "profile_topic", "view_topic", "progress_topic", "jars_dir")
    empty = tmp_path / "empty"
    empty.mkdir()
    own = settings.environment()
    return Shell(empty, installed, {name: own[name] for name in (f"{PREFIX}{field.upper()}" for field in told)})


@pytest.mark.parametrize("file", READ_BY_CODE, ids=lambda file: str(file.relative_to(PROJECT)))
def test_it_carries_what_its_code_reads(file: Path, installed: Path) -> None:
    carried = installed / "customer_activity" / "project" / file.relative_to(PROJECT)
    assert carried.read_bytes() == file.read_bytes()


def test_it_carries_the_portals_page(installed: Path) -> None:
    place = Path("customer_activity", "portal", "pages")
    pages = {file.name: file.read_bytes() for file in (PROJECT / "jobs" / place).iterdir()}
    assert {file.name: file.read_bytes() for file in (installed / place).iterdir()} == pages
    assert {"index.html", "main.js", "style.css"} <= set(pages)


def test_alone_in_an_empty_folder_it_does_a_deployments_work(shell: Shell, installed: Path, settings: Settings) -> None:
    imported = shell.python("-c", "import customer_activity; print(customer_activity.__file__)")
    assert Path(imported.strip()).is_relative_to(installed)

    assert json.loads(shell.activity("doctor", "--json"))["ok"]
    send(settings, profile("C-1"), purchase("P-1", "C-1"))
    _, verified, _, acls_of_anna = shell.activities(
        ["stream", "--available-now"],
        ["verify", "--json"],
        ["quality"],
        ["broker", "acls", "pipeline", "anna", "--lines"],
    )
    assert [row and row["purchaseCount"] for _, row in view(settings)] == [1]
    assert json.loads(verified)["differences"] == 0
    assert "--operation Write" in acls_of_anna
    assert [path.name for path in shell.folder.iterdir()] == ["var"]


def test_it_says_where_jars_come_from(shell: Shell) -> None:
    del shell.environment[f"{PREFIX}JARS_DIR"]
    with pytest.raises(AssertionError, match=r"empty/\.jars") as failed:
        shell.activity("doctor", "--json")
    assert "ACTIVITY_JARS_DIR" in str(failed.value)
