"""The rules' files: what is in them, and what a wrong one is told."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from customer_activity import topology
from customer_activity.catalog import Reason, Table, table_path
from customer_activity.contracts import PURCHASE_EVENT
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import SettingsError
from customer_activity.lake import delta
from customer_activity.quality import rules, snapshot
from customer_activity.quality.judging import expectation_of
from customer_activity.quality.rules import Severity
from customer_activity.quality.run import refuse_personal
from customer_activity.quality.snapshot import PERSONAL, variables
from customer_activity.settings import Settings
from support.streams import Query
from support.tables import append

RULE = """
rules:
  - rule: amounts_in_range
    severity: hold
    why: An amount is zero or more, so that totals grow.
    expect: {expect_column_values_to_be_between: {column: amount, min_value: 0}}
"""


def written(folder: Path, text: str, name: str = "silver/purchases") -> Path:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return folder


def test_every_table_has_a_file_and_every_rule_an_expectation(settings: Settings) -> None:
    suites = rules.load()
    of_tables = {suite.name for suite in suites if not suite.name.startswith("across/") and not suite.stream}
    tables = {table.value for table in topology.tables()}
    assert {table.value for query in Query for table in topology.spec(query).tables} <= of_tables <= tables
    of_optional = {(suite.stream, table.value) for suite in suites for table in Table if table.value == suite.name}
    written = {(spec.name, table.value) for spec in topology.optional() for table in spec.tables}
    assert {(stream, name) for stream, name in of_optional if stream} <= written
    for suite in suites:
        for rule in suite.rules:
            assert expectation_of(rule, variables(settings)).severity == (
                "critical" if rule.severity is Severity.HOLD else "warning"
            )


def test_no_query_brings_what_tells_about_a_person() -> None:
    """The outermost list of columns is what examples are made of; `run.py` refuses the same at run time."""
    for suite in rules.load():
        for rule in suite.rules:
            for query in filter(None, (rule.query, rule.look)):
                outermost = [part for part in re.split(r"\bSELECT\b", query) if part.strip()][-1]
                columns = re.split(r"\bFROM\b", outermost)[0]
                assert not PERSONAL & set(re.findall(r"[a-z_]+", columns)), rule.rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("rules: [", "while parsing", id="no yaml"),
        pytest.param("suite: {}", "no list of `rules`", id="no rules"),
        pytest.param(RULE.replace("hold", "panic"), "severity", id="no such severity"),
        pytest.param(RULE.replace("    severity: hold\n", ""), "severity", id="no severity"),
        pytest.param(RULE.replace("amounts_in_range", "Amounts in range"), "rule", id="no name"),
        pytest.param(RULE + "    colour: red\n", "colour", id="unknown key"),
        pytest.param(
            RULE + "    query: SELECT 1\n    frame: sums\n", "a query or a frame, not both", id="query and frame"
        ),
        pytest.param(RULE + "    frame: sums\n", "there is none of that name", id="no such frame"),
        pytest.param(
            RULE.replace(
                "{expect_column_values_to_be_between: {column: amount, min_value: 0}}", "{expect_nothing: {}}"
            ),
            "needs a table",
            id="looks at nothing",
        ),
    ],
)
def test_a_wrong_file_is_named_with_what_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)) as refused:
        rules.load(written(tmp_path, text))
    assert "silver/purchases.yaml" in str(refused.value)


def test_two_rules_of_one_name_are_refused(tmp_path: Path) -> None:
    written(tmp_path, RULE)
    with pytest.raises(SettingsError, match=r"rule amounts_in_range is in gold/x.yaml and in silver/purchases.yaml"):
        rules.load(written(tmp_path, RULE, "gold/x"))


def test_an_empty_folder_is_no_pass(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no rules in"):
        rules.load(tmp_path)


def test_a_query_names_the_columns_of_a_contract(tmp_path: Path) -> None:
    (suite,) = rules.load(written(tmp_path, RULE + "    query: FROM t AS a WHERE row($purchase(a)) = '$purchase'\n"))
    listed = ", ".join(f"a.{field.column}" for field in PURCHASE_EVENT.fields)
    assert suite.rules[0].query == f"FROM t AS a WHERE row({listed}) = '$purchase'"


def test_rows_of_a_release_before_have_nulls_in_the_columns_that_they_lack() -> None:
    with snapshot.database_of({"seen_by_gold.purchases": pa.table({"purchase_id": ["P-1"]})}) as database:
        found = database.sql("FROM seen_by_gold.purchases").to_arrow_table()
    assert set(found.column_names) == set(arrow_schema(Table.PURCHASES).names)
    assert found.select(["purchase_id", "product_id", "landing"]).to_pylist() == [
        {"purchase_id": "P-1", "product_id": None, "landing": None}
    ]


@pytest.mark.parametrize("folder", ["lake", "partition=3/lake", "la*k?e"])
def test_rows_are_those_of_the_files_wherever_the_lake_is(tmp_path: Path, folder: str) -> None:
    """DuckDB would have columns from the names of folders, and look for files by patterns."""
    lake = str(tmp_path / folder)
    delta.ensure_tables(lake)
    append(lake, Table.PURCHASES, {"purchase_id": "P-1", "partition": 0})
    shutil.copytree(lake, tmp_path / "lakee")
    pinned = snapshot.relation(DeltaTable(table_path(lake, Table.PURCHASES)))
    with snapshot.database_of({"seen_by_gold.purchases": pinned}) as database:
        found = database.sql('SELECT purchase_id, "partition" FROM seen_by_gold.purchases').fetchall()
    assert found == [("P-1", 0)]


@pytest.mark.parametrize(
    ("expect", "message"),
    [
        ("{expect_the_best: {column: amount}}", "expect_the_best"),
        ("{expect_column_values_to_be_between: {column: amount, least: 0}}", "expect_column_values_to_be_between"),
        ("{expect_column_values_to_be_in_set: {column: currency, value_set: [$money]}}", r"\$money"),
    ],
    ids=["no such expectation", "no such argument", "no such value"],
)
def test_an_expectation_that_cannot_be_made_is_named(
    tmp_path: Path, settings: Settings, expect: str, message: str
) -> None:
    text = RULE.replace("{expect_column_values_to_be_between: {column: amount, min_value: 0}}", expect)
    (suite,) = rules.load(written(tmp_path, text))
    with pytest.raises(SettingsError, match=message):
        expectation_of(suite.rules[0], variables(settings))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param([], {"bronze", "silver", "gold", "across"}, id="all"),
        pytest.param(["gold"], {"gold"}, id="a layer"),
        pytest.param(["silver.purchases", "gold/customer_activity"], {"silver", "gold"}, id="tables"),
    ],
)
def test_layers_and_tables_are_chosen_by_name(wanted: list[str], expected: set[str]) -> None:
    found = rules.chosen(rules.load(), wanted)
    assert {suite.name.partition("/")[0] for suite in found} == expected


def test_a_table_without_rules_is_told_what_there_is() -> None:
    with pytest.raises(SettingsError, match=r"no rules about platinum") as refused:
        rules.chosen(rules.load(), ["platinum"])
    assert "across, bronze, gold, silver" in refused.value.remedy


@pytest.mark.parametrize("column", ["name", "email", "address", "value"])
def test_a_query_that_brings_what_tells_about_a_person_is_refused(column: str) -> None:
    rule = next(rule for suite in rules.load() for rule in suite.rules if rule.query)
    with pytest.raises(SettingsError, match=f"{rule.rule} of .* identifies a person: {column}"):
        refuse_personal(pa.table({"customer_id": ["C-1"], column: ["secret"]}), rule)


def test_the_deployments_values_are_filled_in(settings: Settings) -> None:
    values = variables(settings)
    filled = rules.filled({"value_set": ["$reasons", "other"], "column": "x", "max_value": "$max_bad_share"}, values)
    assert filled == {"value_set": [*Reason, "other"], "column": "x", "max_value": 0.05}
