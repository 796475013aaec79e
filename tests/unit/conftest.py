"""What several unit tests start from: settings of an empty deployment, and a small world that is right."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from customer_activity.settings import PREFIX, Settings
from customer_activity.verification.verify import Report, verify
from support.world import World


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return settings of a deployment that has nothing yet, and whose broker does not answer."""
    return Settings(lake=str(tmp_path / "lake"), run_dir=tmp_path / "run", kafka_bootstrap_servers="localhost:1")


@pytest.fixture
def deployment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Have the command line load the same settings: they are what the environment says, and nothing else is."""
    for variable in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(variable)
    for variable, value in settings.environment().items():
        monkeypatch.setenv(variable, value)
    return settings


@pytest.fixture(scope="session")
def right_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the tables of a right world, once."""
    lake = tmp_path_factory.mktemp("right_lake")
    World().write(str(lake))
    return lake


@pytest.fixture
def verify_world(settings: Settings, right_lake: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Return what writes a world's tables, stands in for its Kafka, and verifies."""

    def write_and_verify(world: World, **options: Any) -> Report:
        world.write(settings.lake, right_lake)
        world.serve(monkeypatch)
        return verify(settings, **{"settle_seconds": 0.0} | options)

    return write_and_verify
