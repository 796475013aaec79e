"""The pipelines that this Airflow runs: their names, the ids of their DAGs and connections, and their settings.

Where `CUSTOMER_ACTIVITY_PIPELINES` names a folder, each file in it is one: `orders-eu.env` has the settings of the
pipeline `orders-eu`, a line each, as a shell, systemd and Compose take them. Otherwise there is one, and its settings
are Airflow's own environment.

DAG files list the folder and read no file in it. What is wrong with one fails that pipeline's tasks, and no others.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

FOLDER = "CUSTOMER_ACTIVITY_PIPELINES"
PROGRAM = "CUSTOMER_ACTIVITY_PROGRAM"  # where the command is, when it is neither beside the DAGs nor on the PATH
PREFIX = "ACTIVITY_"  # of the product's settings
PIPELINE = "ACTIVITY_PIPELINE"
DEFAULT = "customer-activity"
# As the product's settings have it, which DAGs cannot import; a test compares the two.
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME_LENGTH = 63

log = logging.getLogger(__name__)


class Pipeline(NamedTuple):
    """One pipeline."""

    name: str  # as the product has it, such as `orders-eu`
    file: Path | None = None  # its settings; None: they are Airflow's own environment

    @property
    def prefix(self) -> str:
        """What its ids begin with: its name, without dashes."""
        return _prefix(self.name)

    def id(self, what: str) -> str:
        """Return the id of a DAG or a connection of its own."""
        return f"{self.prefix}_{what}"

    def page(self, text: str | None) -> str:
        """Return what a DAG's page says, with this pipeline's names in the place of the default one's."""
        return (text or "").replace(_prefix(DEFAULT), self.prefix)

    def settings(self) -> dict[str, str]:
        """Read its file; nothing where its settings are Airflow's own environment.

        Raises:
            ValueError: the file cannot be read, a line is none, or it is another pipeline's; says what to do.
        """
        if self.file is None:
            return {}
        found = dict(_lines(self.file))
        if found.get(PIPELINE) != self.name:
            raise ValueError(f"{self.file} does not say {PIPELINE}={self.name}\n  → name the file after its pipeline")
        return found


def declared() -> list[Pipeline]:
    """Return the pipelines that this Airflow runs.

    Raises:
        FileNotFoundError: there is no such folder.
        ValueError: the only one has a name that the product would not take.
    """
    folder = os.environ.get(FOLDER)
    if not folder:
        name = os.environ.get(PIPELINE, DEFAULT)
        if not is_name(name):
            raise ValueError(f"{PIPELINE}={name} is not a valid name of a pipeline")
        return [Pipeline(name)]
    files = sorted(file for file in Path(folder).iterdir() if file.suffix == ".env")
    for file in files:
        if not is_name(file.stem):  # no error: that would take the DAGs of all others with it
            log.warning("%s is left out: it is not called as a pipeline can be", file)
    return [Pipeline(file.stem, file) for file in files if is_name(file.stem)]


def named(name: str) -> Pipeline:
    """Return a pipeline by its name: as a trigger is recreated from its arguments."""
    folder = os.environ.get(FOLDER)
    return Pipeline(name, Path(folder, f"{name}.env") if folder else None)


def is_name(name: str) -> bool:
    """Whether the product takes it for a pipeline's name."""
    return len(name) <= NAME_LENGTH and NAME.fullmatch(name) is not None


def _prefix(name: str) -> str:
    return name.replace("-", "_")


def _lines(file: Path) -> list[tuple[str, str]]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} cannot be read: {type(error).__name__}") from None
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [_setting(line, f"{file}, line {number}") for number, line in lines if line and not line.startswith("#")]


def _setting(line: str, where: str) -> tuple[str, str]:
    """Read a line as a shell would, quotes included. Only settings may be there, of which none is a secret."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # a quote that is not closed
        words = []
    name, sign, value = words[0].partition("=") if len(words) == 1 else ("", "", "")
    if not sign or not (name.startswith(PREFIX) or name == PROGRAM):
        raise ValueError(f"{where}: not a setting\n  → {PREFIX}…=…, with quotes around what has spaces in it")
    return name, value
