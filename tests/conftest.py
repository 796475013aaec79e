"""Marks tests by the folder they are in: what they need and what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest

LAYERS = ("unit", "spark", "integration")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its layer."""
    root = Path(__file__).parent
    for item in items:
        layer = item.path.relative_to(root).parts[0]
        if layer in LAYERS:
            item.add_marker(getattr(pytest.mark, layer))
