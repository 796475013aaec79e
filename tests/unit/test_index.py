"""The local index: at a version or behind it, never ahead; and made anew when it is of no use."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from customer_activity import maintenance
from customer_activity.catalog import Table, table_path
from customer_activity.datafiles import FileWriter, arrow_schema, in_parts
from customer_activity.index import NEVER, Index, appended
from customer_activity.settings import Settings
from customer_activity.silver.index import SilverIndex
from customer_activity.silver.purchases import First

WORDS = "CREATE TABLE IF NOT EXISTS word (text TEXT PRIMARY KEY);"


def words(index: Index) -> list[str]:
    return [text for (text,) in index.connection.execute("SELECT text FROM word ORDER BY text")]


def test_rows_and_version_change_together_or_not_at_all(tmp_path: Path) -> None:
    index = Index(tmp_path / "a.db", WORDS, ["t"])
    with index.change() as connection:
        connection.execute("INSERT INTO word VALUES ('one')")
        index.advance("t", 3)

    def fail_half_way() -> None:
        with index.change() as connection:
            connection.execute("INSERT INTO word VALUES ('two')")
            index.advance("t", 4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_half_way()
    index.close()

    again = Index(tmp_path / "a.db", WORDS, ["t"])
    assert (words(again), again.position("t")) == (["one"], 3)


@pytest.mark.parametrize("damage", ["of another table", "no database"])
def test_an_index_of_no_use_is_made_anew(tmp_path: Path, damage: str) -> None:
    index = Index(tmp_path / "a.db", WORDS, ["t"])
    with index.change() as connection:
        connection.execute("INSERT INTO word VALUES ('one')")
        index.advance("t", 3)
    index.close()
    if damage == "no database":
        (tmp_path / "a.db").write_bytes(b"what is this" * 1000)
    again = Index(tmp_path / "a.db", WORDS, ["u" if damage == "of another table" else "t"])
    assert words(again) == []
    assert again.position("u" if damage == "of another table" else "t") == NEVER


def bought(number: int) -> dict[str, object]:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return {
        "purchase_id": f"P-{number}",
        "customer_id": "C-1",
        "product_id": None,
        "amount": Decimal("1.50"),
        "currency": "EUR",
        "occurred_at": now,
        "partition": 0,
        "offset": number,
        "kafka_timestamp": now,
    }


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Return a lake whose silver.purchases has three versions with two purchases each."""
    settings = Settings(lake=str(tmp_path / "lake"))
    for version in range(3):
        rows = pa.Table.from_pylist(
            [bought(2 * version), bought(2 * version + 1)], schema=arrow_schema(Table.PURCHASES)
        )
        write_deltalake(
            table_path(settings.lake, Table.PURCHASES),
            rows,
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
        )
    return settings


@pytest.mark.parametrize(
    ("after", "upto", "numbers"),
    [
        pytest.param(NEVER, 2, [0, 1, 2, 3, 4, 5], id="everything"),
        pytest.param(NEVER, 1, [0, 1, 2, 3], id="everything up to a version"),
        pytest.param(0, 2, [2, 3, 4, 5], id="after a version"),
        pytest.param(1, 1 + 1, [4, 5], id="one version"),
    ],
)
def test_what_was_appended_between_versions(settings: Settings, after: int, upto: int, numbers: list[int]) -> None:
    columns = ("purchase_id", "partition", "offset", "amount", "occurred_at")
    rows = appended(settings.lake, Table.PURCHASES, after, upto, columns).read_all()
    assert sorted(rows.column("offset").to_pylist()) == numbers
    assert rows.schema.names == list(columns)
    assert rows.sort_by("purchase_id").num_rows == len(numbers)  # plain texts, which every function knows


def test_parts_hold_every_row_once(settings: Settings) -> None:
    reader = appended(settings.lake, Table.PURCHASES, NEVER, 2, ("offset",))
    parts = list(in_parts(reader, 3))
    assert sorted(offset for part in parts for offset in part.column("offset").to_pylist()) == list(range(6))


def test_an_index_that_is_behind_takes_what_the_table_has(settings: Settings) -> None:
    ids = {Table.PURCHASES: "p", Table.PROFILE_CHANGES: "c"}
    index = SilverIndex(settings, ids)
    index.catch_up(Table.PURCHASES)
    (first,) = index.counted(["P-4", "P-9"]).values()
    assert (first.partition, first.offset) == (0, 4)
    with index.change():  # a commit that the index follows, and is lost with a crash
        index.add_purchases([("P-9", First(0, 9, b"?"))])
        index.advance(Table.PURCHASES, 2)
    index.index.advance("p", 0)  # as if it had stayed at version 0
    index.close()

    again = SilverIndex(settings, ids)
    again.catch_up(Table.PURCHASES)
    assert set(again.counted(f"P-{n}" for n in range(6))) == {f"P-{n}" for n in range(6)}
    assert again.index.position("p") == 2


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
    maintenance.checkpoint(settings.lake, Table.PURCHASES, every=3)
    assert not last.exists()  # two commits after the first
    maintenance.checkpoint(settings.lake, Table.PURCHASES, every=2)
    assert json.loads(last.read_text())["version"] == 2
    written = last.stat().st_mtime_ns
    maintenance.checkpoint(settings.lake, Table.PURCHASES, every=2)
    assert last.stat().st_mtime_ns == written
