"""What runs of quality observed over time, for a report. Without Great Expectations."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from customer_activity.quality.verdicts import path


class Result(NamedTuple):
    """What a run observed of a rule; `at` in milliseconds since 1970."""

    run_id: str
    at: int
    rule: str
    suite: str
    severity: str
    outcome: str
    observed: float | None
    found: str


def since(lake: str, begin: int) -> list[Result]:
    """Return what runs observed since a moment, in milliseconds, the oldest run first; nothing where none was made."""
    try:
        table = DeltaTable(path(lake))
    except TableNotFoundError:
        return []
    columns = ["run_id", "judged_at", "rule", "suite", "severity", "outcome", "observed", "found"]
    moment = pa.scalar(begin * 1000, pa.timestamp("us", tz="UTC"))
    found = table.to_pyarrow_dataset().to_table(columns=columns, filter=pc.field("judged_at") >= moment)
    found = found.set_column(1, "at", pc.divide(found.column("judged_at").cast(pa.int64()), 1000))
    return sorted((Result(**row) for row in found.to_pylist()), key=lambda result: (result.at, result.run_id))


def by_run(results: Iterable[Result]) -> list[list[Result]]:
    """Divide results, which are in their order, by run."""
    return [list(run) for _, run in groupby(results, attrgetter("run_id"))]
