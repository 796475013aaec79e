"""What the README says about querying gold works as printed, on files that were merged, deleted from, compacted."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import delta, merging
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.maintenance import maintenance
from customer_activity.settings import PROJECT
from support.streams import Query

README = (PROJECT / "README.md").read_text(encoding="utf-8")
SECTION = README.partition("## Query gold")[2].partition("\n## ")[0]
COMMANDS = re.findall(r"^\.venv/bin/python (-c .*)$", SECTION, re.MULTILINE)
ASKED = "customer_id"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a lake where the README says."""
    folder = tmp_path_factory.mktemp("checkout")
    lake = str(folder / "var" / "lake")
    delta.ensure_tables(lake)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    for number, customers in enumerate((["1", "2", "3"], ["4", "5"], ["2", "4"])):
        rows = [
            {
                "customer_id": customer,
                "name": f"name of {customer}",
                "loyalty_status": "gold",
                "purchase_count": 1,
                "total_amount": Decimal("7.50"),
                "as_of": now,
            }
            for customer in customers
        ]
        source = pa.Table.from_pylist(rows, arrow_schema(Table.ACTIVITY))
        is_last = number == 2
        batch = MicroBatch(Query.ACTIVITY, "g", number)
        delete_when = "s.loyalty_status = 'gold'" if is_last else None
        merging.merge(source, lake, Table.ACTIVITY, batch, key=["customer_id"], delete_when=delete_when)
    maintenance.compact(lake, Table.ACTIVITY)
    return folder


def test_the_readme_asks_for_a_customer_in_each_engine() -> None:
    asked = [command for command in COMMANDS if ASKED in command]
    assert all(any(engine in command for command in asked) for engine in ("polars", "to_pandas", "duckdb"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_query_of_the_readme_works_as_printed(folder: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, *shlex.split(command)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if ASKED in command:
        assert "name of 1" in done.stdout
        assert "name of 3" not in done.stdout
