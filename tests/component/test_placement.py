"""Where a batch is worked on changes nothing: driver, executors, or batch by batch the one and the other.

What executors do is done here by their own tasks, one after the other; tests/spark/test_executors.py has Spark do it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import cycle
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import pytest
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.engine import changes, failures, placement, spreading, workers
from customer_activity.engine.workers import Executors
from customer_activity.errors import ChangeFeedLost, RowsLost, TransientError
from customer_activity.lake import deltalog, feeds, history
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.microbatch import metadata_of
from customer_activity.maintenance import maintenance
from customer_activity.state import catalogue, local, restore, sorted_runs
from customer_activity.state.catalogue import Past, Positions
from customer_activity.streams.silver import profiles, tasks
from support import histories
from support.dying import Died, dies
from support.pipeline import Pipeline, copied_lake
from support.quick_pipeline import QuickPipeline
from support.records import NOW_MS, profile, purchase, tombstone
from support.streams import Query
from support.without_jvm import NoSpark, without_jvm

MOST = "9999999999999999.99"
HISTORY = [
    *histories.REPEATS,
    [purchase(f"P-{n}", f"C-{n % 8}", f"{n}.10", sent=NOW_MS + n) for n in range(40)],  # a whole replay
    [purchase("P-é", "C-7", "1.00"), profile("C-7"), purchase("P-é", "C-7", "1.01")],
    [profile("C-1", updated=5_000, address="2")],  # no purchase
    [purchase("P-50", "C-5", "5.00"), profile("C-big"), purchase("P-60", "C-big", MOST)],
    [purchase("P-61", "C-big", "0.01")],  # its total leaves the range
    [tombstone("C-big"), purchase("P-62", "C-2", "1.00")],  # which ends a row that gold's table tells of
    [profile("C-big"), profile("C-1", updated=1), profile("C-1", updated=5_000, address="2"), profile("C-2")],
    # In one part a profile is created and deleted, one is replaced twice, and one is deleted and created again.
    [profile("C-60"), profile("C-61"), profile("C-62"), profile("C-1", updated=6_000), *map(profile, ("C-63", "C-64"))],
    [
        *[profile("C-70"), profile("C-71"), tombstone("C-60"), profile("C-72"), profile("C-61", updated=7_000)],
        *[tombstone("C-70"), profile("C-73"), profile("C-60"), profile("C-71", updated=8_000), profile("C-74")],
        *[
            profile("C-61", updated=9_000, address="9"),
            tombstone("C-62"),
            profile("C-71", updated=8_000),
            tombstone("C-72"),
        ],
    ],
]


SPLIT = Past.split
PLACES: dict[str, dict[str, object]] = {
    "driver": {"placement": "driver"},
    "executors": {"placement": "executors"},
    "runs": {"placement": "auto", "local_state_gb": 0},  # in the driver, without local state
    "auto": {"placement": "auto", "local_state_gb": 1},
}


def placed(pipeline: Pipeline, place: str) -> None:
    """Have a pipeline's batches be worked on at a place from now on."""
    pipeline.settings = pipeline.settings.model_copy(update=PLACES[place])
    pipeline.restart()


def counts(pipeline: Pipeline) -> list[dict[str, dict[str, int]]]:
    return [
        {topic: {outcome: n for outcome, n in found.items() if n} for topic, found in batch.counts.items()}
        for batch in pipeline.batches[Query.SILVER]
    ]


def lived(pipeline: Pipeline, places: Sequence[str]) -> Pipeline:
    """Take the history in, one batch after the other, each at the next of some places."""
    for records, place in zip(HISTORY, cycle(places), strict=False):
        placed(pipeline, place)
        pipeline.send(*records)
        pipeline.run()
    return pipeline


@pytest.fixture(scope="module")
def nobody() -> Iterator[NoSpark]:
    """Commit, and work as executors do, without a JVM."""
    with without_jvm() as found:
        yield found


def begun(nobody: NoSpark, empty_lake: Path, folder: Path) -> Pipeline:
    return QuickPipeline(nobody, copied_lake(empty_lake, folder))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def in_driver(nobody: NoSpark, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Take the history in, all in the driver."""
    return lived(begun(nobody, empty_lake, tmp_path_factory.mktemp("driver")), ["driver"])


@pytest.fixture(scope="module")
def on_executors(nobody: NoSpark, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Take the history in, all on executors; nobody changes it."""
    return lived(begun(nobody, empty_lake, tmp_path_factory.mktemp("executors")), ["executors"])


@pytest.fixture
def pipeline(nobody: NoSpark, empty_lake: Path, tmp_path: Path) -> Pipeline:
    """Return all queries on an empty lake."""
    return begun(nobody, empty_lake, tmp_path)


@pytest.mark.parametrize(
    ("places", "due_files"),
    [
        pytest.param(places, due, id=f"{name}, {adding}", marks=() if due in in_ci else pytest.mark.nightly)
        for name, places, in_ci in (
            ("executors", ["executors"], [3]),
            ("driver first, then in turn", ["driver", "executors"], [-1]),
            ("executors twice, then the driver", ["executors", "executors", "driver"], [-1]),
            ("without local state", ["runs"], [-1]),
            ("with local state in the end", ["executors", "runs", "runs", "driver"], [3]),
        )
        for adding, due in (("runs are added to", -1), ("and seldom", 3))
    ],
)
def test_rows_are_the_same_wherever_a_batch_is_worked_on(
    pipeline: Pipeline, in_driver: Pipeline, places: Sequence[str], due_files: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "DUE_FILES", due_files)
    lived(pipeline, places)
    assert histories.rows(pipeline) == histories.rows(in_driver)
    assert counts(pipeline) == counts(in_driver)
    assert pipeline.view.latest().keys() == in_driver.view.latest().keys()


@pytest.mark.parametrize("place", ["driver", "executors"])
@pytest.mark.parametrize("at_a_time", [1, 3])
def test_a_part_tells_the_same_of_a_profile_however_many_are_judged_at_a_time(
    pipeline: Pipeline, in_driver: Pipeline, place: str, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiles, "AT_A_TIME", at_a_time)
    lived(pipeline, [place])
    assert histories.rows(pipeline) == histories.rows(in_driver)
    assert counts(pipeline) == counts(in_driver)


@pytest.mark.parametrize("point", [FailPoint.STAGED, FailPoint.COMMITTED])
@pytest.mark.parametrize("times", [1, 2])
def test_a_batch_that_a_crash_ended_is_done_once(
    pipeline: Pipeline, in_driver: Pipeline, point: FailPoint, times: int
) -> None:
    """Before and after the commit to quarantine, and to silver.purchases, whose runs are noted after it."""
    placed(pipeline, "executors")
    for records in HISTORY:
        pipeline.send(*records)
        pipeline.hop(Query.BRONZE)
        try:
            pipeline.hop(Query.SILVER, failpoint=dies(point, times=times))
        except Died:
            pipeline.repeat(Query.SILVER)
        for query in (query for query in Query if query not in (Query.BRONZE, Query.SILVER)):
            pipeline.hop(query)
    assert histories.rows(pipeline) == histories.rows(in_driver)


def test_a_backlog_in_parts_ends_in_the_same_rows_and_no_part_reads_what_is_known_again(
    nobody: NoSpark, empty_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From before the tables' first versions on: a part may have files of one side alone."""
    monkeypatch.setattr(feeds, "PART_FILES", 1)
    read: list[int] = []
    known = catalogue.past

    def past(lake: str, stream: str, made_by: str, to: Positions, **how: bool) -> Past:
        told = known(lake, stream, made_by, to, **how)
        read.append(sum(map(len, told.files.values())))
        return told

    monkeypatch.setattr(catalogue, "past", past)
    found = []
    for place in ("driver", "executors"):
        pipeline = begun(nobody, empty_lake, tmp_path / place)
        placed(pipeline, place)
        for records in HISTORY:
            pipeline.send(*records)
            pipeline.hop(Query.BRONZE)
        for query in list(Query)[1:]:
            pipeline.hop(query)
        found.append(histories.rows(pipeline))
    assert found[0] == found[1]
    assert len(read) > len(HISTORY)
    assert sum(read) == 0


def test_state_in_the_lake_may_be_lost(pipeline: Pipeline, in_driver: Pipeline) -> None:
    for number, records in enumerate(HISTORY):
        placed(pipeline, "executors")
        pipeline.send(*records)
        pipeline.run()
        if number % 2:
            shutil.rmtree(Path(pipeline.settings.lake, "_state"))
    assert histories.rows(pipeline) == histories.rows(in_driver)


@pytest.mark.parametrize("kept", [0, 8], ids=["all of it", "but its first bytes and last"])
def test_a_run_that_can_be_read_no_more_is_made_again(pipeline: Pipeline, in_driver: Pipeline, kept: int) -> None:
    """Which is found when it is looked into: its size is the same."""
    for records in HISTORY:
        placed(pipeline, "executors")
        for run in Path(pipeline.settings.lake, "_state").rglob("*.arrow"):
            data = run.read_bytes()
            run.write_bytes(data[:kept] + bytes(len(data) - 2 * kept) + data[len(data) - kept :])
        pipeline.send(*records)
        pipeline.run()
    assert histories.rows(pipeline) == histories.rows(in_driver)


def test_runs_hold_what_the_table_has(on_executors: Pipeline) -> None:
    lake, table = on_executors.settings.lake, Table.PURCHASES
    newest = deltalog.position(lake, table, on_executors.ids[table], deltalog.newest_version(lake, table))
    past = catalogue.past(lake, table.label, tasks.FORMAT, {table: newest})
    assert past.files == {table: []}
    assert sum(run.rows for of in past.runs.values() for run in of) == len(on_executors.rows(Table.PURCHASES))


def test_nothing_but_runs_and_catalogues_is_left(on_executors: Pipeline) -> None:
    folder = Path(catalogue.folder(on_executors.settings.lake, Table.PURCHASES.label))
    assert {file.suffix for file in folder.iterdir()} == {".arrow", ".json"}
    conflicts = [
        file
        for file in folder.glob("*.arrow")
        if "is_conflict" in sorted_runs.read(str(folder), file.name).column_names
    ]
    assert conflicts == []


def test_a_commit_tells_where_its_batch_was_worked_on_and_why(pipeline: Pipeline) -> None:
    placed(pipeline, "executors")
    pipeline.send(*HISTORY[0])
    pipeline.run()
    note = history.latest_metadata(pipeline.settings.lake, Table.PURCHASES, Query.SILVER)
    assert note["placement"] == {"place": "executors", "why": "ACTIVITY_PLACEMENT is executors"}
    placed(pipeline, "auto")
    pipeline.send(*HISTORY[1])
    pipeline.run()
    note = history.latest_metadata(pipeline.settings.lake, Table.PURCHASES, Query.SILVER)
    assert note["placement"] == {"place": "driver", "why": "15 rows are few"}


def placements(pipeline: Pipeline, table: Table) -> list[str]:
    """Where a table's commits were worked on, and why, the oldest first."""
    lake = pipeline.settings.lake
    said = list(history.log_entries(lake, table, deltalog.newest_version(lake, table)))
    notes = [metadata_of(entry.get("userMetadata")) for entry in sorted(said, key=lambda entry: entry["version"])]
    return ["{place}: {why}".format(**note["placement"]) for note in notes if "placement" in note]


def test_without_local_state_a_small_batch_is_looked_up_in_the_lake(pipeline: Pipeline) -> None:
    lived(pipeline, ["runs"])
    folder = pipeline.settings.index_dir
    assert list(folder.glob("*.db*")) == []
    for table in (Table.PURCHASES, Table.PROFILE_CHANGES, Table.ACTIVITY_CHANGES):
        assert {placed.partition(" are ")[2] for placed in placements(pipeline, table)} == {
            "few; no local state is kept"
        }


def test_what_is_too_much_for_one_process_is_for_executors(
    pipeline: Pipeline, in_driver: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small batch without local state, whose past is in no sorted run."""
    monkeypatch.setattr(catalogue, "NEAR_FILES", 1)
    lived(pipeline, ["driver", "driver", "driver", "runs", "runs"])
    assert histories.rows(pipeline) == histories.rows(in_driver)
    assert placements(pipeline, Table.PURCHASES)[3] == "executors: 50 rows of state are in no sorted run"


@pytest.mark.parametrize("places", [["driver", "driver", "driver", "executors"], ["executors", "runs"]])
def test_what_is_too_much_for_a_task_is_brought_into_runs_in_rounds(
    pipeline: Pipeline, in_driver: Pipeline, places: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []

    def split(past: Past, rows: int) -> tuple[Past, Past]:
        now, later = SPLIT(past, rows)
        rounds.append(sum(file.rows for file in now.since))
        assert {file.path for file in past.since} == {file.path for each in (now, later) for file in each.since}
        return now, later

    monkeypatch.setattr(Past, "split", split)
    monkeypatch.setattr(spreading, "ROUND_ROWS", 4)
    for records, place in zip(HISTORY, cycle(places), strict=False):
        placed(pipeline, place)
        if place == "executors":  # what is lost is all made again
            shutil.rmtree(Path(pipeline.settings.lake) / "_state", ignore_errors=True)
        pipeline.send(*records)
        pipeline.run()
    assert histories.rows(pipeline) == histories.rows(in_driver)
    assert counts(pipeline) == counts(in_driver)
    assert len(rounds) > len(HISTORY)
    assert min(rounds) > 0


def test_without_an_executor_it_says_so_and_waits_for_none(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job would wait for one without a word, and supervision end a driver that is stalled."""
    monkeypatch.setattr(catalogue, "NEAR_FILES", 1)
    monkeypatch.setattr(Executors, "are_there", lambda _: False)
    for records in HISTORY[:3]:
        placed(pipeline, "driver")
        pipeline.send(*records)
        pipeline.run()
    placed(pipeline, "runs")
    pipeline.send(*HISTORY[3])
    with pytest.raises(TransientError, match="50 rows of state are in no sorted run, and there is no executor"):
        pipeline.run()


@pytest.fixture
def outgrown(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Return one whose driver has local state of all of the history, and no sorted run; now that is too large."""
    lived(pipeline, ["driver"])
    monkeypatch.setitem(PLACES, "outgrown", {"placement": "auto", "local_state_gb": 1 / local.GB})
    placed(pipeline, "outgrown")
    monkeypatch.setattr(catalogue, "NEAR_FILES", 1)
    monkeypatch.setattr(changes, "LOOK_SECONDS", 0)
    return pipeline


def on_a_cluster(pipeline: Pipeline, executors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "executors_of", lambda _: executors)
    monkeypatch.setattr(Executors, "are_there", lambda _: executors > 0)
    pipeline.settings = pipeline.settings.model_copy(update={"spark_master": "spark://master:7077"})
    pipeline.restart()


def buys(pipeline: Pipeline, number: int) -> str:
    """Have a customer buy, and what was bought first come again; return where the batch was worked on."""
    before = len(pipeline.rows(Table.PURCHASES))
    pipeline.send(purchase(f"P-new-{number}", "C-1", "1.00"), purchase("P-1", "C-1", "1.10"))
    pipeline.run()
    assert len(pipeline.rows(Table.PURCHASES)) == before + 1
    return placements(pipeline, Table.PURCHASES)[-1]


def has_a_file(pipeline: Pipeline) -> bool:
    return (pipeline.settings.index_dir / "silver.db").exists()


def test_local_state_that_is_outgrown_is_kept_until_there_are_runs(
    outgrown: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make them of a hundred million rows takes minutes, and room on a disk: it may fail, again and again."""
    work = Executors.run_by_lane

    def fail(*_given: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Executors, "run_by_lane", fail)
    with pytest.raises(OSError, match="No space left"):
        buys(outgrown, 1)
    outgrown.restart()
    assert has_a_file(outgrown)
    monkeypatch.setattr(Executors, "run_by_lane", work)
    outgrown.repeat(Query.SILVER)
    outgrown.run()
    assert placements(outgrown, Table.PURCHASES)[-1].startswith("executors: ")
    assert has_a_file(outgrown)
    outgrown.send(profile("C-1", updated=9_000))
    outgrown.run()
    assert buys(outgrown, 2) == "driver: 2 rows are few; no local state is kept"
    assert not has_a_file(outgrown)


def test_local_state_that_is_outgrown_is_kept_until_runs_have_both_sides(
    outgrown: Pipeline,
) -> None:
    """Purchases come all day, and profiles now and then: what has no run yet would have nothing."""
    for number in range(3):
        buys(outgrown, number)
        assert has_a_file(outgrown)
    outgrown.send(profile("C-1", updated=9_000))
    outgrown.run()
    assert has_a_file(outgrown)
    buys(outgrown, 3)
    assert not has_a_file(outgrown)


def test_local_state_that_is_outgrown_serves_while_a_cluster_has_no_executor(
    outgrown: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_a_cluster(outgrown, 0, monkeypatch)
    for number in range(2):
        assert buys(outgrown, number) == "driver: 2 rows are few"
    on_a_cluster(outgrown, 1, monkeypatch)
    assert buys(outgrown, 2).startswith("executors: ")
    assert has_a_file(outgrown)
    on_a_cluster(outgrown, 0, monkeypatch)
    assert buys(outgrown, 3) == "driver: 2 rows are few"


def test_outgrown_local_state_that_is_lost_is_not_made_while_a_cluster_has_no_executor(
    outgrown: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more than may be kept, all would be read before the next look at whether there is an executor."""
    outgrown.close()
    for file in outgrown.settings.index_dir.glob("*.db*"):
        file.unlink()
    on_a_cluster(outgrown, 0, monkeypatch)
    brought: list[object] = []
    monkeypatch.setattr(restore, "bring", lambda *given: brought.append(given))
    with pytest.raises(TransientError, match="there is no executor"):
        buys(outgrown, 1)
    assert brought == []


def test_without_an_executor_and_local_state_the_driver_does_large_parts_and_holds_little(
    pipeline: Pipeline, in_driver: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its tasks pass on is in files."""
    monkeypatch.setattr(changes, "SMALL_BATCH_ROWS", 3)
    monkeypatch.setattr(placement, "executors_of", lambda _: 0)
    monkeypatch.setattr(workers, "HELD_BYTES", 300)
    on_disk: list[int] = []

    class Seen(SpooledTemporaryFile[bytes]):
        def rollover(self) -> None:
            on_disk.append(self.tell())
            super().rollover()

    monkeypatch.setattr(workers, "SpooledTemporaryFile", Seen)
    pipeline.settings = pipeline.settings.model_copy(update={"spark_master": "spark://master:7077"})
    lived(pipeline, ["runs"])
    assert histories.rows(pipeline) == histories.rows(in_driver)
    assert counts(pipeline) == counts(in_driver)
    why = "spark://master:7077 has given no executor; no local state is kept"
    assert any(
        placed.startswith("driver: ") and placed.endswith(why) for placed in placements(pipeline, Table.PURCHASES)
    )
    assert on_disk


@pytest.mark.parametrize("places", [["executors", "auto"], ["executors", "auto", "auto", "driver", "auto"]])
def test_small_batches_do_without_local_state_while_it_catches_up(
    pipeline: Pipeline, in_driver: Pipeline, places: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "NEAR_ROWS", 0)
    lived(pipeline, places)
    assert any("the local state is catching up" in placed for placed in placements(pipeline, Table.PURCHASES))
    assert histories.rows(pipeline) == histories.rows(in_driver)
    assert counts(pipeline) == counts(in_driver)


def test_a_file_that_is_gone_is_data_loss(pipeline: Pipeline) -> None:
    placed(pipeline, "executors")
    pipeline.send(*HISTORY[0])
    pipeline.hop(Query.BRONZE)
    for file in Path(table_path(pipeline.settings.lake, Table.PURCHASE_EVENTS)).glob("*.parquet"):
        file.unlink()
    with pytest.raises(ChangeFeedLost, match=r"bronze.purchase_events: files that versions \d+ to \d+ added are gone"):
        pipeline.hop(Query.SILVER)


def test_a_file_that_is_gone_of_what_was_read_before_is_named(pipeline: Pipeline) -> None:
    """Not a lake that executors do not see: it is gone for everybody."""
    placed(pipeline, "executors")
    pipeline.send(*HISTORY[0])
    pipeline.run()
    shutil.rmtree(Path(pipeline.settings.lake) / "_state")
    for file in Path(table_path(pipeline.settings.lake, Table.PURCHASES)).glob("*.parquet"):
        file.unlink()
    pipeline.send(*HISTORY[1])
    pipeline.hop(Query.BRONZE)
    with pytest.raises(ChangeFeedLost, match=r"silver.purchases: files of rows that were read before are gone"):
        pipeline.hop(Query.SILVER)


def test_a_file_that_is_gone_of_what_was_read_before_is_named_by_the_driver(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It compares a large part with the whole table; trying again brings no file back."""
    placed(pipeline, "driver")
    pipeline.send(*HISTORY[0])
    pipeline.run()
    for file in Path(table_path(pipeline.settings.lake, Table.PURCHASES)).glob("*.parquet"):
        file.unlink()
    pipeline.send(*HISTORY[1])
    pipeline.hop(Query.BRONZE)
    monkeypatch.setattr(feeds, "SMALL_BATCH_FILES", 0)
    with pytest.raises(FileNotFoundError) as died:
        pipeline.hop(Query.SILVER)
    told = failures.explain(Query.SILVER, RuntimeError("a batch failed"), died.value, pipeline.settings, int)
    assert type(told) is RowsLost
    assert re.match(r"silver\.purchases: files of version \d+, the newest, are gone", told.what)


def test_a_large_part_in_the_driver_counts_no_id_that_the_table_has(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed(pipeline, "driver")
    monkeypatch.setattr(feeds, "SMALL_BATCH_FILES", 0)
    pipeline.send(*(purchase(f"P-{number}", "C-1", "1.00") for number in range(3)))
    pipeline.run()
    repeats = [purchase("P-0", "C-1", "1.00"), purchase("P-1", "C-1", "2.00")]
    pipeline.send(*repeats, purchase("P-3", "C-1", "1.00"), purchase("P-3", "C-1", "1.00"))
    pipeline.run()
    counted = {row["purchase_id"]: row["amount"] for row in pipeline.rows(Table.PURCHASES)}
    assert counted == {f"P-{number}": Decimal("1.00") for number in range(4)}
    assert len(pipeline.rows(Table.PURCHASES)) == 4
    assert len(pipeline.rows(Table.QUARANTINE)) == 1


def test_a_file_of_something_else_is_no_file_of_the_lake(pipeline: Pipeline) -> None:
    """Though a table that this stream never reads has lost one: that is told where it is met."""
    placed(pipeline, "driver")
    pipeline.send(*HISTORY[0])
    pipeline.run()
    for file in Path(table_path(pipeline.settings.lake, Table.SUMMARIES)).glob("*.parquet"):
        file.unlink()
    gone = FileNotFoundError(2, "No such file or directory", "/tmp/spark-0123/pyspark-4567/tmp")  # noqa: S108 - Spark's
    told = failures.explain(Query.SILVER, RuntimeError("a batch failed"), gone, pipeline.settings, int)
    assert type(told) is TransientError


@pytest.mark.parametrize("place", ["runs", "auto"])
def test_what_makes_a_part_large_is_told(pipeline: Pipeline, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not its rows where these are few, but the files that they are in."""
    placed(pipeline, place)
    pipeline.send(*HISTORY[0])
    pipeline.run()
    for records in HISTORY[1:3]:
        pipeline.send(*records)
        pipeline.hop(Query.BRONZE)
    monkeypatch.setattr(feeds, "SMALL_BATCH_FILES", 1)
    pipeline.hop(Query.SILVER)
    told = placements(pipeline, Table.PURCHASES)[-1]
    expected = {
        "runs": r"executors: \d+ rows \(0\.0 MB in \d files\) are many",
        "auto": r"driver: local.* has no executors but threads of the driver",
    }
    assert re.fullmatch(expected[place], told)


@pytest.mark.parametrize("table", [Table.PURCHASES, Table.PROFILE_CHANGES], ids=lambda table: table.label)
def test_commits_without_a_file_bring_runs_on_before_the_log_is_shortened(
    pipeline: Pipeline, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of records that change nothing any more: otherwise all of the table is read each time its log is shortened."""
    monkeypatch.setattr(catalogue, "DUE_VERSIONS", 2)
    lake, again = pipeline.settings.lake, [profile("C-1"), purchase("P-1", "C-1", "1.00")]
    placed(pipeline, "executors")
    pipeline.send(*again)
    pipeline.run()
    monkeypatch.setattr(catalogue, "DUE_FILES", 32)
    placed(pipeline, "runs")
    for _ in range(6):
        pipeline.send(*again)
        pipeline.run()
    noted = max((Path(lake) / "_state" / table.label).glob("*.json"))
    (_, version, _), *_ = json.loads(noted.read_text(encoding="utf-8"))["positions"].values()
    assert version >= deltalog.newest_version(lake, table) - 2
    assert len(pipeline.rows(table)) == 1


def test_runs_are_brought_on_before_vacuum_removes_what_was_compacted(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next small batch reads all of the table, and without an executor the stream ends."""
    lake, known = pipeline.settings.lake, catalogue.past
    placed(pipeline, "executors")
    pipeline.send(*HISTORY[0])
    pipeline.run()
    monkeypatch.setattr(catalogue, "DUE_FILES", 32)
    placed(pipeline, "runs")

    def lives(*numbers: int) -> None:
        for number in numbers:
            pipeline.send(purchase(f"P-new-{number}", "C-1", "1.00"))
            pipeline.run()

    lives(1, 2, 3)
    assert maintenance.compact(lake, Table.PURCHASES) is not None
    lives(4, 5)  # gold reads up to the compaction with the one, and begins behind it with the other
    removed = gone_from(lake, Table.PURCHASES)
    for file in removed:
        file.unlink()
    with_runs: dict[str, bool] = {}

    def past(lake: str, stream: str, *more: Any, **others: Any) -> Past:
        found = known(lake, stream, *more, **others)
        with_runs[stream] = bool(found.runs)
        return found

    monkeypatch.setattr(catalogue, "past", past)
    lives(6)
    assert removed
    assert with_runs == {Table.PURCHASES.label: True, Query.GOLD: True}


@pytest.mark.parametrize("table", [Table.PURCHASES, Table.PROFILE_CHANGES], ids=lambda table: table.label)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_runs_go_on_over_a_night_in_which_all_was_compacted_and_removed(
    pipeline: Pipeline, in_driver: Pipeline, table: Table, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of some millions of rows that is all the difference between a moment and minutes."""
    lake, known = pipeline.settings.lake, catalogue.past
    with_runs: list[bool] = []
    removing: list[Path] = []

    def past(lake: str, stream: str, *more: Any, **others: Any) -> Past:
        found = known(lake, stream, *more, **others)
        with_runs.extend([bool(found.runs)] if stream == table.label else [])
        return found

    work = workers.Here.run_by_lane

    def worked(*given: Any, **others: Any) -> Any:
        while removing:
            removing.pop().unlink()
        return work(*given, **others)

    monkeypatch.setattr(workers.Here, "run_by_lane", worked)
    for number, records in enumerate(HISTORY):
        placed(pipeline, "runs" if number else "executors")
        pipeline.send(*records)
        pipeline.run()
        if number % 2:
            maintenance.compact(lake, table)
            pipeline.run()  # of nothing: gold reads on, up to the compaction
            removing += gone_from(lake, table)
            while removing and when == "before":
                removing.pop().unlink()
            monkeypatch.setattr(catalogue, "past", past)
        monkeypatch.setattr(catalogue, "DUE_FILES", 32)  # small batches leave their rows to the table from now on
    assert told(pipeline) == told(in_driver)
    assert with_runs
    assert all(with_runs)


def told(pipeline: Pipeline) -> dict[str, list[dict[str, Any]]]:
    """Return all tables' rows without the numbers of their landings, which batches of nothing have, too."""
    return {
        label: sorted(({k: v for k, v in row.items() if k != "landing"} for row in rows), key=str)
        for label, rows in histories.rows(pipeline).items()
    }


def gone_from(lake: str, table: Table) -> list[Path]:
    """Return a table's files that no version names any more but old ones, which VACUUM removes."""
    folder = Path(table_path(lake, table))
    named = {Path(uri).name for uri in DeltaTable(str(folder)).file_uris()}
    return [file for file in folder.glob("*.parquet") if file.name not in named]


def test_runs_of_rounds_are_noted_though_the_part_is_small(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the next small part makes all of them again."""
    lake = pipeline.settings.lake
    for records in HISTORY[:2]:
        placed(pipeline, "driver")
        pipeline.send(*records)
        pipeline.run()
    monkeypatch.setattr(catalogue, "DUE_FILES", 32)
    monkeypatch.setattr(spreading, "ROUND_ROWS", 4)
    placed(pipeline, "runs")
    pipeline.send(purchase("P-new", "C-1", "1.00"))
    pipeline.run()
    for stream in (Table.PURCHASES.label, Query.GOLD):  # there are no more than three profiles
        assert list((Path(lake) / "_state" / stream).glob("*.json")), stream
