"""Batches that are worked on in parts, or that Spark's limits cut inside a version, end in the tables of whole ones."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from customer_activity.catalog import Reason, Table, checkpoint_path, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.lake import commits, delta, feeds
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.failpoints import FailPoint
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.quality import accounting
from customer_activity.settings import Settings
from customer_activity.streams.silver import stream as silver
from support.dying import Died, dies
from support.pipeline import SOURCES, copied_lake
from support.quick_pipeline import QuickPipeline
from support.records import PROFILES, PURCHASES, profile, purchase, tombstone
from support.streaming import StreamingPipeline
from support.streams import Query

MOST = "9999999999999999.99"
HISTORY = [
    [profile("C-1"), profile("C-2"), profile("C-3"), purchase("P-1", "C-1", "1.00"), purchase("P-2", "C-2", "2.00")],
    [purchase("P-1", "C-1", "9.00"), purchase("P-3", "C-4", "3.00"), profile("C-1", updated=2_000, address="2")],
    [purchase("P-2", "C-2", "2.00"), purchase("P-3", "C-4", "3.30"), purchase("P-4", "C-3", MOST), tombstone("C-2")],
    [purchase("P-5", "C-3", "0.01"), profile("C-4"), profile("C-2", updated=500), purchase("P-4", "C-3", "0.04")],
    [purchase("P-5", "C-3", "5.00"), purchase("P-6", "C-1", "6.00"), profile("C-1", updated=1), tombstone("C-3")],
]
NOTED = {"quarantined_at", "ingested_at", "view_version", "as_of"}


def rows(lake: str, table: Table) -> list[dict[str, Any]]:
    return list(DeltaTable(table_path(lake, table)).to_pyarrow_table().to_pylist())


def plain(found: Iterable[dict[str, Any]]) -> list[str]:
    """Return rows without what differs between two runs of anything."""
    return sorted(str({name: value for name, value in row.items() if name not in NOTED}) for row in found)


def newest(lake: str, table: Table, order: Sequence[str], ends: str) -> list[str]:
    """Return the newest of each customer's changes, of those whom it does not end; how many there are is the parts'."""
    found = {row["customer_id"]: row for row in sorted(rows(lake, table), key=lambda row: [row[o] for o in order])}
    return plain({**row, "existed": None} for row in found.values() if not row[ends])


def told(lake: str, table: Table, topic: str) -> Counter[str]:
    """Return what silver's commits to a table count of a topic."""
    batches = accounting._told(lake, table, DeltaTable(table_path(lake, table))).batches
    total = Counter[str]()
    for (query, *_), counts in batches.items():
        if query == Query.SILVER:
            total.update({outcome: count for (of, outcome), count in counts.items() if of == topic})
    return total


def result(lake: str) -> dict[str, Any]:
    """Return what must not depend on parts."""
    return {
        "purchases": plain(rows(lake, Table.PURCHASES)),
        "quarantine": plain(rows(lake, Table.QUARANTINE)),
        "profiles": newest(lake, Table.PROFILE_CHANGES, ("landing", "partition", "offset"), "is_tombstone"),
        "gold": newest(lake, Table.ACTIVITY_CHANGES, ("view_version",), "is_gone"),
        "counts": [
            told(lake, Table.PURCHASES, PURCHASES),
            told(lake, Table.PROFILE_CHANGES, PROFILES),
        ],
    }


def changes_follow_each_other(lake: str) -> bool:
    """Whether each customer's rows begin, change and end as `existed` and `is_gone` say, and no change is none."""
    found = sorted(rows(lake, Table.ACTIVITY_CHANGES), key=lambda row: (row["customer_id"], row["view_version"]))
    for _, of_customer in groupby(found, key=lambda row: row["customer_id"]):
        before: dict[str, Any] = {"is_gone": True}
        for row in of_customer:
            same = before.keys() >= row.keys() and plain([{**before, "existed": 0}]) == plain([{**row, "existed": 0}])
            if row["existed"] == before["is_gone"] or same:
                return False
            before = row
    return True


@pytest.fixture(scope="module")
def landed(spark: SparkSession, empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> QuickPipeline:
    """Land rounds of records; the hops behind bronze have taken the first of them."""
    pipeline = QuickPipeline(spark, copied_lake(empty_lake, tmp_path_factory.mktemp("landed")))
    for number, records in enumerate(HISTORY):
        pipeline.send(*records)
        pipeline.hop(Query.BRONZE)
        if number == 0:
            pipeline.hop(Query.SILVER)
            pipeline.hop(Query.GOLD)
    return pipeline


@pytest.fixture(scope="module")
def judged(landed: QuickPipeline, tmp_path_factory: pytest.TempPathFactory) -> QuickPipeline:
    """Have silver take one version of bronze after the other, so that gold has as many before it."""
    pipeline = copied(landed, tmp_path_factory.mktemp("judged"))
    newest = {table: DeltaTable(table_path(pipeline.settings.lake, table)).version() for table in silver.SIDES}
    for _ in HISTORY[1:]:
        begin = {table: pipeline.cursors[Query.SILVER, table] for table in silver.SIDES}
        versions = {table: (after, min(after + 1, newest[table])) for table, after in begin.items()}
        cut = {"begin": None, "end": None}
        batch = MicroBatch(
            Query.SILVER, "generation-1", len(pipeline.batches[Query.SILVER]), versions=versions, cut=cut
        )
        pipeline.batches[Query.SILVER].append(batch)
        pipeline._write(Query.SILVER, batch)
        pipeline.cursors |= {(Query.SILVER, table): upto for table, (_, upto) in versions.items()}
    return pipeline


def copied(pipeline: QuickPipeline, folder: Path) -> QuickPipeline:
    """Return one like it, indexes and all, of its own."""
    pipeline.close()  # the indexes are in a local lake: their files are whole now
    settings = copied_lake(Path(pipeline.settings.lake), folder)
    pipeline.restart()
    other = QuickPipeline(pipeline.spark, settings)
    other.last_input = dict.fromkeys(Query, other.unread)
    other.cursors, other.versions = dict(pipeline.cursors), dict(pipeline.versions)
    other.batches = {query: list(batches) for query, batches in pipeline.batches.items()}
    return other


def closed(pipeline: QuickPipeline) -> None:
    pipeline.close()
    shutil.rmtree(Path(pipeline.settings.lake).parent)


BEYOND = "9999999999999999.00"
REFUSED = {
    Query.SILVER: ([purchase("P-1")], [purchase("P-1", amount="2.00")], [purchase("P-1", amount="3.00")]),
    Query.GOLD: (
        [profile("C-1"), profile("C-2")],
        [purchase("P-1", "C-1", BEYOND), purchase("P-2", "C-1", BEYOND)],
        [purchase("P-3", "C-2", BEYOND), purchase("P-4", "C-2", BEYOND)],
    ),
}


@pytest.mark.parametrize("query", REFUSED, ids=str)
def test_what_is_in_quarantine_is_not_put_there_again_behind_a_checkpoint_that_was_recovered(
    pipeline: QuickPipeline, query: Query
) -> None:
    """A recovered checkpoint repeats the batch before the one that a kill ended, which is then cut anew and longer."""
    before = [Query.BRONZE] if query == Query.SILVER else [Query.BRONZE, Query.SILVER]
    rounds = iter(REFUSED[query])
    pipeline.send(*next(rounds))
    for one in (*before, query):
        pipeline.hop(one)
    done = pipeline.batches[query][-1]
    pipeline.send(*next(rounds))
    for one in before:
        pipeline.hop(one)
    begun = dict(pipeline.cursors)
    with pytest.raises(Died):
        pipeline.hop(query, dies(FailPoint.COMMITTED))  # of quarantine, which comes first
    pipeline.send(*next(rounds))
    for one in before:
        pipeline.hop(one)

    pipeline.restart()
    again = MicroBatch(query, done.generation, done.batch_id, versions=done.versions, cut=done.cut)
    pipeline._write(query, again)
    pipeline.cursors |= {key: upto for key, upto in begun.items() if key[0] == query}
    pipeline.batches[query].pop()
    pipeline.hop(query)

    of_query = Reason.CONFLICTING_DUPLICATE if query == Query.SILVER else Reason.TOTAL_OUT_OF_RANGE
    refused = [row for row in pipeline.rows(Table.QUARANTINE) if row["reason"] == of_query]
    assert len(refused) == len({(row["key"], row["offset"]) for row in refused}) == 2


@pytest.fixture(scope="module")
def begun(
    landed: QuickPipeline, judged: QuickPipeline, tmp_path_factory: pytest.TempPathFactory
) -> dict[Query, tuple[QuickPipeline, dict[str, Any]]]:
    """Return what silver has before it, and gold, each with what becomes of it where batches are whole."""
    found = {}
    for query, before in {Query.SILVER: landed, Query.GOLD: judged}.items():
        pipeline = copied(before, tmp_path_factory.mktemp("whole"))
        for hop in (Query.SILVER, Query.GOLD):
            pipeline.hop(hop)
        lake = pipeline.settings.lake
        found[query] = before, result(lake)
        assert changes_follow_each_other(lake)
        assert Counter(row["reason"] for row in rows(lake, Table.QUARANTINE)) == {
            "conflicting_duplicate": 4,
            "total_out_of_range": 1,
        }
        closed(pipeline)
    return found


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("query", "files", "loses_indexes"),
    [
        pytest.param(query, files, loses, id=f"{query}, {name}", marks=() if in_ci is query else pytest.mark.nightly)
        for query in (Query.SILVER, Query.GOLD)
        for name, files, loses, in_ci in (
            ("larger parts at the repeat", (1, 3), False, Query.SILVER),
            ("smaller ones, index lost", (2, 1), True, Query.GOLD),
            ("the same, index lost", (1, 1), True, None),  # of most places
            ("smaller ones", (3, 2), False, None),
        )
    ],
)
def test_a_crash_in_any_part_of_a_batch_changes_nothing(
    begun: dict[Query, tuple[QuickPipeline, dict[str, Any]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    query: Query,
    files: tuple[int, int],
    loses_indexes: bool,
) -> None:
    before, expected = begun[query]

    for number in count(1):
        pipeline = copied(before, tmp_path / f"{number}")
        monkeypatch.setattr(feeds, "PART_FILES", files[0])
        try:
            pipeline.hop(query, dies(times=number))
            break
        except Died:
            pass
        monkeypatch.setattr(feeds, "PART_FILES", files[1])
        pipeline.repeat(query, loses_indexes=loses_indexes)
        monkeypatch.undo()
        if query == Query.SILVER:
            pipeline.hop(Query.GOLD)
        assert result(pipeline.settings.lake) == expected, f"ended at place {number}"
        assert changes_follow_each_other(pipeline.settings.lake), f"ended at place {number}"
        closed(pipeline)
    assert number > 2 * len(HISTORY) / files[0], "a batch of several parts has several places"


def in_several_files(pipeline: QuickPipeline, table: Table, query: Query, number: int) -> None:
    """Commit three files at once: the first row of a table, with three other purchase ids."""
    lake = pipeline.settings.lake
    first = DeltaTable(table_path(lake, table)).to_pyarrow_table().slice(0, 1)
    written = []
    for key in range(3):
        names = {"purchase_id": f"Q-{number}-{key}", "offset": 1_000 + 3 * number + key}
        row = first
        for name, value in names.items():
            at = row.column_names.index(name)
            row = row.set_column(at, name, pa.array([value], row.schema.field(name).type))
        writer = FileWriter(lake, table)
        writer.write(row)
        written.append(writer.close())
    commits.commit(pipeline.spark, lake, table, written, MicroBatch(query, "by hand", number))


@pytest.mark.parametrize(
    ("table", "writer", "reader"),
    [(Table.PURCHASE_EVENTS, Query.BRONZE, Query.SILVER), (Table.PURCHASES, Query.SILVER, Query.GOLD)],
    ids=["silver", "gold"],
)
def test_every_row_counts_once_where_limits_cut_a_backlog(
    spark: SparkSession,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    table: Table,
    writer: Query,
    reader: Query,
) -> None:
    monkeypatch.setattr(delta, "MOST_FILES_A_BATCH", 2)
    pipeline = StreamingPipeline(spark, settings)
    pipeline.land(profile("C-1"), purchase("P-1", "C-1", "1.00"))
    if writer == Query.SILVER:
        pipeline.hop(Query.SILVER)
    for number in range(4):
        in_several_files(pipeline, table, writer, number)

    pipeline.stream(*[query for query in (Query.SILVER, Query.GOLD, Query.ACTIVITY) if query is not writer])

    offsets = Path(checkpoint_path(settings.lake, reader), "offsets")
    batches = sorted(int(path.name) for path in offsets.iterdir() if path.name.isdigit())
    cuts = [checkpoint.cut(settings.lake, reader, batch) for batch in batches]
    begins = delta.begins(settings.lake, SOURCES[reader])
    found = [cut.versions(begins)[table] for cut in cuts if cut is not None]
    assert all(upto == after for (_, upto), (after, _) in pairwise(found))
    assert len(found) > 4, "a batch has one version of three files"
    assert found[-1][1] == DeltaTable(table_path(settings.lake, table)).version()

    wanted = {"P-1", *(f"Q-{number}-{key}" for number in range(4) for key in range(3))}
    assert sorted(row["purchase_id"] for row in rows(settings.lake, Table.PURCHASES)) == sorted(wanted)
    ((row,),) = [rows(settings.lake, Table.ACTIVITY)]
    assert (row["purchase_count"], str(row["total_amount"])) == (13, "13.00")
