"""A correction with a real broker: consumers of the view see the rows that differ, once, and nothing else."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from customer_activity.catalog import Table
from customer_activity.rebuild.repair import apply_in
from customer_activity.rebuild.undoing import undo_in
from customer_activity.settings import Settings
from customer_activity.streams.publish.resync import resync
from support.broker import assert_verified, drain, send, view
from support.corrections import count_wrongly
from support.damages import set_
from support.quality import rewrite
from support.records import profile, purchase, tombstone


@pytest.mark.nightly
def test_the_view_gets_what_differs_and_nothing_else(spark: SparkSession, settings: Settings) -> None:
    send(settings, *(profile(f"C-{n}") for n in range(20)), *(purchase(f"P-{n}", f"C-{n}") for n in range(20)))
    repeats = purchase("P-1", "C-1"), purchase("P-2", "C-2", "99.00")
    send(settings, *repeats, profile("C-3", updated=500, address="stale"), tombstone("C-4"), purchase("P-20", "C-5"))
    drain(spark, settings)
    known = view(settings)

    def sent() -> dict[str, int]:
        """Let the streams go on; return whose rows have reached the view since the last time, and their purchases."""
        drain(spark, settings)
        fresh = view(settings)
        for record in known:
            fresh.remove(record)
        known.extend(fresh)
        assert len(dict(fresh)) == len(fresh)
        return {key: (row or {})["purchaseCount"] for key, row in fresh}

    count_wrongly(settings.lake, "P-7")
    assert sent() == {"C-7": 2}

    forward = apply_in(spark, settings).correction
    assert forward is not None
    send(settings, purchase("P-21", "C-8"), purchase("P-2", "C-2", "98.00"), profile("C-4", updated=9_000))
    assert sent() == {"C-7": 1, "C-8": 2, "C-4": 1}
    assert_verified(settings)

    assert undo_in(spark, settings, forward.run).correction is not None
    assert sent() == {"C-7": 2}

    rewrite(settings.lake, Table.ACTIVITY_CHANGES, set_("customer_id", "C-9", purchase_count=9))
    assert apply_in(spark, settings).correction is not None
    resync(settings, "somebody changed gold")  # what publish has not read yet was changed by somebody else
    assert sent() == {"C-7": 1}  # what the topic has of C-9 was right
    assert_verified(settings)
