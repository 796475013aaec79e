"""The local index: rows and place change together, keys are whole, and a file of no use is made again."""

from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import IndexDamaged
from customer_activity.lake import delta
from customer_activity.lake.datafiles import FileWriter
from customer_activity.lake.deltalog import Position
from customer_activity.maintenance import maintenance
from customer_activity.settings import Settings
from customer_activity.state.index import Index
from customer_activity.state.keyed import NEWEST
from customer_activity.state.local import LocalState
from customer_activity.streams.silver import purchases
from customer_activity.streams.silver import state as past
from customer_activity.streams.silver.purchases import First
from support.tables import append

WORDS = "CREATE TABLE IF NOT EXISTS word (text TEXT PRIMARY KEY);"


def words(index: Index) -> list[str]:
    return [text for (text,) in index.connection.execute("SELECT text FROM word ORDER BY text")]


AT = Position("t", 3, "abc")


def test_rows_and_place_change_together_or_not_at_all(tmp_path: Path) -> None:
    index = Index(tmp_path / "a.db", WORDS)
    with index.change() as connection:
        connection.execute("INSERT INTO word VALUES ('one')")
        index.advance(Table.PURCHASES, AT)

    def fail_half_way() -> None:
        with index.change() as connection:
            connection.execute("INSERT INTO word VALUES ('two')")
            index.advance(Table.PURCHASES, Position("t", 4, "def"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    index.close()

    again = Index(tmp_path / "a.db", WORDS)
    assert (words(again), again.position(Table.PURCHASES)) == (["one"], AT)
    assert again.position(Table.PROFILE_CHANGES) is None


@pytest.mark.parametrize(
    ("tables", "seeds"),
    [(WORDS.replace("text TEXT", "text TEXT, more TEXT"), ["SELECT 1"]), (WORDS, ["SELECT 1, 2"]), (WORDS, [])],
    ids=["a column more", "another query", "none"],
)
def test_an_index_that_other_sql_has_made_is_made_again(tmp_path: Path, tables: str, seeds: list[str]) -> None:
    index = Index(tmp_path / "a.db", WORDS, ["SELECT 1"])
    index.connection.execute("INSERT INTO word VALUES ('one')")
    index.close()
    same = Index(tmp_path / "a.db", WORDS, ["SELECT 1"])
    assert words(same) == ["one"]
    same.close()
    assert words(Index(tmp_path / "a.db", tables, seeds)) == []


@pytest.mark.parametrize("damage", ["of another release", "no database"])
def test_an_index_of_no_use_is_made_again(tmp_path: Path, damage: str) -> None:
    index = Index(tmp_path / "a.db", WORDS)
    with index.change() as connection:
        connection.execute("INSERT INTO word VALUES ('one')")
        index.advance(Table.PURCHASES, AT)
        connection.execute("PRAGMA user_version=1")
    index.close()
    if damage == "no database":
        (tmp_path / "a.db").write_bytes(b"what is this" * 1000)
    again = Index(tmp_path / "a.db", WORDS)
    assert words(again) == []
    assert again.position(Table.PURCHASES) is None


def test_an_index_stays_that_cannot_be_opened_for_another_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index(tmp_path / "a.db", WORDS).close()

    def full(_: Index) -> sqlite3.Connection:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Index, "_open", full)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        Index(tmp_path / "a.db", WORDS)
    assert (tmp_path / "a.db").exists()


def test_damage_that_is_met_later_ends_the_batch_and_is_gone_at_the_next_start(tmp_path: Path) -> None:
    index = Index(tmp_path / "a.db", WORDS)
    with index.change() as connection:
        connection.executemany("INSERT INTO word VALUES (?)", ((f"word {number:06}",) for number in range(20_000)))
        index.advance(Table.PURCHASES, AT)
    index.close()
    size = (tmp_path / "a.db").stat().st_size
    with (tmp_path / "a.db").open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size // 4))
    damaged = Index(tmp_path / "a.db", WORDS)
    with pytest.raises(IndexDamaged, match="start again"):
        damaged.rows(
            "SELECT text FROM word WHERE text IN (SELECT key FROM wanted)", [f"word {n:06}" for n in range(20_000)]
        )
    again = Index(tmp_path / "a.db", WORDS)
    assert (words(again), again.position(Table.PURCHASES)) == ([], None)


def test_keys_are_looked_up_whole(tmp_path: Path) -> None:
    odd = ["A", "A\x00", "A\x00B", "\x00", "é", "e\u0301", "\U0001f600"]
    index = Index(tmp_path / "a.db", WORDS)
    with index.change() as connection:
        connection.executemany("INSERT INTO word VALUES (?)", ((key,) for key in odd[1:]))
    found = index.rows("SELECT text FROM wanted JOIN word ON text = key", odd)
    assert {text for (text,) in found} == set(odd[1:])


def bought(number: int) -> dict[str, object]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    content = {"customer_id": "C-1", "amount": Decimal("1.50"), "currency": "EUR", "occurred_at": now}
    return {"purchase_id": f"P-{number}", **content, "partition": 0, "offset": number, "kafka_timestamp": now}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return a lake whose silver.purchases has three commits with two purchases each."""
    settings = Settings(lake=str(tmp_path / "lake"))
    delta.ensure_tables(settings.lake)
    for number in range(3):
        append(settings.lake, Table.PURCHASES, bought(2 * number), bought(2 * number + 1))
    return settings


def opened(settings: Settings) -> LocalState:
    """Open silver's state, with the purchases as they are in the table."""
    ids = {table: delta.table_id(settings.lake, table) for table in topology.tables()}
    state = LocalState(settings, "silver", ids, past.NEEDS)
    state.bring({Table.PURCHASES: NEWEST})
    return state


def test_an_index_takes_what_the_table_has(settings: Settings) -> None:
    state = opened(settings)
    (first,) = past.counted(state, ["P-4", "P-9"]).values()
    assert (first.partition, first.offset) == (0, 4)
    append(settings.lake, Table.PURCHASES, bought(9))
    state.close()

    again = opened(settings)
    assert set(past.counted(again, (f"P-{n}" for n in range(12)))) == {f"P-{n}" for n in (*range(6), 9)}


def test_what_is_seeded_from_the_table_is_what_a_batch_notes(settings: Settings) -> None:
    """The digest of a content is the same in both languages: else each repeat would be a conflict."""
    odd = [
        bought(10) | {"product_id": "X", "amount": Decimal("0.10")},
        bought(11) | {"amount": Decimal("9999999999999999.99"), "customer_id": "Ünï'\"\u2028"},
        bought(12) | {"occurred_at": datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC), "product_id": ""},
        bought(13) | {"occurred_at": datetime(1970, 1, 1, tzinfo=UTC), "amount": Decimal(0)},
    ]
    append(settings.lake, Table.PURCHASES, *odd)
    state = opened(settings)
    rows = DeltaTable(table_path(settings.lake, Table.PURCHASES)).to_pyarrow_table()
    wanted = dict(purchases.firsts(rows.select(list(purchases.COLUMNS))))
    assert past.counted(state, wanted) == wanted
    assert len(wanted) == 10


def test_a_commit_of_silver_moves_the_index_with_it(settings: Settings) -> None:
    state = opened(settings)
    version = append(settings.lake, Table.PURCHASES, bought(7), commit="an attempt")
    with state.change() as connection:
        past.add_purchases(connection, [("P-7", First(0, 7, b"?"))])
        state.advance(Table.PURCHASES, version, "an attempt")
    state.close()
    again = opened(settings)
    assert past.counted(again, ["P-7"]) == {"P-7": First(0, 7, b"?")}  # not read again: it is where the table is


def test_a_file_tells_its_rows_and_bounds(settings: Settings) -> None:
    writer = FileWriter(settings.lake, Table.PURCHASES)
    assert writer.close() is None
    rows = pa.Table.from_pylist([bought(1), bought(2)], schema=arrow_schema(Table.PURCHASES))
    writer.write(rows)
    file = writer.close()
    assert file is not None
    assert (file.rows, file.size) == (2, (Path(table_path(settings.lake, Table.PURCHASES)) / file.path).stat().st_size)
    assert '"kafka_timestamp": "2026-01-01T00:00:00.000Z"' in file.stats


def test_a_log_that_has_grown_gets_a_checkpoint(settings: Settings) -> None:
    last = Path(table_path(settings.lake, Table.PURCHASES)) / "_delta_log" / "_last_checkpoint"
    maintenance.checkpoint_log(settings.lake, Table.PURCHASES, every=4)
    assert not last.exists()  # three commits after the first
    maintenance.checkpoint_log(settings.lake, Table.PURCHASES, every=3)
    assert json.loads(last.read_text())["version"] == 3
    written = last.stat().st_mtime_ns
    maintenance.checkpoint_log(settings.lake, Table.PURCHASES, every=2)
    assert last.stat().st_mtime_ns == written
