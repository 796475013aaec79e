"""infra/images/Dockerfile as data: what each image has of the project's files, and the commands that install the rest.

There is no engine where the tests run. So that a file which a build needs and nobody copies is found all the same,
copies are followed here as an engine carries them out.
"""

from __future__ import annotations

import io
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from dockerfile_parse import DockerfileParser

PROJECT = Path(__file__).parents[2]
DOCKERFILE = PROJECT / "infra" / "images" / "Dockerfile"
HOME = Path("/opt/customer-activity")  # of the project in an image
OWN_FILES = re.compile(r"(?<![\w/.-])(?:infra|jobs|dags|expectations)/[\w./-]*\w")


class Step(NamedTuple):
    """An instruction: its name in capitals, and the rest of the line."""

    name: str
    value: str


class Stage(NamedTuple):
    """A stage of the Dockerfile.

    Attributes:
        name: what other stages and docker-compose.yml call it.
        base: the image or stage that it begins with.
        steps: its instructions after FROM.
    """

    name: str
    base: str
    steps: list[Step]

    def values(self, name: str) -> list[str]:
        """Return what follows each instruction of a name."""
        return [step.value for step in self.steps if step.name == name]


def stages() -> dict[str, Stage]:
    """Return the Dockerfile's stages by name."""
    with io.BytesIO(DOCKERFILE.read_bytes()) as file:
        structure = DockerfileParser(fileobj=file).structure
    found: dict[str, Stage] = {}
    for entry in structure:
        step = Step(entry["instruction"], entry["value"])
        if step.name == "FROM":
            base, _, name = step.value.partition(" AS ")
            found[name] = Stage(name, base, [])
        elif step.name != "COMMENT":
            found[name].steps.append(step)
    return found


def files(name: str) -> set[str]:
    """Return the project's files that an image has, relative to HOME; what its commands make is not among them."""
    every = stages()
    stage = every[name]
    found = files(stage.base) if stage.base in every else set()
    for step in stage.steps:
        found |= _copied(step)
    return found


def missing(name: str) -> dict[str, set[str]]:
    """Return what a stage's commands call, or what that calls, and nobody has copied before; by who calls it."""
    every = stages()
    stage = every[name]
    present = files(stage.base) if stage.base in every else set()
    lacking: dict[str, set[str]] = {}
    for step in stage.steps:
        present |= _copied(step)
        callers = {f"RUN {step.value}": step.value} if step.name == "RUN" else {}
        seen: set[str] = set()
        while callers:
            caller, text = callers.popitem()
            for file in set(OWN_FILES.findall(text)) - seen:
                seen.add(file)
                if (PROJECT / file).is_file() and file not in present:
                    lacking.setdefault(caller, set()).add(file)
                elif file.endswith(".sh"):
                    callers[file] = (PROJECT / file).read_text(encoding="utf-8")
    return lacking


def sources(step: Step) -> tuple[str | None, list[str], str]:
    """Return of a COPY the stage that it copies from (None: the project), its sources and its target."""
    words = shlex.split(step.value)
    stage = next((word.removeprefix("--from=") for word in words if word.startswith("--from=")), None)
    *copied, target = [word for word in words if not word.startswith("--")]
    return stage, copied, target


def _copied(step: Step) -> set[str]:
    """Return which files are where after a COPY. A folder's content is copied, not the folder."""
    if step.name != "COPY":
        return set()
    stage, copied, target = sources(step)
    into = target.removeprefix("./")
    found: set[str] = set()
    for source in copied:
        if stage is not None:
            there = source.removeprefix(f"{HOME}/")
            found |= {f"{into}{file.removeprefix(there)}" for file in files(stage) if file.startswith(there)}
        elif (PROJECT / source).is_dir():
            inside = (path for path in (PROJECT / source).rglob("*") if path.is_file())
            found |= {f"{into}{path.relative_to(PROJECT / source)}" for path in inside if path.suffix != ".pyc"}
        else:
            found.add(f"{into}{Path(source).name}" if target.endswith("/") else into)
    return found
