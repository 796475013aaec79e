"""A table that asks more of readers than Parquet files by name is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from customer_activity.catalog import Table, table_path
from customer_activity.errors import TerminalError
from customer_activity.lake import delta
from support.tables import entry, newest

FEATURES = ["deletionVectors", "columnMapping"]


@pytest.fixture
def lake(tmp_path: Path) -> str:
    path = str(tmp_path / "lake")
    delta.ensure_tables(path)
    return path


def switch_on(lake: str, table: Table, feature: str, *, with_checksum: bool) -> None:
    """Commit what `ALTER TABLE … SET TBLPROPERTIES` commits."""
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [feature],
        "writerFeatures": [feature, "appendOnly", "invariants", "changeDataFeed"],
    }
    log = Path(table_path(lake, table), "_delta_log")
    told = json.loads(max(log.glob("*.crc")).read_text())
    added = entry(lake, table, newest(lake, table) + 1)
    actions = [{"protocol": protocol}, {"commitInfo": {"timestamp": 0, "operation": "SET TBLPROPERTIES"}}]
    added.write_text("\n".join(map(json.dumps, actions)))
    if with_checksum:
        added.with_suffix(".crc").write_text(json.dumps(told | {"protocol": protocol}))


@pytest.mark.parametrize("with_checksum", [True, False], ids=["with a checksum", "without"])
@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("table", [Table.PURCHASES, Table.ACTIVITY])
def test_features_that_readers_must_know_are_refused(
    lake: str, table: Table, feature: str, *, with_checksum: bool
) -> None:
    switch_on(lake, table, feature, with_checksum=with_checksum)
    with pytest.raises(TerminalError, match=f"{table.label}: somebody has switched on a feature"):
        delta.ensure_tables(lake)
