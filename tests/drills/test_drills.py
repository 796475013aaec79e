"""The short form of `make drills`: each kind of fault once, where it could do most harm, and the proof at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from drills.faults import Index, leaks, opened, seams

WORST_PLACES = (
    "bronze:committed",  # one topic's records are in, the other's are not
    "silver:committed",
    "gold:committed",  # in gold, not on the topic, not in Spark's checkpoint
    "publish:sending",
    "publish:published",  # on the topic, not in Spark's checkpoint
    "summaries:committed",  # added to the sums, not in Spark's checkpoint
)
# What becomes of the index before the next start; that of earlier is of the first kill.
INDEXES = {
    "silver:committed": Index.REMOVED,
    "gold:committed": Index.EARLIER,
    "publish:sending": Index.ELSEWHERE,
}
GROWN_BEHIND = "silver:committed"  # the kill after which the input topics get another partition


@pytest.mark.timeout(1500)
def test_a_driver_that_is_killed_or_frozen_harms_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "drill", seed=1) as drill:
        for place in WORST_PLACES:
            drill.kill_at(place, INDEXES.get(place, Index.KEPT))
            if place == GROWN_BEHIND:
                drill.add_partitions()
        drill.freeze()
        proof = drill.prove()["verify"]
        assert seams(drill.trial.settings.lake) == []
    assert leaks(tmp_path) == []
    assert (proof["equal"], proof["verdict"]) == (True, "equal")
