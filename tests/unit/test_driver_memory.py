"""What a benchmark calls the driver's memory: the most that it held anywhere, not where it held little."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import targets
from benchmarks.scenarios import SCENARIOS

PEERS = {"tutorial", "streams_freshness"}
OURS = tuple(sorted(SCENARIOS.keys() - PEERS))
SINGLE = ("rate", "steady", "judged")  # one run, which is the scenario itself


@pytest.mark.parametrize("worst", OURS)
def test_it_is_that_of_the_worst_scenario(worst: str) -> None:
    peaks = {name: [900, 3_405 if name == worst else 900] for name in OURS}
    scenarios: dict[str, Any] = {
        name: {"sizes" if name == "growth" else "runs": [{"jvm_megabytes": peak} for peak in both]}
        for name, both in peaks.items()
    }
    scenarios |= {name: {"jvm_megabytes": max(peaks[name])} for name in SINGLE}
    assert targets.driver_memory(scenarios) == 3.4


def test_every_scenario_in_which_our_driver_runs_is_one_of_them() -> None:
    assert set(targets.OURS) == set(OURS)
