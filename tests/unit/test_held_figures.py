"""What `held.py` compares: medians over all starts and lots of bursts, and the ratio of the largest size."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from benchmarks.held_figures import as_table, compared

PEAK = "peak memory, MB"
START = "start to the first record in the view, s"
SMALL = "500 purchases to the view, s"


def drained(seconds: float, own: float = 500.0) -> dict[str, float]:
    """Return the figures of streams that took what waited."""
    return {
        "batch_seconds": seconds,
        "driver_cpu": seconds,
        "executors_cpu": seconds,
        "driver_mb": own,
        "executors_mb": 100.0,
        "own_mb": own,
    }


def lot(*seconds: float, own: float = 700.0) -> dict[str, Any]:
    """Return the figures of a lot of bursts."""
    each = list(seconds)
    return {"in_view_seconds": each, "silver_seconds": each, "gold_seconds": each, "own_mb": own, "peak_mb": own + 200}


def figures(*lots: dict[str, Any], starts: tuple[float, ...] = (9.0, 7.0, 8.0)) -> dict[str, Any]:
    """Return what was measured of one size."""
    return {
        "catch_up": {"silver": drained(5.0), "gold": drained(5.0)},
        "starts": [{"seconds": seconds, "own_mb": 550.0, "peak_mb": 600.0} for seconds in starts],
        "small": list(lots),
        "large": {"silver": drained(5.0), "gold": drained(6.0)},
        "spread": {"silver": drained(5.0), "gold": drained(8.0)},
        "behind": drained(2.0),
        "after": {"seconds": 12.0, "own_mb": 550.0, "peak_mb": 600.0},
        "sorted_runs_mb": 84,
        "local_state_mb": 0,
    }


@pytest.mark.parametrize(
    ("lots", "median"),
    [
        pytest.param([lot(1.0, 3.0, 2.0)], 2.0, id="one lot"),
        pytest.param([lot(1.0, 1.0, 1.0), lot(5.0, 6.0), lot(7.0)], 3.0, id="bursts count, and not lots"),
        pytest.param([lot(4.0), lot(), lot(6.0)], 5.0, id="a lot without a batch"),
    ],
)
def test_a_figure_is_the_median_of_all_bursts(lots: list[dict[str, Any]], median: float) -> None:
    found = compared(figures(*lots))
    assert (found[SMALL], found["500 purchases, gold, s"], found[START]) == (median, median, 8.0)
    assert (found["large batch, s"], found["large batch of all customers, gold, s"]) == (11.0, 8.0)
    assert found["start behind large batches, s"] == 12.0


def test_the_peak_is_that_of_the_lot_that_had_most() -> None:
    found = compared(figures(lot(1.0), lot(1.0, own=2_000.0), lot(1.0)))
    assert (found[PEAK], found["peak memory with files, MB"]) == (2_000.0, 2_200.0)


def test_the_largest_size_is_compared_with_the_smallest() -> None:
    sizes = {"1000": figures(lot(1.0)), "10000": figures(lot(9.0)), "100000": figures(lot(1.5), starts=(12.0,))}
    console = Console(width=160, record=True)
    with console.capture() as shown:
        console.print(as_table("executors", sizes))
    rows = {cells[1].strip(): cells for line in shown.get().splitlines() if len(cells := line.split("│")) > 2}
    assert [cell.strip() for cell in rows[SMALL][2:7]] == ["1.00", "9.00", "1.50", "1.50", "≤ 1.2"]
    assert [cell.strip() for cell in rows[START][5:7]] == ["1.50", "≤ 1.5"]
