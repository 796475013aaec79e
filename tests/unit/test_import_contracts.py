"""The contracts on imports name every module and package that they are about, also one that is new."""

from __future__ import annotations

import tomllib
from pathlib import Path

from customer_activity.settings import PROJECT

PACKAGE = PROJECT / "jobs" / "customer_activity"
CONTRACTS = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]


def modules(folder: Path) -> set[str]:
    """Return the names of the modules and packages that are in a folder of the package."""
    return {
        ".".join([*folder.relative_to(PACKAGE.parent).parts, path.stem])
        for path in folder.iterdir()
        if not path.name.startswith("__") and (path.suffix == ".py" or (path / "__init__.py").exists())
    }


NAMES = modules(PACKAGE)
SHARED_WITH_THE_VERIFIER = {"catalog", "errors", "kafka", "settings", "shown", "storage"}


def forbidden(of: str) -> tuple[set[str], set[str]]:
    """Return who may not import, and what, of the contract whose name begins so."""
    (contract,) = (contract for contract in CONTRACTS if contract["name"].startswith(of))
    return set(contract["source_modules"]), set(contract["forbidden_modules"])


def test_everything_but_the_demonstration_may_not_import_it() -> None:
    sources, modules = forbidden("production code")
    assert sources == NAMES - {"customer_activity.demo"}
    assert "customer_activity.demo" in modules


def test_only_the_portal_may_import_the_web_framework() -> None:
    sources, modules = forbidden("only the portal")
    assert sources == NAMES - {"customer_activity.portal"}
    assert modules == {"fastapi", "starlette", "uvicorn"}


def test_the_verifier_may_import_nothing_but_what_is_named_here() -> None:
    sources, modules = forbidden("the verifier")
    assert sources == {"customer_activity.verification"}
    assert modules == NAMES - sources - {f"customer_activity.{name}" for name in SHARED_WITH_THE_VERIFIER}


def test_nobody_may_import_a_stream_but_by_the_registry() -> None:
    sources, streams = forbidden("no module outside")
    assert sources == NAMES - {"customer_activity.streams"}
    assert streams == modules(PACKAGE / "streams") - {"customer_activity.streams.registry"}
