"""infra/images/Dockerfile: an image has what its commands call, and what they install, set-up installs so, too."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from customer_activity.demo.broker import node
from customer_activity.inspection import doctor
from customer_activity.kafka import topics
from customer_activity.quality import rules
from support import images
from support.images import PROJECT

STAGES = images.stages()
RUNS = [(name, run) for name, stage in STAGES.items() for run in stage.values("RUN")]
OWN = [(name, run) for name, run in RUNS if "infra/" in run]
COPIES = [step.value for step in STAGES["setup"].steps if step.name == "COPY"]
NOT_CALLED = ("README.md LICENSE ./", "infra/kafka/ infra/kafka/", "jobs/ jobs/", "pyproject.toml uv.lock ./")


@pytest.mark.parametrize("name", STAGES)
def test_a_command_finds_what_it_calls(name: str) -> None:
    assert images.missing(name) == {}


@pytest.mark.parametrize("forgotten", [copy for copy in COPIES if copy not in NOT_CALLED])
def test_a_forgotten_copy_is_found(forgotten: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = images.DOCKERFILE.read_text(encoding="utf-8")
    (tmp_path / "Dockerfile").write_text(text.replace(f"COPY {forgotten}\n", ""), encoding="utf-8")
    monkeypatch.setattr(images, "DOCKERFILE", tmp_path / "Dockerfile")
    lacking = {file for files in images.missing("setup").values() for file in files}
    assert any(file.startswith(forgotten.split(maxsplit=1)[0]) for file in lacking)


def test_a_copy_that_comes_too_late_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = images.DOCKERFILE.read_text(encoding="utf-8")
    late = text.replace("COPY infra/jars/ infra/jars/\n", "", 1).replace(
        "COPY README.md", "COPY infra/jars/ infra/jars/\nCOPY README.md"
    )
    (tmp_path / "Dockerfile").write_text(late, encoding="utf-8")
    monkeypatch.setattr(images, "DOCKERFILE", tmp_path / "Dockerfile")
    assert "RUN infra/jars/resolve.sh && infra/spark/home.sh && infra/spark/compile.sh" in images.missing("setup")


def listed(*options: str) -> set[str]:
    """Ask git for files of the project."""
    line = ["git", "ls-files", *options]
    return set(subprocess.run(line, cwd=PROJECT, capture_output=True, text=True, check=True).stdout.splitlines())


def test_what_runs_finds_its_files() -> None:
    named = [topics.TOPICS_FILE, node.LOG4J_FILE, doctor.PINS, rules.FOLDER / "across" / "view.yaml"]
    wanted = {str(file.relative_to(PROJECT)) for file in named} | listed("jobs", "dags", "expectations")
    assert wanted - images.files("airflow") == set()


@pytest.mark.parametrize("name", STAGES)
def test_nothing_secret_and_nothing_that_was_built_here_is_copied(name: str) -> None:
    assert images.files(name) & listed("--others", "--ignored", "--exclude-standard") == set()


def test_the_build_is_sent_what_is_copied_and_no_secret() -> None:
    lines = (PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*"
    let_in = {pattern[1:] for pattern in patterns if pattern.startswith("!")}
    wanted = {file.split("/")[0] for name in STAGES for file in images.files(name)}
    assert let_in == wanted
    assert patterns.index("infra/compose/secrets") > patterns.index("!infra")


@pytest.mark.parametrize(("name", "run"), OWN, ids=[run for _, run in OWN])
def test_what_is_installed_is_installed_as_set_up_does(name: str, run: str) -> None:
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    for line in run.split("&&"):
        words = [word for word in line.split() if "=" not in word]
        script = words[0]
        assert script in makefile
        if script == "infra/uv.sh":
            assert words[1:4] == ["sync", "--frozen", "--quiet"]


def test_nothing_else_is_installed() -> None:
    commands = [line.split()[:2] for pair in RUNS if pair not in OWN for line in pair[1].split("&&")]
    assert {" ".join(command) for command in commands} == {
        "apt-get update",
        "apt-get install",
        "rm -rf",
        "useradd --uid",
        "install --directory",
        "mkdir /lake",
        "chown 10001:10001",
    }


def test_an_environment_has_no_tools_for_tests() -> None:
    syncs = [run for _, run in RUNS if "uv.sh sync" in run]
    assert syncs
    assert all("--no-dev" in run or "--only-group airflow-server" in run for run in syncs)
