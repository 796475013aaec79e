"""Where the project is: in a source tree, or in an installed package."""

from __future__ import annotations

from pathlib import Path

# Where `expectations/` and `infra/` are: a wheel carries in the package what code reads of them (pyproject.toml).
PACKAGE = Path(__file__).resolve().parents[1]
IS_INSTALLED = (PACKAGE / "project").is_dir()
PROJECT = PACKAGE / "project" if IS_INSTALLED else PACKAGE.parents[1]
TO_GET_JARS = (
    "name the .jars of a source tree where `make setup` has run by ACTIVITY_JARS_DIR"
    if IS_INSTALLED
    else "run `make setup`"
)
