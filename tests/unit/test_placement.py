"""Where a batch is worked on follows from its size, the master, and what was asked for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from customer_activity.catalog import Table
from customer_activity.engine import placement
from customer_activity.lake.microbatch import MicroBatch, Place, Placement
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
    found = placement.decide(settings, "1,234 rows", lambda: executors, is_small=is_small, uses_threads=uses_threads)
    assert found.place == place
    assert found.why


MANY = Placement(Place.EXECUTORS, "2,500,000 rows are many")
FEW = Placement(Place.DRIVER, "300 rows are few")


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        pytest.param([], None, id="no part"),
        pytest.param([None], None, id="a stream that always works in one place"),
        pytest.param([FEW], "in the driver: 300 rows are few", id="one"),
        pytest.param([MANY, FEW], "on executors: 2,500,000 rows are many; 1 other part", id="the last one is small"),
        pytest.param([FEW, None, MANY], "on executors: 2,500,000 rows are many; 1 other part", id="one reads nothing"),
        pytest.param([MANY, MANY, FEW], "on executors: 2,500,000 rows are many; 2 other parts", id="several"),
        pytest.param([FEW, FEW], "in the driver: 300 rows are few; 1 other part", id="all in the driver"),
    ],
)
def test_a_batch_of_several_parts_is_told_by_those_on_executors(
    parts: list[Placement | None], told: str | None
) -> None:
    batch = MicroBatch("silver", "generation", 7)
    feeds: list[Any] = [SimpleNamespace(versions={Table.PURCHASE_EVENTS: (n, n + 1)}) for n in range(len(parts))]
    for placed, (_, of_part) in zip(parts, batch.parts(feeds), strict=True):
        assert of_part.placement is None
        of_part.placement = placed
    assert (batch.placement and str(batch.placement)) == told
