"""What a commit is to its readers, and what a named operation commits with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from customer_activity.catalog import Table, lease_id, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import LeaseLost
from customer_activity.lake import named_operations
from customer_activity.lake.named_operations import Kind, Operation, classify
from customer_activity.lease import lease
from support import tables
from support.streams import Query

TABLE = Table.PURCHASES
ADD = {"add": {"path": "a.parquet", "size": 1, "dataChange": True}}
REMOVE = {"remove": {"path": "b.parquet", "dataChange": True}}
MOVED = [
    {"add": {"path": "c.parquet", "size": 1, "dataChange": False}},
    {"remove": {"path": "b.parquet", "dataChange": False}},
]
FENCED = {"txn": {"appId": lease_id(Query.SILVER), "version": 3}}
BATCH = {"query": "silver", "generation": "g", "batch_id": 1}


def said(note: object = None, **info: Any) -> dict[str, Any]:
    """Return the entry of a log that says who made a commit."""
    text = {} if note is None else {"userMetadata": note if isinstance(note, str) else json.dumps(note)}
    return {"commitInfo": info | text}


@pytest.mark.parametrize(
    ("actions", "kind"),
    [
        pytest.param([said(BATCH), ADD], Kind.APPEND, id="a query's rows"),
        pytest.param([said(BATCH)], Kind.APPEND, id="a query's batch without rows"),
        pytest.param([said({"query": "replay"}), ADD], Kind.APPEND, id="a replay"),
        pytest.param([said({"query": "maintenance"}), *MOVED], Kind.MAINTENANCE, id="our compaction"),
        pytest.param([said(), *MOVED], Kind.MAINTENANCE, id="somebody's compaction"),
        pytest.param([said(), {"metaData": {}}, {"protocol": {}}], Kind.MAINTENANCE, id="the table's properties"),
        pytest.param([said(), {"txn": {"appId": "x", "version": 1}}], Kind.MAINTENANCE, id="a transaction id alone"),
        pytest.param([], Kind.MAINTENANCE, id="nothing"),
        pytest.param([said(), ADD], Kind.FOREIGN, id="somebody's rows"),
        pytest.param([ADD], Kind.FOREIGN, id="rows without a word"),
        pytest.param([said("not JSON"), ADD], Kind.FOREIGN, id="a note that is no JSON"),
        pytest.param([said([1]), ADD], Kind.FOREIGN, id="a note that is no object"),
        pytest.param([said({"query": "nightly"}), ADD], Kind.FOREIGN, id="a writer that is none of ours"),
        pytest.param([said({"query": 1}), ADD], Kind.FOREIGN, id="a writer that is no name"),
        pytest.param([said(BATCH), ADD, REMOVE], Kind.FOREIGN, id="our note, and rows removed"),
        pytest.param([said(BATCH), REMOVE], Kind.FOREIGN, id="our note, and nothing but rows removed"),
        pytest.param([said(), REMOVE], Kind.FOREIGN, id="a DELETE"),
        pytest.param([said(BATCH), {"cdc": {"path": "d"}}], Kind.FOREIGN, id="change files"),
        pytest.param([said({"query": "maintenance"}), ADD], Kind.FOREIGN, id="maintenance that changes rows"),
        pytest.param([said(), {"add": {"path": "a"}}], Kind.FOREIGN, id="a file that does not say whether"),
        pytest.param([said({"operation": "correction"}), FENCED, ADD, REMOVE], Kind.OPERATION, id="a correction"),
        pytest.param([said({"operation": "erasure"}), FENCED, REMOVE], Kind.OPERATION, id="an erasure"),
        pytest.param([said({"operation": "archiving"}), FENCED, REMOVE], Kind.OPERATION, id="an archiving"),
        pytest.param([said({"operation": "erasure"}), REMOVE], Kind.FOREIGN, id="an operation without an epoch"),
        pytest.param([said({"operation": "tidy"}), FENCED, REMOVE], Kind.FOREIGN, id="an operation of another name"),
        pytest.param([said({"operation": ["erasure"]}), FENCED, REMOVE], Kind.FOREIGN, id="a name that is none"),
    ],
)
def test_what_a_commit_is(actions: list[dict[str, Any]], kind: Kind) -> None:
    found = classify(actions)
    assert found.kind is kind
    assert (found.operation is None) == (kind is not Kind.OPERATION)


def test_what_a_reader_needs_of_a_commit() -> None:
    moved = {"add": {"path": "e.parquet", "size": 1, "dataChange": False}}
    found = classify([said(BATCH), ADD, moved])
    assert (found.query, found.note, [add["path"] for add in found.adds]) == ("silver", BATCH, ["a.parquet"])


def test_what_somebody_else_says_of_a_commit_is_shown_harmless_and_short() -> None:
    said_so = classify([said(operation="DELETE\x1b[31m\n", engineInfo="x" * 5000, userName=None), REMOVE]).described_by
    assert said_so.startswith("DELETE\\x1b[31m\\x0a, xxx")
    assert said_so.isprintable()
    assert len(said_so) < 300


def commit(lake: str, properties: CommitProperties, rows: int = 1) -> dict[str, Any]:
    """Overwrite a table, and return its newest entry as a reader sees it."""
    data = pa.Table.from_pylist([{"purchase_id": "p"}] * rows, arrow_schema(TABLE))
    write_deltalake(table_path(lake, TABLE), data, mode="overwrite", commit_properties=properties)
    text = tables.entry(lake, TABLE, tables.newest(lake, TABLE)).read_text()
    return classify([json.loads(line) for line in text.splitlines()])._asdict()


def test_a_named_operation_is_fenced_and_audited(lake: str) -> None:
    with named_operations.fenced(lake, Operation.CORRECTION, [TABLE], "wrong cents", rows=1) as fence:
        found = commit(lake, fence.properties(TABLE, rows=1))
    assert (found["kind"], found["operation"]) == (Kind.OPERATION, Operation.CORRECTION)
    assert found["note"] == {"operation": "correction", "id": fence.run, "reason": "wrong cents", "rows": 1}
    assert tables.opened(lake, TABLE).transaction_version(lease_id(Query.SILVER)) == 1
    (deed,) = (json.loads(path.read_text()) for path in Path(lake, "_audit").iterdir())
    assert (deed["what"], deed["id"], deed["tables"]) == ("correction", fence.run, ["silver.purchases"])


def test_the_same_change_without_the_fence_is_foreign(lake: str) -> None:
    note = {"operation": "correction"}
    found = commit(lake, CommitProperties(custom_metadata={"userMetadata": json.dumps(note)}))
    assert found["kind"] is Kind.FOREIGN


def test_an_operation_that_lost_its_lease_commits_nothing(lake: str) -> None:
    with named_operations.fenced(lake, Operation.ERASURE, [TABLE], "asked for") as fence:
        taken = CommitProperties(app_transactions=[Transaction(lease_id(Query.SILVER), 7)])
        write_deltalake(
            table_path(lake, TABLE), arrow_schema(TABLE).empty_table(), mode="append", commit_properties=taken
        )
        with pytest.raises(LeaseLost):
            fence.properties(TABLE)


def test_an_operation_keeps_every_writer_out(lake: str) -> None:
    with named_operations.fenced(lake, Operation.ERASURE, [Table.QUARANTINE, TABLE], "asked for"):
        held = {query for query in Query if lease.newest_epoch(lake, query)}
    assert held == {Query.BRONZE, Query.SILVER, Query.GOLD, Query.PUBLISH}
