"""Enriched purchases, their routes and alerts are the same wherever a part of a batch is worked on.

What executors do is done here by their own tasks, one after the other; tests/spark/test_executors.py has Spark do it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import ROUTES, Table, table_path
from customer_activity.engine import decided, executors, failures
from customer_activity.engine.executors import ByLane, Reports
from customer_activity.engine.workers import Executors
from customer_activity.errors import ChangeFeedLost, LeaseLost, RowsLost, SettingsError, TransientError
from customer_activity.lake import delta, feeds, history, missing, pieces
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.feeds import Added
from customer_activity.lake.pieces import Piece
from customer_activity.operations import catalogue
from customer_activity.settings import Settings
from customer_activity.streams.alerts import nearby
from customer_activity.streams.alerts.nearby import Nearby
from customer_activity.streams.enrichment import profiles
from customer_activity.streams.enrichment import state as enrichment_state
from customer_activity.streams.enrichment import tasks as enrichment_tasks
from support import frauds
from support.dying import Died, dies
from support.pipeline import Pipeline
from support.quick_pipeline import QuickPipeline
from support.records import Record, profile, purchase, tombstone
from support.without_jvm import NoSpark, without_jvm

FOLLOWING = ("enrichment", "routing", "event_time", "alerts")
PLACED = {"enrichment": Table.ENRICHED, "routing": Table.ROUTED, "alerts": Table.FRAUD_ALERTS}
TABLES = (*PLACED.values(), Table.CATALOGUE_VERSIONS, Table.ROUTING_RULES)
BATCHES, LANDINGS = 3, 3  # of a batch: its parts have as many files
HOT_UPDATES = 6  # of one customer's profile with each purchase
HIGH, OTHER = ROUTES
nightly = pytest.mark.nightly


def world(seed: int) -> list[list[Record]]:
    """Return records in batches: purchases that raise alerts, most of them one customer's, among changing profiles."""
    chance = random.Random(seed)

    def records(number: int, bought: Record) -> Iterator[Record]:
        customer = "C-hot" if chance.random() < 0.6 else f"C-{chance.randrange(5)}"
        fields = bought.fields() | {"customerId": customer, "productId": f"{chance.randrange(4)}"}
        yield replace(bought, value=json.dumps(fields, default=float).encode())
        for _ in range(HOT_UPDATES):
            updated = chance.randrange(max(1, number - 3), number + 5)
            yield profile("C-hot", updated, address=f"{chance.randrange(4)} Street")
        if chance.random() < 0.1:
            yield tombstone(customer)
        elif chance.random() < 0.5:  # late ones among them
            yield profile(customer, chance.randrange(max(1, number - 20), number + 5), address=f"{number} Street")

    every = [each for number, bought in enumerate(frauds.world(seed)) for each in records(number, bought)]
    size = -(-len(every) // BATCHES)
    return [every[begin : begin + size] for begin in range(0, len(every), size)]


WORLD = world(1)


@pytest.fixture(scope="module")
def nobody() -> Iterator[NoSpark]:
    """Commit, and work as executors do, without a JVM; the streams are switched on."""
    topology.switch_on(["routing", "alerts"])
    with without_jvm() as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "TASK_ROWS", 12)  # of a file or two: some shares have no row group, and so no row
        patch.setattr(enrichment_tasks, "ROW_GROUP_BYTES", 500)  # of a parcel: a few records
        patch.setattr(decided, "SHARES_AT_A_TIME", 3)  # so there are several rounds
        yield found
    topology.switch_on([])


def begun(nobody: NoSpark, folder: Path) -> Pipeline:
    own = {"routing_rules": folder / "rules.yaml", **frauds.LOW}
    settings = Settings(lake=str(folder / "lake"), run_dir=folder / "run").model_copy(update=own)
    delta.ensure_tables(settings.lake)
    return QuickPipeline(nobody, settings)  # type: ignore[arg-type]


def placed(pipeline: Pipeline, place: str) -> None:
    """Have a pipeline's batches be worked on at a place from now on."""
    pipeline.settings = pipeline.settings.model_copy(update={"placement": place})
    pipeline.restart()


def changes_outside(pipeline: Pipeline, number: int) -> None:
    """Give the catalogue another version, and the rules another text; of some products nothing is ever known."""
    folder = pipeline.settings.run_dir.parent
    conditions = [
        {"column": "amount", "is": ">=", "value": 5 + number},
        {"column": "department", "is": "!=", "value": "1"},
    ]
    document = {"rules": [{"rule": "large", "when": conditions, "route": HIGH}], "default": OTHER}
    (folder / "rules.yaml").write_text(json.dumps(document), encoding="utf-8")
    if number:
        lines = ["product_id,department", *(f"{product},{number % 3}" for product in range(number))]
        (folder / "catalogue.csv").write_text("\n".join(lines), encoding="utf-8")
        catalogue.load(pipeline.settings.lake, folder / "catalogue.csv")


def land(pipeline: Pipeline, records: Sequence[Record]) -> None:
    size = -(-len(records) // LANDINGS)
    placed(pipeline, "driver")
    for begin in range(0, len(records), size):
        pipeline.send(*records[begin : begin + size])
        for hop in ("bronze", "silver"):
            pipeline.hop(hop)


def lived(pipeline: Pipeline, places: Sequence[str], hop: Callable[[Pipeline, str], object] = Pipeline.hop) -> Pipeline:
    """Take the world in, one batch after the other, each followed at the next of some places."""
    for number, (records, place) in enumerate(zip(WORLD, cycle(places), strict=False)):
        changes_outside(pipeline, number)
        land(pipeline, records)
        placed(pipeline, place)
        for stream in FOLLOWING:
            hop(pipeline, stream)
    return pipeline


def rows(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of all tables, without what differs between two runs."""
    return {
        table.label: [{k: v for k, v in row.items() if k != "decided_at"} for row in pipeline.rows(table)]
        for table in TABLES
    }


@pytest.fixture(scope="module")
def in_driver(nobody: NoSpark, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Take the world in, all in the driver."""
    return lived(begun(nobody, tmp_path_factory.mktemp("driver")), ["driver"])


@pytest.fixture
def pipeline(nobody: NoSpark, tmp_path: Path) -> Pipeline:
    """Return all queries on an empty lake."""
    return begun(nobody, tmp_path)


def test_the_world_has_something_of_everything(in_driver: Pipeline) -> None:
    hot = [row for row in in_driver.rows(Table.PROFILE_EVENTS) if row["customer_id"] == "C-hot"]
    assert len(hot) > 300
    assert {row["is_tombstone"] for row in hot} == {True, False}
    found = rows(in_driver)
    enriched = found[Table.ENRICHED.label]
    assert {row["profile_offset"] is None for row in enriched} == {True, False}
    assert {row["department"] for row in enriched} == {"UNKNOWN", "1", "2"}
    assert {(row["rule"], row["route"]) for row in found[Table.ROUTED.label]} == {("large", HIGH), ("default", OTHER)}
    assert {row["rule"] for row in found[Table.FRAUD_ALERTS.label]} == {"velocity", "risky_session"}
    assert len(found[Table.ROUTING_RULES.label]) == len(found[Table.CATALOGUE_VERSIONS.label]) == len(WORLD)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(["executors", "driver"], id="executors first, then in turn"),
        pytest.param(["driver", "executors"], id="driver first, then in turn", marks=nightly),
        pytest.param(["executors"], id="executors", marks=nightly),
    ],
)
def test_rows_are_the_same_wherever_a_batch_is_worked_on(
    pipeline: Pipeline, in_driver: Pipeline, places: Sequence[str]
) -> None:
    """Also where a compaction has brought purchases of a part into the files that are near it."""

    def hop(pipeline: Pipeline, stream: str) -> None:
        pipeline.hop(stream)
        if stream == "event_time":
            DeltaTable(table_path(pipeline.settings.lake, Table.TIMED_PURCHASES)).optimize.compact()

    lived(pipeline, places, hop)
    assert rows(pipeline) == rows(in_driver)


@pytest.mark.parametrize(
    ("places", "kept_gb", "most"),
    [
        pytest.param(["auto"], 0, 250, id="without local state"),
        pytest.param(["auto", "driver", "executors"], 1, 1, id="in turn"),
    ],
)
def test_a_small_part_that_takes_many_profile_records_is_for_executors(
    pipeline: Pipeline,
    in_driver: Pipeline,
    places: Sequence[str],
    kept_gb: float,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(profiles, "MOST_RECORDS", most)
    monkeypatch.setattr(enrichment_state, "MANY_RECORDS", 20)
    pipeline.settings = pipeline.settings.model_copy(update={"local_state_gb": kept_gb})
    lived(pipeline, places)
    assert rows(pipeline) == rows(in_driver)
    for (place, why), asked in zip(placements(pipeline), cycle(places), strict=False):
        assert place == ("driver" if asked == "driver" else "executors")
        assert asked != "auto" or re.fullmatch(r"profile records of \d+ customers are many", why)


def test_a_hot_profile_that_is_condensed_takes_few(
    pipeline: Pipeline, in_driver: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MOST_RECORDS", 250)
    monkeypatch.setattr(enrichment_state, "MANY_RECORDS", 20)
    lived(pipeline, ["auto"])
    assert rows(pipeline) == rows(in_driver)
    assert {place for place, _ in placements(pipeline)} == {"driver"}


def placements(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Return where each batch of enrichment was worked on, and why there."""
    found = [batch.placement for batch in pipeline.batches["enrichment"] if batch.rows]
    return [(placed.place.value, placed.why) for placed in found if placed is not None]


@pytest.mark.parametrize(
    ("asked", "are_there"),
    [pytest.param("driver", True, id="settings choose"), pytest.param("auto", False, id="there is no executor")],
)
def test_a_small_part_stays_in_the_driver_where_nobody_else_may_work_on_it(
    pipeline: Pipeline, asked: str, are_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "MOST_RECORDS", 0)
    monkeypatch.setattr(Executors, "are_there", lambda _: are_there)
    ready(pipeline, "enrichment")
    placed(pipeline, asked)
    pipeline.hop("enrichment")
    assert pipeline.rows(Table.ENRICHED) != []
    assert [place for place, _ in placements(pipeline)] == ["driver"]


@pytest.mark.parametrize(
    ("point", "times"),
    [
        pytest.param(FailPoint.STAGED, 1, id="before what is decided is stored", marks=nightly),
        pytest.param(FailPoint.COMMITTED, 1, id="once it is stored"),
        pytest.param(FailPoint.STAGED, 2, id="before the rows are", marks=nightly),
        pytest.param(FailPoint.COMMITTED, 2, id="once the rows are", marks=nightly),
    ],
)
def test_a_batch_that_a_crash_ended_is_done_once(
    pipeline: Pipeline, in_driver: Pipeline, point: FailPoint, times: int
) -> None:
    died = []

    def hop(pipeline: Pipeline, stream: str) -> None:
        try:
            pipeline.hop(stream, failpoint=dies(point, times=times))
        except Died:
            died.append(stream)
            pipeline.repeat(stream)

    lived(pipeline, ["executors"], hop)
    assert {"enrichment", "routing"} <= set(died)
    assert rows(pipeline) == rows(in_driver)


def ready(pipeline: Pipeline, stream: str) -> Pipeline:
    """Bring a pipeline to where a stream has a batch for executors."""
    changes_outside(pipeline, 1)
    land(pipeline, WORLD[0])
    placed(pipeline, "executors")
    for hop in FOLLOWING[: FOLLOWING.index(stream)]:
        pipeline.hop(hop)
    return pipeline


def test_purchases_of_customers_whom_nobody_knows(pipeline: Pipeline) -> None:
    land(pipeline, [purchase(f"P-{number}", f"C-{number}") for number in range(5)])
    placed(pipeline, "executors")
    pipeline.hop("enrichment")
    found = [(row["name"], row["profile_landing"], row["department"]) for row in pipeline.rows(Table.ENRICHED)]
    assert found == [("UNKNOWN", None, "UNKNOWN")] * 5


def test_tasks_of_enrichment_hold_no_more_in_a_large_part(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one of a stream that is switched on later is the whole table, and all its customers may be different.

    Who judges profiles is asked by a few shares; who enriches gets what is known of the customers of one.
    """
    jobs: list[tuple[int, int]] = []
    run = executors.run_by_lane

    def noting(spark: Any, shares: int, work: ByLane, progress: Callable[[str], None]) -> Reports:
        jobs.append((work.lanes, work.then[0].lanes))
        return run(spark, shares, work, progress)

    monkeypatch.setattr(executors, "run_by_lane", noting)
    monkeypatch.setattr(pieces, "LANE_ROWS", 4)
    land(pipeline, [purchase(f"P-{number}", f"C-{number}") for number in range(60)])
    placed(pipeline, "executors")
    pipeline.hop("enrichment")
    assert jobs == [((20 + 20) // 4, 3)] * 2  # by the rows of the files that each round has shares of
    assert len(pipeline.rows(Table.ENRICHED)) == 60


def test_what_a_round_has_written_is_removed_where_the_next_one_fails(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, found = executors.run_by_lane, list[int]()

    def failing(*given: Any) -> Reports:
        found.append(len(on_disk(pipeline, Table.ENRICHED)))
        if len(found) > 1:
            raise MemoryError
        return run(*given)

    ready(pipeline, "enrichment")
    monkeypatch.setattr(executors, "run_by_lane", failing)
    with pytest.raises(MemoryError):
        pipeline.hop("enrichment")
    assert found[1] > 0
    assert on_disk(pipeline, Table.ENRICHED) == []


def with_gone(listed: Callable[..., list[Any]], gone: Any, calls: Iterator[bool]) -> Callable[..., list[Any]]:
    """Return what lists files, and one that is not there, as often as it is told."""

    def listing(*which: Any) -> list[Any]:
        found = listed(*which)
        return [*found, gone] if next(calls) else found

    return listing


def patched(monkeypatch: pytest.MonkeyPatch, stream: str, calls: Iterator[bool]) -> None:
    """Have a file beside the part be gone that a stream's tasks are to read."""
    if stream == "alerts":
        gone_nearby = nearby.File("gone.parquet", 1, 1)
        monkeypatch.setattr(Nearby, "files", with_gone(Nearby.files, gone_nearby, calls))
    else:
        gone = Added(0, "gone.parquet", 1, 1)
        monkeypatch.setattr(feeds, "snapshot", with_gone(feeds.snapshot, gone, calls))


@pytest.mark.parametrize("stream", ["enrichment", "alerts"])
def test_files_that_a_compaction_has_replaced_are_listed_again(
    pipeline: Pipeline, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(pipeline, stream)
    patched(monkeypatch, stream, chain([True], repeat(False)))
    pipeline.hop(stream)
    assert pipeline.rows(PLACED[stream]) != []


@pytest.mark.parametrize("stream", ["enrichment", "alerts"])
@pytest.mark.parametrize(
    ("master", "error", "told"),
    [
        pytest.param("spark://master:7077", SettingsError, "an executor does not find files of the lake", id="cluster"),
        pytest.param("local[*]", TransientError, "tasks did not find files or folders of the lake", id="threads"),
    ],
)
def test_tasks_that_do_not_find_what_the_driver_sees_are_told_of(
    pipeline: Pipeline, stream: str, master: str, error: type[Exception], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(pipeline, stream)
    pipeline.settings = pipeline.settings.model_copy(update={"spark_master": master})
    pipeline.restart()
    patched(monkeypatch, stream, repeat(True))
    monkeypatch.setattr(missing, "files_of", lambda *_: None)  # the driver sees all
    with pytest.raises(error, match=told):
        pipeline.hop(stream)
    assert pipeline.rows(PLACED[stream]) == []


@pytest.mark.parametrize(
    ("stream", "table"),
    [
        pytest.param("enrichment", Table.PROFILE_EVENTS, id="profile records"),
        pytest.param("enrichment", Table.PRODUCTS, id="the catalogue"),
        pytest.param("alerts", Table.TIMED_PURCHASES, id="purchases of before"),
    ],
)
def test_a_file_beside_the_part_that_is_gone_for_everybody_is_named(
    pipeline: Pipeline, stream: str, table: Table
) -> None:
    ready(pipeline, stream).hop(stream)
    before = list(Path(table_path(pipeline.settings.lake, table)).glob("*.parquet"))
    land(pipeline, WORLD[1])
    placed(pipeline, "executors")
    for hop in FOLLOWING[: FOLLOWING.index(stream)]:
        pipeline.hop(hop)
    for file in before:
        file.unlink()
    with pytest.raises((RowsLost, FileNotFoundError)) as died:  # the driver itself reads the catalogue
        pipeline.hop(stream)
    told = failures.explain(stream, RuntimeError("a batch failed"), died.value, pipeline.settings, lambda: 1)
    assert type(told) is RowsLost
    assert re.match(rf"{table.label}: files of version \d+, the newest, are gone", told.what)


@pytest.mark.parametrize("stream", PLACED)
def test_a_file_of_the_part_that_is_gone_is_data_loss(pipeline: Pipeline, stream: str) -> None:
    ready(pipeline, stream)
    (source,) = topology.spec(stream).sources
    for file in Path(table_path(pipeline.settings.lake, source)).glob("*.parquet"):
        file.unlink()
    with pytest.raises(ChangeFeedLost, match=rf"{source.label}: files that versions \d+ to \d+ added are gone"):
        pipeline.hop(stream)


@pytest.mark.parametrize("stream", PLACED)
def test_nothing_is_committed_where_a_share_is_missing(
    pipeline: Pipeline, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def divided(table: Table, files: Any, *, is_past: bool = False) -> list[list[Piece]]:
        shares = whole(table, files, is_past=is_past)
        return shares[1:] if table is source else shares

    ready(pipeline, stream)
    (source,) = topology.spec(stream).sources
    whole = pieces.divided
    monkeypatch.setattr(pieces, "divided", divided)
    with pytest.raises(AssertionError, match=rf"executors have read \d+ rows of {source.label}, and \d+ were added"):
        pipeline.hop(stream)
    assert pipeline.rows(PLACED[stream]) == []
    assert on_disk(pipeline, PLACED[stream]) == []


@pytest.mark.parametrize("stream", PLACED)
def test_what_was_written_for_a_driver_that_has_lost_its_lease_is_removed(pipeline: Pipeline, stream: str) -> None:
    """Nobody will commit it, and VACUUM leaves it for a week."""
    found: list[Path] = []

    def loses(point: FailPoint) -> None:
        found[:] = on_disk(pipeline, PLACED[stream])
        if point is FailPoint.STAGED and found:
            raise LeaseLost(f"{stream}: another driver has taken over")

    ready(pipeline, stream)
    with pytest.raises(LeaseLost):
        pipeline.hop(stream, failpoint=loses)
    assert found != []
    assert on_disk(pipeline, PLACED[stream]) == []


def on_disk(pipeline: Pipeline, table: Table) -> list[Path]:
    """Return the files of rows that a table's folder has, named by a commit or not."""
    return list(Path(table_path(pipeline.settings.lake, table)).rglob("*.parquet"))


def test_a_commit_tells_where_its_batch_was_worked_on_and_why(pipeline: Pipeline) -> None:
    ready(pipeline, FOLLOWING[-1]).hop(FOLLOWING[-1])
    for stream, table in PLACED.items():
        note = history.latest_metadata(pipeline.settings.lake, table, stream)
        assert note["placement"] == {"place": "executors", "why": "ACTIVITY_PLACEMENT is executors"}
