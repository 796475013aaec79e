"""Raise the alerts of a large part by tasks: the driver plans, commits and holds reports alone (`tasks.py`)."""

from __future__ import annotations

from functools import partial

import numpy as np

from customer_activity.catalog import Table
from customer_activity.engine import spreading
from customer_activity.engine.executors import ByLane, Reports
from customer_activity.engine.workers import Workers
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import DataFile
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.alerts import tasks
from customer_activity.streams.alerts.limits import Limits
from customer_activity.streams.alerts.nearby import Nearby
from customer_activity.streams.alerts.rules import SOURCE
from customer_activity.streams.alerts.spans import Spans

MOST_LANES = 256


def alerts(
    part: Feed, batch: MicroBatch, *, limits: Limits, nearby: Nearby, workers: Workers, settings: Settings
) -> list[DataFile]:
    """Return the files with the alerts that a part's purchases make.

    Raises:
        AssertionError: tasks have not come by as many purchases as the part has.
        ChangeFeedLost: a file of the part is gone.
        SettingsError: an executor does not see the lake.
    """
    judging = partial(_judged, part, batch, limits, nearby, workers)
    found = spreading.written(part, SOURCE, Table.FRAUD_ALERTS, settings, [judging])
    batch.rows += found.read
    return found.files


def _judged(part: Feed, batch: MicroBatch, limits: Limits, nearby: Nearby, workers: Workers) -> Reports:
    """Look for what is near the part's purchases, and judge both."""
    added = part.added[SOURCE]
    shares = pieces.divided(SOURCE, added)
    with batch.phase("read"):
        told = workers.run(len(shares), partial(tasks.look_back, part.lake, limits, shares), batch.progress)
        begins, ends = (np.array([at for each in told for at in each[name]], np.int64) for name in ("begins", "ends"))
        spans = Spans.of(begins, ends)
        own = {file.path for file in added}
        near = [file for file in nearby.files(spans) if file.path not in own]
    lanes = pieces.lanes([*added, *near], workers.at_once(), MOST_LANES)
    work = tasks.Work(part.lake, limits, [*shares, *pieces.divided(SOURCE, near, is_past=True)], spans, lanes)
    with batch.phase("compute"):
        judging = ByLane(partial(tasks.pack, work), lanes, partial(tasks.judge, work))
        return workers.run_by_lane(len(work.shares), judging, batch.progress)
