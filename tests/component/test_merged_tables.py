"""What delta-rs has rewritten (merges, deletes, compactions) is read by everybody, one customer by id as well."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyarrow import dataset, fs

from customer_activity.catalog import Reason, Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.inspection import show
from customer_activity.lake import footers, merging
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.lake.replacing import replace
from customer_activity.maintenance import maintenance
from customer_activity.quarantine import contents, replay
from customer_activity.quarantine.contents import Selection
from customer_activity.settings import Settings
from customer_activity.storage import s3
from support import tables
from support.records import PURCHASES, purchase
from support.streams import Query

HOSTILE = "ARROW:schema"  # as the note in a footer is called: a text in a column's statistics must stay as it is


pytestmark = pytest.mark.usefixtures("lake")


def files_of(lake: str, table: Table) -> list[str]:
    return [uri.removeprefix("file://") for uri in tables.opened(lake, table).file_uris()]


def text_types(lake: str, table: Table, column: str) -> set[pa.DataType]:
    return {pq.read_schema(file).field(column).type for file in files_of(lake, table)}


def gold_rows(*customers: str) -> pa.Table:
    rows = [{"customer_id": customer, "name": HOSTILE, "loyalty_status": "gold"} for customer in customers]
    return pa.Table.from_pylist(rows, arrow_schema(Table.ACTIVITY))


def merged(lake: str, rows: pa.Table, number: int, **how: Any) -> None:
    batch = MicroBatch(Query.ACTIVITY, "g", number)
    merging.merge(rows, lake, Table.ACTIVITY, batch, key=["customer_id"], **how)


def fill(lake: str) -> None:
    """Have rows in gold that were merged, some of them deleted, and the files compacted."""
    for number in range(3):
        merged(lake, gold_rows(*(f"{name}{number}" for name in "ABCD")), number)
    merged(lake, gold_rows("B1", "B2"), 3, delete_when="s.loyalty_status = 'gold'")


def compacted(lake: str) -> None:
    write_deltalake(table_path(lake, Table.ACTIVITY), gold_rows("E9"), mode="append")
    assert maintenance.compact(lake, Table.ACTIVITY) is not None


def in_duckdb(path: str, customer: str) -> int:
    gold = DeltaTable(path).to_pyarrow_dataset()  # noqa: F841 - the query names it
    found = duckdb.sql(f"SELECT * FROM gold WHERE customer_id = '{customer}'")  # noqa: S608
    assert found is not None  # as for a statement that returns no rows
    return len(found.fetchall())


READERS: dict[str, Callable[[str, str], int]] = {
    "DuckDB over Arrow": in_duckdb,
    "Arrow": lambda path, customer: (
        DeltaTable(path).to_pyarrow_dataset().to_table(filter=dataset.field("customer_id") == customer).num_rows
    ),
    "pandas": lambda path, customer: len(DeltaTable(path).to_pandas(filters=[("customer_id", "=", customer)])),
    "Polars": lambda path, customer: pl.scan_delta(path).filter(pl.col("customer_id") == customer).collect().height,
    "Polars over Arrow": lambda path, customer: (
        pl.scan_delta(path, use_pyarrow=True).filter(pl.col("customer_id") == customer).collect().height
    ),
}


@pytest.mark.parametrize("engine", READERS)
@pytest.mark.parametrize("then", [lambda _: None, compacted], ids=["merged", "compacted"])
def test_one_customer_is_found_by_id(settings: Settings, engine: str, then: Callable[[str], None]) -> None:
    fill(settings.lake)
    then(settings.lake)
    found = {
        customer: READERS[engine](table_path(settings.lake, Table.ACTIVITY), customer) for customer in ("A1", "B1")
    }
    assert found == {"A1": 1, "B1": 0}


def test_a_compaction_reads_the_footers_of_its_own_files_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers wait meanwhile, and a table has thousands of files."""
    fill(settings.lake)
    write_deltalake(table_path(settings.lake, Table.ACTIVITY), gold_rows("E8"), mode="append")
    write_deltalake(
        table_path(settings.lake, Table.ACTIVITY), gold_rows(*(f"F{n}" for n in range(20_000))), mode="append"
    )
    before = set(files_of(settings.lake, Table.ACTIVITY))
    looked: list[str] = []
    note = footers._note

    def noted(files: fs.FileSystem, path: str) -> footers.Place | None:
        looked.append(path)
        return note(files, path)

    monkeypatch.setattr(footers, "_note", noted)
    assert maintenance.compact(settings.lake, Table.ACTIVITY, target_bytes=50_000) is not None
    after = set(files_of(settings.lake, Table.ACTIVITY))
    assert before & after, "a large file stays"
    assert set(looked) == after - before


@pytest.mark.parametrize("engine", READERS)
def test_tables_of_a_release_before_are_mended(
    settings: Settings, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as before:
        before.setattr(footers, "repair_commit", lambda *_: 0)
        fill(settings.lake)
    path = table_path(settings.lake, Table.ACTIVITY)
    assert text_types(settings.lake, Table.ACTIVITY, "customer_id") == {pa.string_view()}
    rows = DeltaTable(path).to_pyarrow_table()

    assert footers.repair(settings.lake, Table.ACTIVITY) == len(files_of(settings.lake, Table.ACTIVITY))

    assert READERS[engine](path, "A1") == 1
    assert footers.repair(settings.lake, Table.ACTIVITY) == 0
    mended = DeltaTable(path).to_pyarrow_table()
    assert mended.cast(rows.schema).sort_by("customer_id") == rows.sort_by("customer_id")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("A", id="short"),
        pytest.param("z" * 100, id="long"),
        pytest.param("ü" * 33, id="of two bytes each"),
        pytest.param("\U00020000", id="of four bytes"),  # which some readers take for others in JSON's escapes
        pytest.param("\U0010fffe" * 40, id="nearly the last of all characters"),
        pytest.param("Q" * 32 + "\U0010ffff" + "x", id="the last of all characters where it is cut"),
        pytest.param("Q" * 32 + "\U0010ffff" * 3, id="nothing but these behind the cut"),
    ],
)
def test_rows_that_only_come_are_found_by_their_texts(settings: Settings, name: str) -> None:
    """Without bounds of a text whose column has statistics Arrow takes a file for one that has no such row."""
    coming = gold_rows("A", name).to_batches()
    replace(settings.lake, Table.ACTIVITY, ("customer_id",), (), coming, CommitProperties())
    found = tables.opened(settings.lake, Table.ACTIVITY).to_pyarrow_dataset(schema=arrow_schema(Table.ACTIVITY))
    assert found.to_table(filter=pc.field("customer_id") == name).num_rows == 1 + (name == "A")
    assert found.to_table(filter=pc.field("customer_id") > name).num_rows == 0


def test_statistics_with_the_notes_name_stay_as_they_are(settings: Settings) -> None:
    fill(settings.lake)
    for file in files_of(settings.lake, Table.ACTIVITY):
        group = pq.read_metadata(file).row_group(0)
        (name,) = (group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == "name")
        assert (name.statistics.min, name.statistics.max) == (HOSTILE, HOSTILE)
        assert pq.read_table(file).column("name").unique().to_pylist() == [HOSTILE]


@pytest.mark.usefixtures("s3_server")
def test_files_on_s3_are_mended(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as before:
        before.setattr(footers, "repair_commit", lambda *_: 0)
        fill(settings.lake)
    client = s3.client()
    client.create_bucket(Bucket="lake")
    for file in Path(settings.lake).rglob("*"):
        if file.is_file():
            client.put_object(Bucket="lake", Key=str(file.relative_to(settings.lake)), Body=file.read_bytes())
    count = len(files_of(settings.lake, Table.ACTIVITY))

    assert footers.repair("s3a://lake", Table.ACTIVITY) == count

    assert footers.repair("s3a://lake", Table.ACTIVITY) == 0
    for name in files_of(settings.lake, Table.ACTIVITY):
        key = str(Path(name).relative_to(settings.lake))
        body = client.get_object(Bucket="lake", Key=key)["Body"].read()
        assert len(body) == Path(name).stat().st_size
        copy = tmp_path / "copy.parquet"
        copy.write_bytes(body)
        assert pq.read_schema(copy).field("customer_id").type == pa.string()


def test_one_of_several_customers_is_shown(settings: Settings) -> None:
    rows = [{"customer_id": f"C-{number}", "name": f"name {number}"} for number in range(3)]
    rows_merged = pa.Table.from_pylist(rows, arrow_schema(Table.PROFILES))
    merging.merge(rows_merged, settings.lake, Table.PROFILES, MicroBatch(Query.PROFILES, "g", 0), key=["customer_id"])
    profile = show.customer(settings.lake, "C-1").profile
    assert profile is not None
    assert profile["name"] == "name 1"


def test_what_a_replay_left_in_quarantine_is_chosen_by_its_reason(settings: Settings) -> None:
    left = {"topic": PURCHASES, "partition": 0, "kafka_timestamp": datetime(2026, 1, 1, tzinfo=UTC)}
    record = purchase("P-0", currency="USD")
    rows = [
        {**left, "offset": 0, "key": record.key, "value": record.value, "reason": Reason.CURRENCY_MISMATCH},
        {**left, "offset": 1, "key": b"P-1", "value": b"{", "reason": Reason.NOT_JSON},
        {**left, "offset": 2, "key": b"P-2", "value": b"{}", "reason": Reason.MISSING_FIELD},
    ]
    tables.append(settings.lake, Table.QUARANTINE, *rows)
    mended = settings.model_copy(update={"currency": "USD"})
    assert replay.replay(mended, Selection(Reason.CURRENCY_MISMATCH), "it was dollars").accepted == {PURCHASES: 1}
    assert text_types(settings.lake, Table.QUARANTINE, "reason") == {pa.string()}
    (group,) = contents.groups(settings.lake, Selection(Reason.NOT_JSON))
    assert group.records == 1
