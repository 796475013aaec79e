"""Publishing on real tables: what the topic cannot take is kept, and holds nothing up."""

from __future__ import annotations

import json

import pytest

from customer_activity.catalog import Query, Table
from customer_activity.failpoints import FailPoint
from support.pipeline import Pipeline
from support.records import profile


class Crash(Exception):
    """Raised at a fail point, as if the process had ended there."""


def test_a_row_that_is_too_large_is_in_quarantine_once_and_the_others_go_out(pipeline: Pipeline) -> None:
    def end(at: FailPoint) -> None:
        if at is FailPoint.COMMITTED:
            raise Crash

    pipeline.view.max_bytes = 600
    pipeline.send(profile("C-1"), profile("C-2", address="x" * 1_000), profile("C-3"))
    for query in (Query.BRONZE, Query.SILVER, Query.GOLD):
        pipeline.hop(query)
    with pytest.raises(Crash):
        pipeline.hop(Query.PUBLISH, end)
    assert pipeline.view.records == []

    pipeline.repeat(Query.PUBLISH)

    assert pipeline.view.latest().keys() == {"C-1", "C-3"}
    (kept,) = pipeline.rows(Table.QUARANTINE)
    assert (kept["reason"], kept["key"]) == ("too_large_to_publish", b"C-2")
    assert json.loads(kept["value"])["address"] == "x" * 1_000

    pipeline.send(profile("C-2", updated=9_000, address="short"))
    pipeline.run()
    assert pipeline.view.latest()["C-2"]["address"] == "short"
    assert len(pipeline.rows(Table.QUARANTINE)) == 1


def test_a_batch_of_nothing_but_what_is_too_large_is_through(pipeline: Pipeline) -> None:
    pipeline.view.max_bytes = 100
    pipeline.send(profile("C-1"))
    pipeline.run()
    marker = pipeline.view.marker
    assert marker is not None
    assert pipeline.view.records == []

    pipeline.repeat(Query.PUBLISH)
    assert len(pipeline.rows(Table.QUARANTINE)) == 1
