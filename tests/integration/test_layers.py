"""Layers of a lake put back from a backup: refused by name until what is said to mend them has, or gone on with."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table, checkpoint_path, history_path
from customer_activity.errors import TerminalError
from customer_activity.lake.jvm import forget_logs
from customer_activity.maintenance import maintenance
from customer_activity.operations import recovery
from customer_activity.rebuild.repair import apply_in
from customer_activity.settings import Settings
from customer_activity.streams.publish.resync import resync
from customer_activity.verification.verify import verify
from support.broker import assert_verified, drain, send
from support.records import profile, purchase, tombstone
from support.streams import CURRENT, Query

BRONZE = (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.QUARANTINE)
SILVER = (Table.PURCHASES, Table.PROFILE_CHANGES)
GOLD = (Table.ACTIVITY_CHANGES,)
PATH = (Query.BRONZE, Query.SILVER, Query.GOLD)

Remedy = Callable[[SparkSession, Settings], None]

pytestmark = pytest.mark.timeout(600)  # two days, a refusal, a rebuild and another day
nightly = pytest.mark.nightly  # tests/component/test_agreement.py has each refusal
IN_CI = ("bronze, checkpoint", "every checkpoint")  # remedies by `stream` and `rebuild`, and by `recover`


def recover(*queries: Query) -> Remedy:
    """Do `activity recover`."""

    def mend(_: SparkSession, settings: Settings) -> None:
        for query in queries:
            recovery.recover(settings.lake, query, "a backup was put back")

    return mend


def rebuild(spark: SparkSession, settings: Settings) -> None:
    """Do `activity rebuild --apply`, in the session that there is."""
    apply_in(spark, settings)


def stream(*queries: Query) -> Remedy:
    """Do `activity stream … --available-now`."""
    return lambda spark, settings: drain(spark, settings, *queries)


def resynced(_: SparkSession, settings: Settings) -> None:
    """Do `activity resync publish`."""
    resync(settings, "a backup was put back")


def places(tables: Sequence[Table], queries: Sequence[Query] = (), others: Sequence[str] = ()) -> list[str]:
    """Return the parts of a lake, below it, that belong to tables and queries."""
    histories = [history_path("", table)[1:] for table in tables]
    return [*tables, *histories, *(checkpoint_path("", query)[1:] for query in queries), *others]


def put_back(backup: Path, lake: str, parts: Sequence[str], spark: SparkSession) -> None:
    """Have parts of a lake as they were."""
    for part in parts:
        shutil.rmtree(Path(lake, part), ignore_errors=True)
        if (backup / part).exists():
            shutil.copytree(backup / part, Path(lake, part))
    forget_logs(spark)  # as a driver that starts


def two_days(spark: SparkSession, settings: Settings, backup: Path, *, until_short: bool = False) -> None:
    """Let a lake live for a day, keep a copy of it, and let it live for another."""
    send(settings, profile("C-1"), purchase("P-1"), profile("C-3"), purchase("P-2", "C-9"), purchase("P-0", amount="x"))
    drain(spark, settings)
    for table in topology.tables() if until_short else ():
        maintenance.checkpoint_log(settings.lake, table, every=1)
    shutil.copytree(settings.lake, backup)
    send(settings, purchase("Q-1"), profile("D-1"), profile("D-2"), purchase("R-1", amount="x"))
    send(settings, profile("C-1", updated=9_000), profile("C-9"), tombstone("C-3"))
    drain(spark, settings)
    for table in topology.tables() if until_short else ():
        maintenance.checkpoint_log(settings.lake, table, every=1)
        maintenance.shorten(settings.lake, table, 0)


EVERYTHING = places([*topology.tables()], [*Query], ["_index", "_locks"])


PUT_BACK: dict[str, tuple[Sequence[str], str | None, Sequence[Remedy]]] = {
    "silver": (places(SILVER), "silver: .* lacks", [rebuild]),
    "silver.purchases": (places([Table.PURCHASES]), "silver: silver.purchases lacks", [rebuild]),
    "profile_changes": (places([Table.PROFILE_CHANGES]), "silver: .*changes lacks", [rebuild]),
    "silver, its checkpoint": (places(SILVER, [Query.SILVER]), "gold has read silver", [rebuild]),
    "silver, gold, current rows": (places(SILVER + GOLD + CURRENT), "lacks", [rebuild, resynced]),
    "silver, gold, their checkpoints, current rows": (
        places(SILVER + GOLD + CURRENT, [Query.SILVER, Query.GOLD]),
        "has read .* it was restored",
        [rebuild, recover(Query.SUMMARIES, Query.PROFILES, Query.ACTIVITY), resynced],
    ),
    "bronze": (
        places(BRONZE),
        "bronze: .* committed batch",
        [recover(Query.BRONZE), stream(Query.BRONZE), rebuild],
    ),
    "bronze, checkpoint": (places(BRONZE, [Query.BRONZE]), "silver has read", [stream(Query.BRONZE), rebuild]),
    "summaries": (places([Table.SUMMARIES]), "summaries: .*activity recover", [recover(Query.SUMMARIES)]),
    "profiles": (places([Table.PROFILES]), "profiles: ", [recover(Query.PROFILES)]),
    "activity": (places([Table.ACTIVITY]), "activity: ", [recover(Query.ACTIVITY)]),
    "every checkpoint": (places([], [*Query]), "knows of none", [recover(*Query)]),
    "gold's checkpoint": (places([], [Query.GOLD]), "gold: .*knows of none", [recover(Query.GOLD)]),
    "all but publish's checkpoint, locks and index": (
        places([*topology.tables()], [query for query in Query if query != Query.PUBLISH]),
        "publish has read gold",
        [stream(*PATH), resynced],
    ),
    "everything": (EVERYTHING, "gold.activity_changes was restored", [stream(*PATH), resynced]),
    "everything but the summaries": (
        [part for part in EVERYTHING if part not in places([Table.SUMMARIES], [Query.SUMMARIES])],
        "summaries has read",
        [stream(*PATH), recover(Query.SUMMARIES), resynced],
    ),
    "locks": (places([], others=["_locks"]), None, []),
    "index": (places([], others=["_index"]), None, []),
}


@pytest.mark.parametrize(
    ("parts", "fault", "remedies"),
    [pytest.param(*case, id=name, marks=[] if name in IN_CI else nightly) for name, case in PUT_BACK.items()],
)
def test_layers_put_back_are_refused_by_name_until_they_are_mended(
    spark: SparkSession,
    settings: Settings,
    tmp_path: Path,
    parts: Sequence[str],
    fault: str | None,
    remedies: Sequence[Remedy],
) -> None:
    two_days(spark, settings, tmp_path / "backup")
    put_back(tmp_path / "backup", settings.lake, parts, spark)
    send(settings, purchase("P-9"), profile("D-1", updated=9_000))

    if fault is not None:
        with pytest.raises(TerminalError, match=rf"(?s){fault}"):
            drain(spark, settings)
    for remedy in remedies:
        remedy(spark, settings)
    drain(spark, settings)

    if resynced not in remedies:
        assert_verified(settings)
        return
    # Rows that gold has made once more have newer versions: those that say the same go out a second time.
    checks = verify(settings, settle_seconds=0).checks
    assert {check.name for check in checks if not check.ok} <= {"view: nothing twice"}


@pytest.mark.parametrize(
    ("table", "query"),
    [
        pytest.param(Table.SUMMARIES, Query.SUMMARIES, id="summaries", marks=nightly),
        pytest.param(Table.PROFILES, Query.PROFILES, id="profiles", marks=nightly),
        pytest.param(Table.ACTIVITY, Query.ACTIVITY, id="activity", marks=nightly),
    ],
)
def test_current_rows_put_back_to_before_what_logs_have_are_made_anew(
    spark: SparkSession, settings: Settings, tmp_path: Path, table: Table, query: Query
) -> None:
    two_days(spark, settings, tmp_path / "backup", until_short=True)
    put_back(tmp_path / "backup", settings.lake, places([table]), spark)
    send(settings, purchase("P-9"), profile("D-1", updated=9_000))
    with pytest.raises(TerminalError, match=rf"{query}: [\s\S]*activity recover {query}"):
        drain(spark, settings)

    assert recovery.recover(settings.lake, query, "a backup was put back").rebuilt is table
    drain(spark, settings)

    assert_verified(settings)
