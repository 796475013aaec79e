"""Maintenance on demand: by the driver between its batches when one runs, else here, as long as none does.

A table has one writer at a time. A driver that runs is asked (`supervision/requests.py`); where none runs, the leases
of all queries are held meanwhile, so that a driver that starts is turned away.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

import msgspec

from customer_activity import topology, unforeseen
from customer_activity.catalog import Table
from customer_activity.checkpoints import checkpoint
from customer_activity.contracts.tables import TABLES
from customer_activity.errors import QueryAlreadyRunning
from customer_activity.lake import change_feeds, delta
from customer_activity.lease.epochs import ProcessLock
from customer_activity.lease.lease import WAIT_FOR_IT, Lease
from customer_activity.maintenance import maintenance, tending
from customer_activity.maintenance.maintenance import FAULTS, RESTING_BYTES
from customer_activity.maintenance.tending import Tended
from customer_activity.settings import Settings
from customer_activity.supervision import requests

SET_ASIDE_DAYS = 30  # a checkpoint that was replaced is for whoever looks into why; nothing reads it again


class Maintained(NamedTuple):
    """What was done.

    Attributes:
        by_driver: whether a driver did it between its batches.
        tables: what was done to each table; a driver does those that it alone writes.
        checkpoints: old checkpoints that are gone.
    """

    by_driver: bool
    tables: list[Tended]
    checkpoints: list[str]


def maintain(settings: Settings, wait_seconds: float) -> Maintained:
    """Compact every table, shorten its log, remove what is expired, and what old checkpoints are left.

    Args:
        settings: whose lake.
        wait_seconds: so long a driver may take.

    Raises:
        SettingsError: there is no lake.
        TransientError: a driver runs and did not come to it, or one runs elsewhere.
    """
    delta.require_tables(settings.lake)
    answer = requests.by_driver(settings, requests.MAINTENANCE, {}, wait_seconds)
    tables = at_rest(settings) if answer is None else msgspec.convert(answer["tables"], list[Tended])
    before = datetime.now(UTC) - timedelta(days=SET_ASIDE_DAYS)
    return Maintained(answer is not None, tables, checkpoint.forget_set_aside(settings.lake, before))


def at_rest(settings: Settings) -> list[Tended]:
    """Do all tables of a lake that no driver runs on.

    Raises:
        QueryAlreadyRunning: one does, and not with these settings.
        LeaseLost: one has taken over meanwhile; what is done is right.
    """
    lake, promised = settings.lake, partial(change_feeds.promise, settings)
    try:
        with Lease(ProcessLock, lake, topology.names()) as held:
            done = []
            for table in topology.tables():
                held.check()  # a suspended process may have lost the lease
                done.append(_tended(lake, table, promised(table)))
            return done
    except QueryAlreadyRunning as error:
        raise QueryAlreadyRunning(
            error.what,
            remedy=f"run this where that driver runs, with its ACTIVITY_RUN_DIR, or stop it first, or {WAIT_FOR_IT}",
        ) from None


def _tended(lake: str, table: Table, promised: timedelta) -> Tended:
    """Do all that there is to do to a table; what fails is no other table's loss."""
    done = tending.tend(lake, table, target_bytes=RESTING_BYTES[table], promised=promised)
    try:
        while maintenance.shorten(lake, table, TABLES[table].kept.commits, None, promised):
            pass  # no stream waits
    except FAULTS as error:
        words = unforeseen.brief(error)
        return done if words in done.error else done._replace(error="; ".join(filter(None, (done.error, words))))
    return done
