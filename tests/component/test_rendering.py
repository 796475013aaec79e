"""A suite's page of Data Docs: whatever id the run got, it is written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from customer_activity.quality import rendering


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("9f3c21ab", id="as most are"),
        pytest.param("2417ad4a", id="like a time zone that is none"),
        pytest.param("01000000", id="like a time zone"),
    ],
)
def test_a_run_may_have_any_id(ending: str) -> None:
    """Great Expectations reads it as a time where it can."""
    run_id = f"20261127T032130Z-{ending}"
    assert run_id in rendering.page("bronze.quarantine", run_id, datetime(2026, 11, 27, 3, 21, 30, tzinfo=UTC), {})
