"""The recipes of docs/ANALYSTS.md give the right rows, run from the page as printed."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import delta, merging
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.maintenance import maintenance
from customer_activity.settings import PROJECT, Settings
from support import tables
from support.addresses import free_port
from support.shell import environment

PAGE = (PROJECT / "docs" / "ANALYSTS.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SINCE = datetime(2017, 7, 1, tzinfo=UTC)
SERVER_SECONDS = 300
BASH = "/bin/bash"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a lake where the page says, and with what set-up has made."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in (".venv", ".jars", "infra"):
        (folder / name).symlink_to(PROJECT / name)
    lake = str(folder / "var" / "lake")
    topology.switch_on(["masked"])
    delta.ensure_tables(lake)
    topology.switch_on([])
    written: list[list[str | None]] = [["20095", "22765", None], ["45290"]]
    for number, postcodes in enumerate(written):
        rows = [
            {"customer_id": f"C-{number}-{place}", "postcode": postcode, "view_version": 1}
            for place, postcode in enumerate(postcodes)
        ]
        source = pa.Table.from_pylist(rows, arrow_schema(Table.ACTIVITY_MASKED))
        merging.merge(source, lake, Table.ACTIVITY_MASKED, MicroBatch("masked", "g", number), key=["customer_id"])
    bought = [
        ("C-0-0", "PR-1", "2.50", 0),
        ("C-0-1", "PR-1", "3.75", 1),
        ("C-0-1", "PR-2", "9.00", 1),
        ("C-0-0", "PR-2", "1.00", -1),  # before
        ("C-0-2", "PR-3", "50.00", 1),  # without a postcode
        ("C-1-0", "PR-4", "60.00", 1),  # elsewhere
        ("C-9", "PR-5", "70.00", 1),  # without a profile
    ]
    for number, (customer, product, amount, hours) in enumerate(bought):
        row = {
            "purchase_id": f"P-{number}",
            "customer_id": customer,
            "product_id": product,
            "amount": Decimal(amount),
            "occurred_at": SINCE + timedelta(hours=hours),
        }
        tables.append(lake, Table.PURCHASES, row)
    return folder


def blocks(recipe: str) -> list[str]:
    return [text for _, text in BLOCK.findall(RECIPES[recipe])]


def run(folder: Path, *command: str) -> str:
    """Run a command in the folder, with the settings that a checkout of its own has."""
    variables = environment(Settings(lake=str(folder / "var" / "lake"), run_dir=folder / "var" / "run"))
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def assert_right(told: str) -> None:
    """Two products, the one that brings more first; nothing of before, of elsewhere and of nobody."""
    first, second = (line for line in told.splitlines() if "PR-" in line)
    assert re.findall(r"PR-\d|\b\d+\.\d+\b|\b1\b", first)[-3:] == ["PR-2", "1", "9.00"]
    assert re.findall(r"PR-\d|\b\d+\.\d+\b|\b2\b", second)[-3:] == ["PR-1", "2", "6.25"]


@pytest.mark.parametrize("recipe", ["DuckDB", "Polars", "pandas", pytest.param("Spark SQL", marks=pytest.mark.nightly)])
def test_a_recipe_gives_the_right_rows(folder: Path, recipe: str) -> None:
    (program,) = blocks(recipe)
    assert_right(run(folder, sys.executable, "-c", program))


def test_a_reader_of_changes_goes_on_and_begins_again_when_it_was_away_for_too_long(folder: Path) -> None:
    (program,) = (text for _, text in BLOCK.findall(PAGE.partition("## Change feeds")[2]))
    lake = str(folder / "var" / "lake")

    def told(number: int) -> list[str]:
        if number:
            row = {"customer_id": f"C-8-{number}", "view_version": number}
            source = pa.Table.from_pylist([row], arrow_schema(Table.ACTIVITY_MASKED))
            merging.merge(source, lake, Table.ACTIVITY_MASKED, MicroBatch("masked", "g", number), key=["customer_id"])
        return re.findall(r"C-8-\d+|nothing new|all rows, because of: .*", run(folder, sys.executable, "-c", program))

    assert told(0) == ["all rows, because of: nothing was read yet"]
    assert told(0) == ["nothing new"]
    assert told(11) == ["C-8-11"]
    (folder / "var" / "read_upto.json").write_text(json.dumps({"version": 0}), encoding="utf-8")
    table = tables.opened(lake, Table.ACTIVITY_MASKED)
    table.create_checkpoint()
    assert maintenance.shorten(lake, Table.ACTIVITY_MASKED, 0) > 0
    assert told(0) == ["all rows, because of: External error: Invalid table version: 1", "C-8-11"]


@pytest.mark.nightly
def test_jdbc_gives_the_right_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/nowhere")  # of another Spark: it does not count
    serve, ask = blocks("JDBC: Spark's Thrift server")
    port = free_port()

    def is_up() -> bool:
        assert server.poll() is None, "the server has ended"
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    program = serve.replace("10000", str(port))
    with subprocess.Popen([BASH, "-c", program], cwd=folder, start_new_session=True) as server:
        try:
            Retrying(
                retry=retry_if_result(lambda up: not up), stop=stop_after_delay(SERVER_SECONDS), wait=wait_fixed(0.5)
            )(is_up)
            assert_right(run(folder, BASH, "-c", ask.replace("10000", str(port))))
        finally:
            with suppress(ProcessLookupError):  # it has ended: what failed above says more
                os.killpg(server.pid, signal.SIGTERM)


def test_what_was_not_run_says_so() -> None:
    (claims,) = [text for name, text in RECIPES.items() if name == "Not run here"]
    assert all(name in claims for name in ("Trino", "Superset", "Hive", "Unity", "Glue"))
    assert "never run" in claims
    assert "**not run here**" in RECIPES["DuckDB"]
    assert "delta_scan" not in "".join(blocks("DuckDB"))
