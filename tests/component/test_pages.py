"""Pages say what the code does: contract tables, reasons, settings, commands."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.main import get_group

from customer_activity import cli, topology
from customer_activity.catalog import Reason, Table
from customer_activity.contracts import pages, schema
from customer_activity.contracts.tables import arrow_schema
from customer_activity.inspection import settings_page, tables_page
from customer_activity.settings import PREFIX, SECRETS, Settings

DECIMAL = "decimal128(18, 2)"
PROJECT = Path(__file__).parents[2]
CONTRACTS = (PROJECT / "docs" / "CONTRACTS.md").read_text(encoding="utf-8")
SETTINGS = (PROJECT / "docs" / "SETTINGS.md").read_text(encoding="utf-8")
TABLES_PAGE = (PROJECT / "docs" / "TABLES.md").read_text(encoding="utf-8")
README = (PROJECT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("contract", schema.CONTRACTS, ids=lambda contract: contract.title)
def test_the_contracts_page_has_the_schema_as_it_is(contract: schema.Contract) -> None:
    assert pages.markdown_table(contract).strip() in CONTRACTS


@pytest.mark.parametrize("reason", list(Reason), ids=str)
def test_every_reason_is_explained(reason: Reason) -> None:
    assert f"| `{reason.value}` |" in CONTRACTS


@pytest.mark.parametrize(
    ("contract", "table"),
    [
        pytest.param(schema.PURCHASE_EVENT, Table.PURCHASE_EVENTS, id="purchases as they landed"),
        pytest.param(schema.PURCHASE_EVENT, Table.PURCHASES, id="purchases that count"),
        pytest.param(schema.CUSTOMER_PROFILE, Table.PROFILE_EVENTS, id="profiles as they landed"),
        pytest.param(schema.CUSTOMER_PROFILE, Table.PROFILES, id="current profiles"),
        pytest.param(schema.CUSTOMER_ACTIVITY, Table.ACTIVITY, id="gold"),
    ],
)
def test_a_table_has_the_columns_of_its_contract(contract: schema.Contract, table: Table) -> None:
    columns = {field.name: str(field.type) for field in arrow_schema(table)}
    for field in contract.fields:
        expected = {"string": "string", "bigint": "int64", "timestamp": "timestamp[us, tz=UTC]"}
        assert columns[field.column] == expected.get(field.sql_type, field.sql_type.replace("decimal(18,2)", DECIMAL))


def test_the_settings_page_has_the_settings_as_they_are() -> None:
    assert settings_page.rewritten(SETTINGS) == SETTINGS, settings_page.__doc__


def test_the_tables_page_has_the_tables_as_they_are_declared() -> None:
    assert tables_page.rewritten(TABLES_PAGE) == TABLES_PAGE, tables_page.__doc__


def test_a_table_tells_its_grain_who_writes_it_and_what_its_columns_mean() -> None:
    found = TABLES_PAGE.partition("### silver.unpaid_purchases\n")[2].partition("###")[0]
    assert found.startswith("One row per purchase that was not paid in time;")
    assert "Current rows: merged by the optional `payments`." in found
    assert (
        "| `amount` | `decimal(18,2)` | Money paid for the line, at most 16 integer digits and 2 decimals. |" in found
    )
    assert "| `due_at` | `timestamp` | Until when it was to be paid. |" in found


def test_a_setting_tells_its_default_its_values_and_whether_it_names_secrets() -> None:
    rows = {row.split("`")[1]: row for row in settings_page.markdown_table().splitlines()[2:]}
    assert sorted(rows) == sorted(f"{PREFIX}{name.upper()}" for name in Settings.model_fields)
    assert next(iter(rows)) == "ACTIVITY_PIPELINE"
    assert list(rows).index("ACTIVITY_JARS_DIR") < list(rows).index("ACTIVITY_STREAMS"), "optional streams come last"
    assert rows["ACTIVITY_MAX_BAD_SHARE"].startswith("| `ACTIVITY_MAX_BAD_SHARE` | `0.05` | number, ≥ 0, ≤ 1 | Share ")
    assert "| `.jars` in the project | path |" in rows["ACTIVITY_JARS_DIR"]
    assert "| not set | text, matches `^https?://[^/]+$` |" in rows["ACTIVITY_S3_ENDPOINT"]
    assert {name for name, row in rows.items() if "secrets" in row} == {f"{PREFIX}{n.upper()}" for n in SECRETS}


def test_a_setting_of_a_closed_list_tells_each_of_its_values() -> None:
    rows = {row.split("`")[1]: row for row in settings_page.markdown_table().splitlines()[2:]}
    assert "| `auto` | `auto`, `driver` or `executors` |" in rows["ACTIVITY_PLACEMENT"]
    assert "| `text` | `text` or `json` |" in rows["ACTIVITY_LOG_FORMAT"]
    default, values = (cell.strip() for cell in rows["ACTIVITY_STREAMS"].split("|")[2:4])
    assert default == "empty"
    assert values.startswith("any of `masked`, ")
    assert values.split("`")[1::2] == [spec.name for spec in topology.optional()]


def test_every_command_has_help_and_the_main_ones_are_in_the_readme() -> None:
    group, context = get_group(cli.app), Mock()
    commands = [group.get_command(context, name) for name in group.list_commands(context)]
    assert all(command is not None and command.help for command in commands)
    for name in ("status", "show", "verify", "describe", "doctor"):
        assert f"activity {name}" in README
