"""Corrections as `activity rebuild --apply` and `--undo` make them, of a pipeline whose topics are in memory."""

from __future__ import annotations

from customer_activity.lake.corrections import Correction
from customer_activity.rebuild.repair import Applied, apply_in
from customer_activity.rebuild.undoing import undo_in
from support.streaming import StreamingPipeline


def applied(pipeline: StreamingPipeline) -> Applied:
    return apply_in(pipeline.spark, pipeline.settings, read=lambda *_: pipeline.view.values)


def corrected(pipeline: StreamingPipeline) -> Correction:
    done = applied(pipeline).correction
    assert done is not None
    return done


def undone(pipeline: StreamingPipeline, run: str) -> Applied:
    return undo_in(pipeline.spark, pipeline.settings, run, read=lambda *_: pipeline.view.values)


def rows_of(correction: Correction) -> dict[str, tuple[int, int]]:
    """Return how many rows were retracted and added, of the tables that were changed."""
    found = {label: (change.retracted.rows, change.added.rows) for label, change in correction.changes.items()}
    return {label: counts for label, counts in found.items() if any(counts)}
