"""The real year beside everything optional: windows as pandas computes them, in whatever order purchases come."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.demo.traffic import dataset
from customer_activity.kafka import clients
from customer_activity.settings import Settings
from support.broker import rows
from support.shell import environment
from support.weeks import drain

pytestmark = pytest.mark.nightly

BERLIN, GRACE, GAP = "Europe/Berlin", pd.Timedelta(hours=24), pd.Timedelta(minutes=30)
WINDOWS = ["late_events", "daily", "weekly", "sessions"]
OTHERS = ["payments", "enrichment", "publish_routed", "publish_alerts", "publish_daily_final", "publish_sessions"]
TIME = "transaction_timestamp"
FIVE_WEEKS = 150_000  # lines
LATE_HOURS = 11.0
FIGURES = ["purchase_count", "cents", "first_purchase_at", "last_purchase_at", "is_final"]
DAYS = {Table.DAILY: ("day", 1), Table.WEEKLY: ("first_day", 7)}


@pytest.fixture
def windowed(settings: Settings) -> Iterator[Settings]:
    """Return settings with days of Berlin and a grace of a day, and windows on in this process."""
    topology.switch_on(WINDOWS)
    chosen = {"time_zone": BERLIN, "grace_hours": GRACE / pd.Timedelta(hours=1)}
    yield settings.model_copy(update={"streams": ",".join(WINDOWS), **chosen})
    topology.switch_on([])


@pytest.mark.timeout(1200)
def test_the_tables_of_the_year_are_what_pandas_makes_of_it(windowed: Settings) -> None:
    """Repeated purchases, payments, changes of profiles and all else that is optional come with it."""
    year = windowed.model_copy(update={"streams": ",".join([*WINDOWS, *OTHERS])})
    shares = ("--duplicate-share", "0.01", "--payment-share", "0.9", "--profile-changes", "500", "--tombstones", "20")
    activity(year, "broker", "topics")
    activity(year, "produce", "--dataset", "completejourney", *shares)
    activity(year, "stream", "--available-now")
    assert_windows(year, dataset.transactions())
    proof = json.loads(activity(year, "verify", "--json"))
    assert (proof["verdict"], proof["differences"]) == ("equal", 0)
    activity(year, "quality")


@pytest.mark.parametrize("seed", range(10))
def test_the_order_within_the_grace_makes_no_difference(spark: SparkSession, windowed: Settings, seed: int) -> None:
    """Purchases come up to eleven hours late, in one to four batches."""
    lines = dataset.transactions(FIVE_WEEKS)
    chance = np.random.default_rng(seed)
    late = chance.uniform(0, LATE_HOURS, len(lines)) * 3_600_000
    order = np.argsort(_millis(lines) + late)
    for part in np.array_split(order, 1 + seed % 4):
        send(windowed, lines.take(pa.array(part)))
        drain(spark, windowed)
    assert_windows(windowed, lines)


def activity(settings: Settings, *arguments: str) -> str:
    """Run a command as a process of its own; return what it printed."""
    command = [sys.executable, "-m", "customer_activity", *arguments]
    done = subprocess.run(command, env=environment(settings), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    return done.stdout


def send(settings: Settings, lines: pa.Table) -> None:
    """Send the purchases of lines, in their order."""
    producer = clients.producer(settings, linger_ms=20, queue_buffering_max_messages=len(lines))
    for record in dataset.purchases(lines, "EUR"):
        producer.produce(settings.purchase_topic, record.value, record.key)
    assert producer.flush(60) == 0


def assert_windows(settings: Settings, lines: pa.Table) -> None:
    """Hold the windows of days, of weeks and of sessions against pandas, row by row; nothing was late."""
    assert rows(settings, Table.LATE_EVENTS) == []
    watermark = max(row["watermark"] for row in rows(settings, Table.WATERMARKS))
    bought = pd.DataFrame(
        {
            "customer_id": lines["household_id"].cast(pa.string()).to_pandas(),
            "at": pd.to_datetime(_millis(lines), unit="ms", utc=True),
            "cents": pc.multiply(lines["sales_value"].cast(pa.decimal128(18, 2)), Decimal(100)).cast(pa.int64()),
        }
    )
    for table, (day, length) in DAYS.items():
        right = in_days(bought, length)
        right["is_final"] = _midnight(right.index, length) + GRACE <= watermark
        compare(settings, table, ["customer_id", day], right)
    right = in_sessions(bought)
    right["is_final"] = right["last_purchase_at"] + GAP + GRACE <= watermark
    compare(settings, Table.SESSIONS, ["customer_id", "session_start"], right)


def in_days(bought: pd.DataFrame, length: int) -> pd.DataFrame:
    """Return figures by customer and the first of so many days, of which each begins with a day."""
    day = bought["at"].dt.tz_convert(BERLIN).dt.tz_localize(None).dt.normalize()
    hops = [bought.assign(first=day - pd.Timedelta(days=hop)) for hop in range(length)]
    return figures(pd.concat(hops), "first")


def in_sessions(bought: pd.DataFrame) -> pd.DataFrame:
    """Return figures by customer and first purchase of what has no longer gap in it."""
    ordered = bought.sort_values(["customer_id", "at"])
    before = ordered.groupby("customer_id")["at"].shift()
    begins = before.isna() | (ordered["at"] - before > GAP)
    return figures(ordered.assign(first=ordered["at"].where(begins).ffill()), "first")


def figures(purchases: pd.DataFrame, first: str) -> pd.DataFrame:
    """Return count, sum, first and last purchase of each group."""
    return purchases.groupby(["customer_id", first]).agg(
        purchase_count=("at", "size"),
        cents=("cents", "sum"),
        first_purchase_at=("at", "min"),
        last_purchase_at=("at", "max"),
    )


def compare(settings: Settings, table: Table, keys: list[str], right: pd.DataFrame) -> None:
    """Compare a table's rows with those that pandas has, and their order by key."""
    found = DeltaTable(table_path(settings.lake, table)).to_pandas()
    if table is Table.SESSIONS:
        found = found.rename(columns={"session_end": "last_purchase_at"})
        found["first_purchase_at"] = found["session_start"]
    else:
        found[keys[1]] = pd.to_datetime(found[keys[1]])
    found["cents"] = found["total_amount"].map(lambda amount: int(amount * 100))
    there = found.set_index(keys)[FIGURES].sort_index()
    wanted = right[FIGURES].sort_index().rename_axis(index=keys)
    pd.testing.assert_frame_equal(there, wanted, check_dtype=False, check_index_type=False)


def _midnight(index: pd.Index[Any], days: int) -> pd.DatetimeIndex:
    """Return the moments at which windows of days end."""
    first = pd.DatetimeIndex(index.get_level_values("first"))
    return (first + pd.Timedelta(days=days)).tz_localize(BERLIN).tz_convert("UTC")


def _millis(lines: pa.Table) -> npt.NDArray[np.int64]:
    """Return the times of lines, which are of no zone, as UTC in milliseconds since 1970."""
    return np.asarray(lines[TIME].cast(pa.timestamp("ms")).cast(pa.int64()))
