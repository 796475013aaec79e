"""A standalone cluster of two workers that ask for a secret does the large batches, and what comes of them is right."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.commands.verify import others
from customer_activity.contracts.tables import arrow_schema
from customer_activity.kafka import topics
from customer_activity.lake import failpoints, history
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support import cluster
from support.broker import INPUTS, assert_verified, deployed, own_topics, rows, send
from support.cluster import Cluster
from support.cluster_work import (
    MANY,
    backlog,
    drain,
    executor_of,
    is_at_work,
    places,
    profiles,
    streams,
    until_between_stages,
)
from support.images import PROJECT
from support.records import PURCHASES, Record, payment, profile, purchase, tombstone
from support.streams import Query
from support.waiting import until

ATTEMPTS = 3  # to freeze an executor before its part of a batch is through
PAYING = (Table.PAID, Table.UNPAID, Table.UNMATCHED_PAYMENTS)  # in the order of their commits
OF_BATCHES = ("landing", "view_version")  # columns
ADD_UP = """
from customer_activity import settings
from customer_activity.engine import session
spark = session.start(settings.load())
print("sum", spark.range(1000).selectExpr("sum(id)").collect()[0][0])
spark.stop()
"""


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a master and two workers of one core each, with the settings that Compose's script makes.

    A driver takes no more than reports from its executors. Where the settings are, the logs are, too.
    """
    folder = tmp_path_factory.mktemp("cluster")
    made, conf = folder / "made", folder / "conf"
    for each in (made, conf):
        each.mkdir()
    shutil.copy(PROJECT / "infra" / "compose" / "secrets.sh", made)
    subprocess.run([made / "secrets.sh"], check=True, capture_output=True)
    spark = (made / "secrets" / "spark_defaults").read_text(encoding="utf-8")
    (conf / "spark-defaults.conf").write_text(f"{spark}\nspark.driver.maxResultSize 1m\n", encoding="utf-8")
    with cluster.running(folder, conf, workers=2) as found:
        yield found


class Drained(NamedTuple):
    """A lake whose backlog a driver has drained, the driver's log, and arguments of processes at work meanwhile."""

    settings: Settings
    log: Path
    shown: set[str]


@pytest.fixture(scope="module")
def drained(kafka: Settings, two_workers: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Drained:
    """Drain a backlog with a hot key, repeats, poison and a tombstone; look on all the while."""
    folder = tmp_path_factory.mktemp("drained")
    own = deployed(kafka, folder)
    send(own, *profiles(), *backlog(0, MANY), tombstone("C-7"), Record(PURCHASES, b"C-1", b"?"))
    send(own, *backlog(0, MANY // 10))
    shown: set[str] = set()
    with streams(own, two_workers, folder / "driver.log") as driver:

        def is_over() -> bool:
            for parent in (*two_workers.workers, psutil.Process(driver.pid)):
                for process in parent.children(recursive=True):
                    with suppress(psutil.Error):  # it has ended meanwhile
                        shown.update(process.cmdline())
            return driver.poll() is not None

        until(is_over, 300)
        assert driver.wait() == 0, (folder / "driver.log").read_text(encoding="utf-8")[-2_000:]
    return Drained(own, folder / "driver.log", shown)


def test_large_batches_are_the_executors_and_right(drained: Drained) -> None:
    assert places(drained.settings) == {"executors"}
    assert_verified(drained.settings)


def secret_of(found: Cluster) -> str:
    assert found.conf is not None
    said = (found.conf / "spark-defaults.conf").read_text(encoding="utf-8")
    (secret,) = re.findall(r"^spark.authenticate.secret (\S+)$", said, re.MULTILINE)
    return str(secret)


def test_no_process_and_no_log_shows_the_secret(drained: Drained, two_workers: Cluster) -> None:
    secret = secret_of(two_workers)
    assert any("CoarseGrainedExecutorBackend" in argument for argument in drained.shown)  # it was seen at work
    assert not [argument for argument in drained.shown if secret in argument]
    assert two_workers.conf is not None
    files = [path for path in two_workers.conf.parent.rglob("*") if path.is_file() and path.suffix in (".log", "")]
    logs = [path for path in files if not {"conf", "secrets"} & set(path.parts)]
    assert [path for path in logs if path.name == "stderr"]  # an executor's
    assert not [path for path in (*logs, drained.log) if secret.encode() in path.read_bytes()]


def test_who_lacks_the_secret_can_have_nothing_run(two_workers: Cluster, tmp_path: Path) -> None:
    """Asks the master for a driver that there is none of."""
    line = [str(cluster.SPARK_CLASS), "org.apache.spark.deploy.Client", "kill", two_workers.address, "driver-1"]
    known = cluster.environment(tmp_path)
    stranger = subprocess.run(line, env=known, capture_output=True, text=True, check=False)
    assert stranger.returncode != 0
    assert "does not exist" not in stranger.stdout + stranger.stderr  # which is the answer to who is let in


@pytest.mark.nightly
def test_a_driver_on_one_machine_starts_with_the_same_settings(two_workers: Cluster, tmp_path: Path) -> None:
    settings = Settings(lake=str(tmp_path / "lake"), spark_master="local[1]", driver_memory="1g", kafka_config=None)
    known = {**cluster.environment(two_workers.conf), **settings.environment()}
    driver = subprocess.run([sys.executable, "-c", ADD_UP], env=known, capture_output=True, text=True, check=False)
    assert "sum 499500" in driver.stdout, driver.stderr[-3000:]


@pytest.fixture
def paying(settings: Settings) -> Iterator[Settings]:
    """Return settings with payments on."""
    topology.switch_on(["payments"])
    topics.check(settings, create=True)
    yield settings.model_copy(update={"streams": "payments", "grace_hours": 0.1})
    topology.switch_on([])


def bought_and_paid(first: int, count: int) -> list[Record]:
    """Return purchases of ten a second, and payments of most: of one in ten there is none, or one that differs."""
    ids = range(first, first + count)
    bought = [purchase(f"P-{number}", f"C-{number % 500}", "1.00", 100 * number) for number in ids]
    due = [number for number in ids if number % 10]
    return bought + [payment(f"P-{n}", "2.00" if n % 10 == 1 else "1.00", 100 * n + 60_000) for n in due]


def assert_paid(settings: Settings, log: Path, *places: str) -> None:
    """Each table of payments is right, and its newest part was joined at a place."""
    notes = (history.latest_metadata(settings.lake, table, "payments") for table in PAYING)
    assert [note["placement"]["place"] for note in notes] == list(places), log.read_text(encoding="utf-8")[-2_000:]
    report = verify(settings, settle_seconds=0, others=others())
    assert [check for check in report.checks if not check.ok] == []
    assert min(len(rows(settings, table)) for table in PAYING) > 1_000


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_executors_join_payments(paying: Settings, two_workers: Cluster, tmp_path: Path) -> None:
    """The second large part finds what the first one left, and payments of purchases that are paid."""
    log = tmp_path / "driver.log"
    send(paying, *profiles(), *bought_and_paid(0, MANY))
    drain(paying, two_workers, log)
    send(paying, *bought_and_paid(MANY, MANY), *(payment(f"P-{number}", at=7_000_000) for number in range(0, MANY, 50)))
    drain(paying, two_workers, log)
    assert_paid(paying, log, "executors", "executors", "executors")


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_driver_goes_on_with_payments_that_executors_joined(
    paying: Settings, two_workers: Cluster, tmp_path: Path
) -> None:
    log = tmp_path / "driver.log"
    send(paying, *profiles(), *bought_and_paid(0, MANY))
    paying.run_dir.mkdir(parents=True, exist_ok=True)
    (paying.run_dir / failpoints.ORDER).write_text("payments:committed 2", encoding="utf-8")
    with streams(paying, two_workers, log, fail_points=True) as driver:
        assert driver.wait(300) != 0
    assert (paying.run_dir / failpoints.REACHED).exists()
    drain(paying, two_workers, log, placement="driver")
    assert_paid(paying, log, "executors", "executors", "driver")


@pytest.mark.nightly
@pytest.mark.timeout(900)  # two minutes on two idle cores
def test_executors_and_driver_take_turns(settings: Settings, two_workers: Cluster, tmp_path: Path) -> None:
    """Small batches between large ones, which repeat what both have counted; then all of it is replayed.

    A driver that takes the same input by itself ends in the same rows.
    """
    log = tmp_path / "driver.log"
    send(settings, *profiles(), *backlog(0, MANY), purchase("P-first", amount="1.00"))
    drain(settings, two_workers, log)
    send(settings, purchase("P-small"), purchase("P-0", "C-hot"), purchase("P-1", "C-1", "0.01"))
    drain(settings, two_workers, log)
    assert places(settings) == {"driver"}
    assert_verified(settings)

    send(settings, *backlog(0, MANY))
    send(settings, *backlog(MANY, MANY), purchase("P-small", amount="2.00"), profile("C-7", updated=5_000))
    drain(settings, two_workers, log)
    assert places(settings) == {"executors"}
    assert_verified(settings)

    counted = len(rows(settings, Table.PURCHASES))
    send(settings, *backlog(0, MANY))
    send(settings, *backlog(MANY, MANY))
    drain(settings, two_workers, log)
    assert len(rows(settings, Table.PURCHASES)) == counted
    assert places(settings) == {"executors"}
    assert_verified(settings)

    alone = another_lake(settings, tmp_path / "alone")
    drain(alone, two_workers, log, placement="driver")
    assert places(alone) == {"driver"}
    assert checksums(alone) == checksums(settings)


def another_lake(settings: Settings, folder: Path) -> Settings:
    """Return settings of a lake that reads the same input."""
    inputs = {f"{name}_topic" for name in INPUTS}
    outputs = {name: topic for name, topic in own_topics().items() if name not in inputs}
    other = settings.model_copy(update=outputs | {"lake": str(folder / "lake"), "run_dir": folder / "run"})
    topics.check(other, create=True)
    return other


def checksums(settings: Settings) -> dict[str, str]:
    """Return a checksum of each table's rows, without the columns that count batches."""
    found = {}
    for table in (Table.PURCHASES, Table.PROFILES, Table.SUMMARIES, Table.ACTIVITY):
        columns = [name for name in arrow_schema(table).names if name not in OF_BATCHES]
        lines = sorted(str([row[name] for name in columns]) for row in rows(settings, table))
        assert lines
        found[table.label] = sha256("\n".join(lines).encode()).hexdigest()
    return found


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        pytest.param(psutil.Process.kill, lambda _: None, id="killed"),
        pytest.param(psutil.Process.suspend, psutil.Process.resume, id="frozen for a minute"),
    ],
)
def test_an_executor_that_is_lost_changes_nothing(
    settings: Settings,
    two_workers: Cluster,
    tmp_path: Path,
    first: Callable[[psutil.Process], None],
    then: Callable[[psutil.Process], None],
) -> None:
    log = tmp_path / "driver.log"
    send(settings, *profiles())
    for attempt in range(ATTEMPTS):
        send(settings, *backlog(attempt * MANY, MANY), *backlog(attempt * MANY, MANY // 2))
        with streams(settings, two_workers, log) as driver:
            until(partial(is_at_work, log, Query.SILVER), 120, every=0.02)
            executor = executor_of(two_workers.workers[0])  # those of the driver before are gone by now
            until_between_stages(log, Query.SILVER, executor)
            first(executor)
            has_happened = is_at_work(log, Query.SILVER)
            with suppress(subprocess.TimeoutExpired):
                driver.wait(60)
            has_happened = has_happened and (driver.poll() is None or first is psutil.Process.kill)
            then(executor)
            assert driver.wait(300) == 0, log.read_text(encoding="utf-8")[-2_000:]
        if has_happened:  # one that is frozen holds the batch up, unless its part was through
            break
    assert has_happened, f"the executor had done its part {ATTEMPTS} times"
    assert_verified(settings)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "order",
    [
        *(f"silver:{point} {times}" for point in ("staged", "committed") for times in (1, 2, 3)),
        "silver:written",
        "gold:staged",
        "gold:committed",
        "gold:written",
    ],
)
def test_a_driver_that_is_killed_between_two_commits_changes_nothing(
    settings: Settings, two_workers: Cluster, tmp_path: Path, order: str
) -> None:
    log = tmp_path / "driver.log"
    send(settings, *profiles(), *backlog(0, MANY), *backlog(0, MANY // 2), purchase("P-1", "C-1", "0.01"))
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    (settings.run_dir / failpoints.ORDER).write_text(order, encoding="utf-8")
    with streams(settings, two_workers, log, fail_points=True) as driver:
        assert driver.wait(300) != 0
    assert (settings.run_dir / failpoints.REACHED).exists()
    drain(settings, two_workers, log)
    assert_verified(settings)
