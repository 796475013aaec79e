"""The product's command line, called in this process."""

from __future__ import annotations

import pytest

from customer_activity import cli


def call(*arguments: str) -> int:
    """Run a command line; return its exit code."""
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code
