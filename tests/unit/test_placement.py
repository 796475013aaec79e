"""Where a batch is worked on follows from its size, the master, and what was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from customer_activity.engine import placement
from customer_activity.settings import Settings

CLUSTER = "spark://master:7077"


@pytest.mark.parametrize(
    ("asked", "master", "is_small", "executors", "uses_threads", "place"),
    [
        pytest.param("auto", CLUSTER, False, 2, False, "executors", id="a large batch on a cluster"),
        pytest.param("auto", CLUSTER, True, 2, False, "driver", id="a small batch on a cluster"),
        pytest.param("auto", CLUSTER, False, 0, False, "driver", id="a cluster that has given no executor"),
        pytest.param("auto", "local[*]", False, 0, False, "driver", id="a large batch on one machine"),
        pytest.param("auto", "local[*]", False, 0, True, "executors", id="one that threads serve"),
        pytest.param("auto", "local[*]", True, 0, True, "driver", id="a small one that they would serve"),
        pytest.param("driver", CLUSTER, False, 2, True, "driver", id="the driver was asked for"),
        pytest.param("executors", "local[*]", True, 0, False, "executors", id="executors were asked for"),
    ],
)
def test_where_a_batch_is_worked_on(
    tmp_path: Path, asked: str, master: str, *, is_small: bool, executors: int, uses_threads: bool, place: str
) -> None:
    settings = Settings(lake=str(tmp_path), spark_master=master).model_copy(update={"placement": asked})
    found = placement.decide(settings, 1_234, lambda: executors, is_small=is_small, uses_threads=uses_threads)
    assert found.place == place
    assert found.why
