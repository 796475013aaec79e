"""`activity lateness`: how late purchases were, and what each grace would have left out.

Read from silver.timed_purchases, where each purchase has the latest event time before it in its Kafka partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from customer_activity.catalog import Table
from customer_activity.errors import SettingsError
from customer_activity.inspection import tables

PERCENTILES = (50.0, 90.0, 99.0, 99.9, 100.0)
GRACES = (0.0, 1 / 60, 5 / 60, 0.25, 1.0, 6.0, 24.0, 48.0, 168.0)  # hours


class Grace(NamedTuple):
    """A grace, and what is later than it."""

    hours: float
    purchases: int
    share: float  # of all purchases, 0 to 1


class Lateness(NamedTuple):
    """How late purchases were.

    Attributes:
        version: of silver.timed_purchases, which was read.
        purchases: all of them.
        late: of those, the ones older than the latest before in their partition.
        percentiles: by percentage, the seconds that so many of the late ones do not exceed.
        graces: what each would have left out, the shortest first; the configured one is among them.
    """

    version: int
    purchases: int
    late: int
    percentiles: dict[str, float]
    graces: list[Grace]


def lateness(lake: str, configured: float, more: Sequence[float] = ()) -> Lateness:
    """Read the distribution.

    Args:
        lake: whose purchases.
        configured: the grace in hours that the settings say.
        more: hours of other graces to be shown.

    Raises:
        SettingsError: there is no such table.
    """
    opened = tables.open_table(lake, Table.TIMED_PURCHASES)
    if opened is None:
        raise SettingsError(
            f"there is no {Table.TIMED_PURCHASES.label} at {lake}",
            remedy="it is written by the streams of windows: switch some on by ACTIVITY_STREAMS, and start the streams",
        )
    hours = sorted({*GRACES, configured, *more})
    with duckdb.connect(":memory:") as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("purchases", opened.to_pyarrow_dataset())
        database.execute(
            "CREATE TEMP TABLE lateness AS SELECT epoch_us(partition_time) - epoch_us(occurred_at) AS late_by, "
            "count(*) AS purchases FROM purchases GROUP BY ALL"
        )
        ((total, late),) = database.execute(
            "SELECT coalesce(sum(purchases), 0), coalesce(sum(purchases) FILTER (late_by > 0), 0) FROM lateness"
        ).fetchall()
        graces = [
            database.execute(
                "SELECT coalesce(sum(purchases), 0) FROM lateness WHERE late_by > ?", [each * 3_600_000_000]
            ).fetchall()[0][0]
            for each in hours
        ]
        running = database.execute(
            "SELECT late_by, sum(purchases) OVER (ORDER BY late_by) FROM lateness WHERE late_by > 0 ORDER BY late_by"
        ).fetchall()
    return Lateness(
        opened.version(),
        int(total),
        int(late),
        {f"{wanted:g}": _at(running, wanted * float(late) / 100) for wanted in PERCENTILES if late},
        [
            Grace(each, int(excluded), float(excluded) / float(total) if total else 0.0)
            for each, excluded in zip(hours, graces, strict=True)
        ],
    )


def _at(running: Sequence[tuple[int, float]], wanted: float) -> float:
    """Return the seconds that so many of the late purchases do not exceed."""
    return next(late_by / 1e6 for late_by, purchases in running if purchases >= wanted)


def said(hours: float) -> str:
    """Say a grace as people do."""
    for unit, size in (("d", 24.0), ("h", 1.0), ("min", 1 / 60)):
        if hours >= size:
            return f"{hours / size:g} {unit}"
    return f"{hours * 3600:g} s"
