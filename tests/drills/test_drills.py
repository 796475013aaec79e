"""The short form of `make drills`: each kind of fault once, where it could do most harm, and the proof at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from drills.faults import Index, opened
from drills.placements import PLACED
from drills.proofs import leaks, seams

# Where the driver is killed, and what becomes of the index before the next start; that of earlier is of the first kill.
SIX_KILLS = {
    "bronze:committed": Index.KEPT,  # one topic's records are in, the other's are not
    "silver:committed": Index.REMOVED,
    "gold:committed": Index.EARLIER,  # in gold, not on the topic, not in Spark's checkpoint
    "publish:sending": Index.ELSEWHERE,
    "publish:published": Index.KEPT,  # on the topic, not in Spark's checkpoint
    "summaries:committed": Index.KEPT,  # added to the sums, not in Spark's checkpoint
}
GROWN_BEHIND = "silver:committed"  # the kill after which the input topics get another partition
SWITCHED = ("bronze:committed 2", "silver:committed", "gold:committed", "publish:sending", "gold:planned")
ONE_KILL = {GROWN_BEHIND: SIX_KILLS[GROWN_BEHIND]}


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "kills",
    [pytest.param(ONE_KILL, id="one kill"), pytest.param(SIX_KILLS, id="six kills", marks=pytest.mark.nightly)],
)
def test_a_driver_that_is_killed_or_frozen_harms_nothing(tmp_path: Path, kills: dict[str, Index]) -> None:
    with opened(tmp_path / "drill", seed=1) as drill:
        for place, index in kills.items():
            drill.kill_at(place, index)
            if place == GROWN_BEHIND:
                drill.add_partitions()
        drill.freeze(turns_away=kills is SIX_KILLS)
        proof = drill.prove()["verify"]
        assert seams(drill.trial.settings.lake) == []
    assert leaks(tmp_path) == []
    assert (proof["equal"], proof["verdict"]) == (True, "equal")


@pytest.mark.nightly
@pytest.mark.timeout(1500)
def test_a_driver_may_place_batches_another_way_than_the_one_before_that_was_killed(tmp_path: Path) -> None:
    with opened(tmp_path / "drill", 1, PLACED) as drill:
        for place in SWITCHED:
            drill.kill_at(place)
        proof = drill.prove()["verify"]
        assert seams(drill.trial.settings.lake) == []
    assert leaks(tmp_path) == []
    assert (proof["equal"], proof["verdict"]) == (True, "equal")
