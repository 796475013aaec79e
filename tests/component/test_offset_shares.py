"""Shares of a large batch: each offset is in one, and a batch lands whole, or leaves nothing and says why."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.engine.executors import OnProgress, Reports, Task
from customer_activity.engine.workers import Here, Workers
from customer_activity.errors import (
    ActivityError,
    BadShareExceeded,
    BrokerUnavailable,
    DiskFull,
    KafkaRefused,
    OffsetsLost,
    TerminalError,
    TransientError,
)
from customer_activity.kafka import clients
from customer_activity.settings import Settings
from customer_activity.streams.bronze import shares
from customer_activity.streams.bronze.bad_share import BadShareGuard
from customer_activity.streams.bronze.fetching import Ranges
from customer_activity.streams.bronze.landing import Landing
from support import records
from support.kafka_batches import LANDED, PROFILES, PURCHASES, kafka_batch, profile, purchase, raw_purchase
from support.quick_pipeline import QuickPipeline
from support.streams import Query
from support.without_jvm import NoSpark

TABLES = {PROFILES: Table.PROFILE_EVENTS, PURCHASES: Table.PURCHASE_EVENTS}
PARTITIONS = st.dictionaries(st.integers(0, 40), st.tuples(st.integers(0, 10**7), st.integers(0, 1_200_000)))
RANGES = st.dictionaries(st.sampled_from([PROFILES, PURCHASES]), PARTITIONS)


def sizes(ranges: Ranges) -> list[int]:
    return [high - low for of in ranges.values() for low, high in of.values()]


@given(told=RANGES, at_once=st.integers(1, 64))
def test_each_offset_is_in_one_share_and_shares_are_of_one_size(
    told: dict[str, dict[int, tuple[int, int]]], at_once: int
) -> None:
    ranges = {topic: {n: (low, low + count) for n, (low, count) in of.items()} for topic, of in told.items()}

    cut = shares.cut(ranges, at_once)

    ends: dict[tuple[str, int], int] = {}
    for share in cut:
        for topic, of in share.items():
            for partition, (low, high) in of.items():
                assert low < high
                assert low == ends.get((topic, partition), ranges[topic][partition][0])
                ends[topic, partition] = high
    wanted = {(topic, n): high for topic, of in ranges.items() for n, (low, high) in of.items() if low < high}
    assert ends == wanted
    records = [sum(sizes(share)) for share in cut] or [0]
    assert max(records) - min(records) <= 1
    assert max(records) <= shares.MOST_RECORDS
    assert len(cut) <= at_once or max(records) > shares.MOST_RECORDS / 2
    assert len(cut) <= 1 or min(records) >= shares.LEAST_RECORDS / 2


class Client:
    """A client that hands out a share's records one by one, or meets something on the way."""

    def __init__(self, batch: pa.RecordBatch, met: Exception | None = None) -> None:
        self.batch, self.met = batch, met
        self.asked: list[Ranges] = []

    def fetch(self, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        self.asked.append(ranges)
        ((low, high),) = (place for of in ranges.values() for place in of.values())
        for offset in range(low, high):
            yield self.batch.slice(offset - 100, 1)
        if self.met is not None:
            raise self.met

    def close(self) -> None:
        pass


def land(
    lake: str, clients_by_topic: dict[str, Client], monkeypatch: pytest.MonkeyPatch, workers: Workers | None = None
) -> Any:
    """Land a batch that has two shares, one of each topic."""
    monkeypatch.setattr(shares, "LEAST_RECORDS", 1)
    monkeypatch.setattr(shares, "MOST_RECORDS", 3)

    def opens(topics: Sequence[str]) -> Any:
        (topic,) = topics
        return clients_by_topic[topic]

    ranges = {PROFILES: {3: (100, 103)}, PURCHASES: {3: (100, 103)}}
    how = Landing(lake, TABLES, "EUR", 7, LANDED)
    return shares.land_shares(ranges, how, workers or Here(), opens, lambda _: None)


def files(lake: str) -> list[str]:
    return [path.name for path in Path(lake).rglob("*.parquet")]


PEOPLE = kafka_batch([profile()] * 3)
BOUGHT = kafka_batch([purchase(), raw_purchase(b"{"), raw_purchase(b"[")])


def test_what_shares_have_landed_is_one_batch(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    landed = land(lake, {PROFILES: Client(PEOPLE), PURCHASES: Client(BOUGHT)}, monkeypatch)
    assert landed.outcomes == {(PROFILES, None): 3, (PURCHASES, None): 1, (PURCHASES, "not_json"): 2}
    counts = {table: [file.rows for file in of] for table, of in landed.files.items()}
    assert counts == {Table.PROFILE_EVENTS: [3], Table.PURCHASE_EVENTS: [1], Table.QUARANTINE: [2]}
    assert sorted(files(lake)) == sorted(file.path for of in landed.files.values() for file in of)


def test_a_task_whose_time_is_over_leaves_the_rest_to_another_one(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However large records are, and however slow a broker: supervision has its sign of life."""
    monkeypatch.setattr(shares, "LANDING_SECONDS", 0.0)
    people, bought = Client(PEOPLE), Client(BOUGHT)
    landed = land(lake, {PROFILES: people, PURCHASES: bought}, monkeypatch)
    assert landed.outcomes == {(PROFILES, None): 3, (PURCHASES, None): 1, (PURCHASES, "not_json"): 2}
    for topic, client in ((PROFILES, people), (PURCHASES, bought)):
        assert client.asked == [{topic: {3: (100, 103)}}, {topic: {3: (101, 103)}}, {topic: {3: (102, 103)}}]


def test_what_trying_again_does_not_help_is_told_first(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    met = Client(PEOPLE, BrokerUnavailable("silent")), Client(BOUGHT, KafkaRefused("no right"))
    with pytest.raises(KafkaRefused):
        land(lake, dict(zip(TABLES, met, strict=True)), monkeypatch)


def test_after_a_share_that_cannot_land_no_others_are_begun(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "TURNS", 1)
    people, bought = Client(PEOPLE, OffsetsLost("gone")), Client(BOUGHT)
    with pytest.raises(OffsetsLost):
        land(lake, {PROFILES: people, PURCHASES: bought}, monkeypatch)
    assert bought.asked == []


def test_files_of_jobs_before_go_with_a_job_that_fails(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "TURNS", 1)

    class Dying(Here):
        jobs = 0

        def run(self, shares: int, task: Task, progress: OnProgress) -> Reports:
            self.jobs += 1
            if self.jobs == 2:
                assert files(lake)
                raise RuntimeError("an executor was lost too often")
            return super().run(shares, task, progress)

    with pytest.raises(RuntimeError, match="too often"):
        land(lake, {PROFILES: Client(PEOPLE), PURCHASES: Client(BOUGHT)}, monkeypatch, Dying())
    assert files(lake) == []


def test_a_full_disk_is_told_as_such(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own files go with it, so that nobody finds the disk full afterwards."""
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskFull, match="no space left on the disk of"):
        land(lake, {PROFILES: Client(PEOPLE), PURCHASES: Client(BOUGHT, full)}, monkeypatch)
    assert files(lake) == []


@pytest.mark.parametrize("placement", ["driver", "executors"])
def test_a_batch_that_is_refused_leaves_no_file(nobody: NoSpark, lake: str, settings: Settings, placement: str) -> None:
    """A bad deploy upstream is met again by every restart."""
    placed = settings.model_copy(update={"placement": placement})
    pipeline = QuickPipeline(nobody, placed, guard=BadShareGuard(0.05))  # type: ignore[arg-type]
    pipeline.send(*(records.purchase(f"P-{number}") for number in range(80)))
    pipeline.send(*(records.Record(PURCHASES, b"P", b"{") for _ in range(20)))
    with pytest.raises(BadShareExceeded, match="not_json 20"):
        pipeline.hop(Query.BRONZE)
    assert files(lake) == []


class Refined(OffsetsLost):
    """Raised by a module that has an error of its own."""


@pytest.mark.parametrize(
    ("met", "kind"),
    [
        pytest.param(OffsetsLost("gone", remedy="look"), OffsetsLost, id="data loss"),
        pytest.param(BrokerUnavailable("silent", remedy="wait"), BrokerUnavailable, id="no answer"),
        pytest.param(KafkaRefused("no right", remedy="grant it"), KafkaRefused, id="a right is missing"),
        pytest.param(Refined("of its own"), TerminalError, id="one that is not among ours, and final"),
        pytest.param(type("Own", (TransientError,), {})("busy"), TransientError, id="one that passes"),
    ],
)
def test_a_share_that_cannot_land_tells_its_kind_and_none_of_its_files_stays(
    lake: str, monkeypatch: pytest.MonkeyPatch, met: ActivityError, kind: type[ActivityError]
) -> None:
    with pytest.raises(kind) as raised:
        land(lake, {PROFILES: Client(PEOPLE), PURCHASES: Client(BOUGHT, met)}, monkeypatch)
    assert type(raised.value) is kind
    assert raised.value.what.startswith(f"{met.what} (an executor on ")
    assert (raised.value.remedy, raised.value.exit_code) == (met.remedy, met.exit_code)
    assert files(lake) == []


def test_a_task_has_the_properties_that_the_driver_has_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=PLAINTEXT\nsession.timeout.ms=7000\n")
    opens = shares.opener(Settings(kafka_config=file))
    file.unlink()  # as on another machine
    told: list[dict[str, Any]] = []

    class Opened:
        def __init__(self, settings: Settings, _topics: Sequence[str], **_: Any) -> None:
            told.append(clients.client_config(settings))

    monkeypatch.setattr(shares, "Fetcher", Opened)
    opens([PURCHASES])
    assert told[0]["session.timeout.ms"] == "7000"


@pytest.mark.parametrize(
    "met", [BrokerUnavailable("it ends"), KafkaRefused("it ends")], ids=["does not answer", "turns clients away"]
)
def test_a_client_waits_for_a_broker_that_is_restarted(monkeypatch: pytest.MonkeyPatch, met: ActivityError) -> None:
    attempts: list[float] = []

    def opened(_settings: Settings, _topics: Sequence[str], *, silence_seconds: float, **_: int) -> Any:
        attempts.append(silence_seconds)
        if len(attempts) < 3:
            raise met
        return "a client"

    monkeypatch.setattr(shares, "Fetcher", opened)
    monkeypatch.setattr(shares, "AGAIN_SECONDS", 0.0)
    assert shares.opener(Settings(kafka_config=None))([PURCHASES]) == "a client"  # type: ignore[comparison-overlap]
    assert len(attempts) == 3
