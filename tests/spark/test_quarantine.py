"""Quarantine: what is told of it, and records that come back from it once the cause is mended."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Reason, Table, lease_id, table_path
from customer_activity.engine.queries import RunningQuery
from customer_activity.errors import TransientError
from customer_activity.lake.numbering import Numbering
from customer_activity.lease import lease
from customer_activity.maintenance import replays
from customer_activity.maintenance.scheduler import Scheduler
from customer_activity.quality.run import run
from customer_activity.quality.verdicts import Outcome
from customer_activity.quarantine import contents
from customer_activity.quarantine import replay as replay_module
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import HalfLanded, Replay, replay
from customer_activity.settings import Settings
from customer_activity.streams.bronze.bad_share import BadShareGuard
from customer_activity.supervision import requests
from support.dying import Died, dies
from support.pipeline import Pipeline
from support.quality import Topics
from support.records import NOW_MS, PROFILES, PURCHASES, Record, profile, purchase
from support.streams import Query
from support.waiting import until

EVERYTHING = Selection()
HOUR = timedelta(hours=1)
SENT = datetime.fromtimestamp(NOW_MS / 1000, UTC)


@pytest.fixture
def dollars(pipeline: Pipeline, settings: Settings) -> Settings:
    """Land purchases in another currency, which are refused; return settings in which they are right."""
    pipeline.guard = BadShareGuard(1.0)
    pipeline.send(profile("C-1"), purchase("P-1", "C-1", "1.00"), purchase("P-2", "C-1", "2.00", currency="USD"))
    pipeline.send(purchase("P-3", "C-1", "3.00", currency="USD"), Record(PURCHASES, b"P-4", b"{"))
    pipeline.run()
    pipeline.send(purchase("P-3", "C-1", "3.50"))  # sent again, as it should be
    pipeline.run()
    return settings.model_copy(update={"currency": "USD"})


def of(pipeline: Pipeline, table: Table, key: bytes) -> list[dict[str, Any]]:
    """Return a table's rows of a record's key."""
    return [row for row in pipeline.rows(table) if row["key"] == key]


def ask(settings: Settings) -> str:
    """Ask the driver to replay everything; return the request."""
    return requests.ask(settings, requests.REPLAY, replays.asked(settings, EVERYTHING, "fixed"), 60)


def counts(pipeline: Pipeline) -> dict[str, int]:
    return {customer: row["purchase_count"] for customer, row in pipeline.gold().items()}


def test_what_is_in_it_is_told_by_topic_and_reason(dollars: Settings) -> None:
    groups = contents.groups(dollars.lake, EVERYTHING)
    assert [(group.topic, group.reason, group.records) for group in groups] == [
        (PURCHASES, "currency_mismatch", 2),
        (PURCHASES, "not_json", 1),
    ]
    assert groups[0].oldest == SENT


@pytest.mark.parametrize(
    ("selection", "records"),
    [
        pytest.param(EVERYTHING, 3, id="all"),
        pytest.param(Selection(reason=Reason.NOT_JSON), 1, id="reason"),
        pytest.param(Selection(topic=PROFILES), 0, id="topic"),
        pytest.param(Selection(since=SENT), 3, id="since"),
        pytest.param(Selection(since=SENT + HOUR), 0, id="too late"),
        pytest.param(Selection(until=SENT), 0, id="until"),
        pytest.param(Selection(until=SENT + HOUR, reason=Reason.CURRENCY_MISMATCH), 2, id="both"),
    ],
)
def test_records_are_chosen_and_shown_without_their_bytes(
    dollars: Settings, selection: Selection, records: int
) -> None:
    shown = contents.records(dollars.lake, selection, 10)
    assert len(shown) == records
    assert all(set(row) == set(contents.SHOWN) for row in shown)


def test_a_record_comes_back_once_with_its_first_coordinates(pipeline: Pipeline, dollars: Settings) -> None:
    (held,) = of(pipeline, Table.QUARANTINE, b"P-2")
    assert replay(dollars, EVERYTHING, "dry", dry_run=True) == Replay({PURCHASES: 1}, {"not_json": 1}, 1)
    assert len(pipeline.rows(Table.QUARANTINE)) == 3, "a dry run does nothing"

    assert replay(dollars, EVERYTHING, "the currency was mended") == Replay({PURCHASES: 1}, {"not_json": 1}, 1)
    (row,) = of(pipeline, Table.PURCHASE_EVENTS, b"P-2")
    same = ("topic", "partition", "offset", "kafka_timestamp", "key", "value", "headers")
    assert {name: row[name] for name in same} == {name: held[name] for name in same}
    assert sorted(row["key"] for row in pipeline.rows(Table.QUARANTINE)) == [b"P-3", b"P-4"]
    (note,) = (Path(dollars.lake) / "_audit").iterdir()
    assert json.loads(note.read_text(encoding="utf-8"))["reason"] == "the currency was mended"

    assert replay(dollars, EVERYTHING, "again") == Replay({}, {"not_json": 1}, 1)
    pipeline.run()
    pipeline.run()
    assert counts(pipeline) == {"C-1": 3}, "P-1, P-3 as it was sent again, and P-2"


def killed_between(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replay everything, and die when it is in bronze and still in quarantine."""
    with monkeypatch.context() as patch:
        patch.setattr(replay_module, "_remove", lambda *_: dies()("between"))
        with pytest.raises(Died):
            replay(settings, EVERYTHING, "killed between")


def test_an_interrupted_replay_ends_with_the_next_one(
    pipeline: Pipeline, dollars: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_between(dollars, monkeypatch)
    pipeline.run()  # the streams may even go on in between
    assert replay(dollars, EVERYTHING, "again").accepted == {PURCHASES: 1}
    pipeline.run()
    assert counts(pipeline) == {"C-1": 3}
    assert len(of(pipeline, Table.PURCHASE_EVENTS, b"P-2")) == 1
    assert len(pipeline.rows(Table.QUARANTINE)) == 2


def test_an_old_profile_does_not_come_back(
    pipeline: Pipeline, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.guard = BadShareGuard(1.0)
    ahead = profile("C-1", updated=NOW_MS + 400_000, address="Ahead 1")
    pipeline.send(ahead, profile("C-2", updated=NOW_MS + 400_000))
    pipeline.run()
    pipeline.send(profile("C-1", updated=2_000))
    pipeline.run()
    monkeypatch.setattr("customer_activity.contracts.parsing.CLOCK_TOLERANCE", timedelta(days=1))
    assert replay(settings, EVERYTHING, "clocks are set") == Replay({PROFILES: 1}, {}, 1)
    pipeline.run()
    assert {row["customer_id"]: row["address"] for row in pipeline.rows(Table.ACTIVITY)} == {
        "C-1": "1 Old Street",
        "C-2": "1 Old Street",
    }


def test_one_that_came_back_leaves_quarantine_though_a_later_one_has_landed_since(
    pipeline: Pipeline, dollars: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_between(dollars, monkeypatch)
    pipeline.send(purchase("P-2", "C-1", "2.50"))
    pipeline.run()
    assert replay(dollars, EVERYTHING, "again").accepted == {PURCHASES: 1}
    (sent_later,) = of(pipeline, Table.QUARANTINE, b"P-2")
    assert sent_later["reason"] == "conflicting_duplicate"


def served(pipeline: Pipeline, *, runs: Sequence[str] = tuple(topology.names())) -> tuple[Scheduler, list[str]]:
    """Stand in for a driver that runs some streams; also return which of them were told that something was written."""
    told: list[str] = []
    queries = []
    for name in runs:
        query = RunningQuery(
            name,
            lambda: pytest.fail("nothing starts here"),
            pipeline.settings,
            threading.Event(),
            fencing_epoch=lambda: 7,
        )
        query.refresh = partial(told.append, name)
        queries.append(query)
    return Scheduler(pipeline.settings, queries), told


def answered(keeping: Scheduler, request: str) -> dict[str, Any]:
    """Look as the driver does until the request is answered and nothing is at work."""
    found: list[dict[str, Any]] = []

    def is_done() -> bool:
        keeping.look()
        answer = requests.answered(keeping.settings.run_dir, requests.REPLAY, request)
        found.extend([answer] if answer is not None else [])
        return answer is not None and keeping.replays.at_work is None

    until(is_done)
    return found[0]


def test_a_driver_that_runs_brings_records_back_between_its_batches(
    pipeline: Pipeline, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.guard = BadShareGuard(1.0)
    pipeline.send(profile("C-1", updated=NOW_MS + 400_000), purchase("P-1", "C-1"))
    pipeline.run()
    numbering = Numbering(settings.lake, topology.landing())  # as a driver keeps it from batch to batch
    keeping, told = served(pipeline)
    request = ask(settings)
    monkeypatch.setattr("customer_activity.contracts.parsing.CLOCK_TOLERANCE", timedelta(days=1))
    answer = answered(keeping, request)
    assert Replay(**answer["replay"]) == Replay({PROFILES: 1}, {}, 0)
    assert {Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH} <= set(told)
    log = DeltaTable(table_path(settings.lake, Table.PROFILE_EVENTS))
    assert log.transaction_version(lease_id(Query.BRONZE)) == 7, "it is fenced by the driver's own epoch"
    brought_back = numbering.newest + 1
    assert {row["landing"] for row in pipeline.rows(Table.PROFILE_EVENTS)} == {brought_back}
    numbering.refresh()
    assert numbering.newest == brought_back, "the next batch has a number of its own"
    pipeline.run()
    assert counts(pipeline) == {"C-1": 1}
    assert pipeline.rows(Table.QUARANTINE) == []


def crashes(*_: object) -> None:
    raise ValueError("ada@example.com is no topic")


@pytest.mark.parametrize(
    ("change", "broken", "words"),
    [
        pytest.param({"currency": "USD"}, {}, "by other settings", id="it judges otherwise"),
        pytest.param({}, {(replays, "MOST_RECORDS"): 2}, "3 records", id="they are too many"),
        pytest.param({}, {(replays, "MOST_BYTES"): 10}, "0 MB", id="they are too large"),
        pytest.param({}, {(replay_module, "_parsed"): crashes}, "failed: ValueError", id="nobody foresaw it"),
    ],
)
def test_a_driver_says_why_it_brings_nothing_back_and_goes_on(
    pipeline: Pipeline,
    dollars: Settings,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, str],
    broken: dict[tuple[Any, str], Any],
    words: str,
) -> None:
    for (module, name), value in broken.items():
        monkeypatch.setattr(module, name, value)
    asking = pipeline.settings.model_copy(update=change)
    keeping, told = served(pipeline)
    request = ask(asking)
    answer = answered(keeping, request)
    assert words in answer["fault"][0]
    assert "ada@" not in str(answer)
    assert len(pipeline.rows(Table.QUARANTINE)) == 3
    assert set(told) == {Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH}
    assert requests.pending(asking, requests.REPLAY) is None


def test_a_driver_repeats_an_interrupted_batch_before_it_replays(
    pipeline: Pipeline, dollars: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = 7

    def refuse(_lake: str, _query: str, _numbering: Numbering, landed: int | None) -> None:
        if landed != planned:
            raise HalfLanded("batch 7 of bronze was interrupted")

    monkeypatch.setattr(replay_module, "_refuse_half_landed", refuse)
    keeping, told = served(pipeline)
    settings = pipeline.settings
    request = ask(settings)
    until(lambda: keeping.replays.serve() and bool(told))
    assert requests.answered(settings.run_dir, requests.REPLAY, request) is None
    (bronze,) = (query for query in keeping.replays.writers if query.query == Query.BRONZE)
    bronze.status.batch_id = planned
    assert Replay(**answered(keeping, request)["replay"]).refused == {"currency_mismatch": 2, "not_json": 1}


def test_a_stream_that_cannot_learn_of_a_replay_ends_with_all_others(pipeline: Pipeline, dollars: Settings) -> None:
    keeping, _ = served(pipeline)

    def unreachable() -> None:
        raise OSError("S3 is away")

    keeping.replays.writers[0].refresh = unreachable
    ask(pipeline.settings)
    assert keeping.replays.serve()
    keeping.close()
    assert all(query.stopping.is_set() for query in keeping.replays.writers)
    with pytest.raises(OSError, match="S3 is away"):
        keeping.replays.serve()


def test_a_replay_fails_when_bronze_is_written_to_while_it_judges(
    pipeline: Pipeline, dollars: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = replay_module._landed

    def meanwhile(*arguments: Any) -> Any:
        known = judge(*arguments)
        with monkeypatch.context() as undone:
            undone.setattr(replay_module, "_landed", judge)
            assert replay(dollars, EVERYTHING, "a successor").accepted == {PURCHASES: 1}
        return known

    monkeypatch.setattr(replay_module, "_landed", meanwhile)
    monkeypatch.setattr(lease, "kept_out", lambda *_: nullcontext(Holds()))
    with pytest.raises(TransientError, match="was written to while"):
        replay(dollars, EVERYTHING, "the one before")
    assert len(of(pipeline, Table.PURCHASE_EVENTS, b"P-2")) == 1


class Holds:
    """A lease that nobody takes over."""

    def fencing_epoch(self, _query: str) -> int:
        """Return its epoch."""
        return 1


def test_a_driver_that_runs_some_of_the_streams_leaves_it_alone(pipeline: Pipeline, dollars: Settings) -> None:
    keeping, told = served(pipeline, runs=[Query.BRONZE, Query.SILVER])
    ask(dollars)
    keeping.look()
    assert requests.pending(dollars, requests.REPLAY) is not None
    assert told == []


def test_what_came_back_is_accounted_for(
    pipeline: Pipeline, dollars: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay(dollars, EVERYTHING, "the currency was mended")
    pipeline.run()
    Topics.of(pipeline).serve(monkeypatch)
    judged = dollars.model_copy(update={"quality_docs": str(tmp_path / "docs"), "currency": "EUR"})
    report = run(judged, ["across.completeness", "bronze.quarantine"])
    assert {v.rule.rule for v in report.failing} <= {"share_of_refused_records"}
    assert not [v for v in report.verdicts if v.judged.outcome is Outcome.ERROR]
