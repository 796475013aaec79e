"""Two checkouts beside each other: the ratio is of each pair, not of two medians."""

from __future__ import annotations

from benchmarks.beside import summed_up


def test_a_machine_that_becomes_slower_moves_the_medians_and_not_the_ratio() -> None:
    pairs = [
        {"other": {"s": 10.0}, "this": {"s": 11.0}},
        {"other": {"s": 20.0}, "this": {"s": 21.0}},
        {"other": {"s": 40.0}, "this": {"s": 48.0}},
    ]
    said = summed_up(pairs)["s"]
    assert (said["other"], said["this"], said["pairs"]) == (20.0, 21.0, 3)
    assert (said["ratio"], said["ratio_low"], said["ratio_high"]) == (1.1, 1.05, 1.2)


def test_what_only_one_of_them_has_is_told_alone() -> None:
    pairs = [{"other": {"s": 1.0}, "this": {"s": 1.0, "alert": alert}} for alert in (2.0, 5.0, 3.0)]
    said = summed_up(pairs)
    assert said["alert"] == {"this": 3.0, "pairs": 3}
    assert said["s"]["ratio"] == 1.0
