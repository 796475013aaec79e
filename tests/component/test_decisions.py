"""What was decided for landings, read from its table: whatever its files are, and however much a decision says."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine.decisions import Decisions
from customer_activity.lake import delta

AT = datetime(2026, 1, 1, tzinfo=UTC)
READING = """
import sys
import pyarrow as pa
from customer_activity.catalog import Table
from customer_activity.engine.decisions import Decisions

found = Decisions.stored(sys.argv[1], Table.ROUTING_RULES).rows.to_pylist()
print([(each["landing"], each["rules"]) for each in found])
print(pa.default_memory_pool().max_memory())
"""


@pytest.fixture
def routing(lake: str) -> Iterator[str]:
    """Return a lake with routing on."""
    topology.switch_on(["routing"])
    delta.ensure_tables(lake)
    yield lake
    topology.switch_on([])


def decided(landings: Sequence[int], versions: Sequence[str], text: str = "") -> pa.Table:
    """Return what was in force for the landings up to each of these."""
    texts = pa.array([text + version for version in dict.fromkeys(versions)])
    codes = {version: number for number, version in enumerate(dict.fromkeys(versions))}
    rules = pa.DictionaryArray.from_arrays(pa.array([codes[each] for each in versions]), texts)
    columns = {"landing": landings, "rules_version": versions, "rules": rules, "decided_at": [AT] * len(landings)}
    return pa.table(columns).cast(arrow_schema(Table.ROUTING_RULES))


@pytest.mark.parametrize("seed", range(4))
def test_they_are_in_the_order_of_landings_whatever_the_files_are(routing: str, seed: int) -> None:
    chance = random.Random(seed)
    landings = sorted(chance.sample(range(200), 60))
    versions = [chance.choice("ab") if number % 5 == 0 else "a" for number in range(60)]
    rows = decided(landings, versions)
    shuffled = chance.sample(range(60), 60)
    for some in (shuffled[:7], shuffled[7:40], shuffled[40:]):  # as compaction leaves them
        write_deltalake(table_path(routing, Table.ROUTING_RULES), rows.take(some), mode="append")
    found = Decisions.stored(routing, Table.ROUTING_RULES)
    assert found.rows == Decisions.none(Table.ROUTING_RULES).with_rows(rows).rows
    asked = np.arange(landings[-1] + 1)
    wanted = [versions[int(number)] for number in np.searchsorted(landings, asked)]
    assert found.at(asked).column("rules_version").to_pylist() == wanted
    assert found.newest == landings[-1]


def test_what_is_in_force_is_held_once_and_not_once_a_landing(routing: str) -> None:
    landings = list(range(20_000))
    versions = ["one"] * 12_000 + ["two"] * 8_000
    text = "rule " * 2_000  # with each landing: 200 MB of them
    for begin in range(0, len(landings), 5_000):
        rows = decided(landings[begin : begin + 5_000], versions[begin : begin + 5_000], text)
        write_deltalake(table_path(routing, Table.ROUTING_RULES), rows, mode="append")
    said, peak = subprocess.run(  # a process of its own, whose memory nothing else has been in
        [sys.executable, "-c", READING, routing], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert said == f"[(11999, '{text}one'), (19999, '{text}two')]"
    assert int(peak) < 60_000_000
