"""`activity show`: one customer, as gold and silver have it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.inspection import tables

LAST_PURCHASES, LAST_WINDOWS = 10, 7


class Customer(NamedTuple):
    """What the tables hold about one customer."""

    customer_id: str
    gold: dict[str, Any] | None  # the row of gold.customer_activity
    profile: dict[str, Any] | None  # the row of silver.customer_profiles
    summary: dict[str, Any] | None  # the row of silver.purchase_summaries
    purchases: list[dict[str, Any]]  # the newest rows of silver.purchases, newest first
    explanation: str  # one sentence: why there is a row in gold, or why not
    is_known: bool  # whether anything is known of the customer at all
    # By label of a table that is on: the newest windows, and late purchases; newest first.
    windows: Mapping[str, list[dict[str, Any]]] = MappingProxyType({})


def customer(lake: str, customer_id: str) -> Customer:
    """Look a customer up; only files that may hold the customer are read."""
    if not _is_text(customer_id):
        return Customer(customer_id, None, None, None, [], _explanation(None, None, 0, []), is_known=False)
    gold = _row(lake, Table.ACTIVITY, customer_id)
    profile = _row(lake, Table.PROFILES, customer_id)
    summary = _row(lake, Table.SUMMARIES, customer_id)
    bought = _rows(lake, Table.PURCHASES, customer_id)
    bought.sort(key=lambda row: (row["occurred_at"], row["offset"]), reverse=True)
    updates = [] if profile else _rows(lake, Table.PROFILE_EVENTS, customer_id, ["offset", "is_tombstone"])
    is_known = any((gold, profile, summary, bought, updates))
    explanation = _explanation(gold, profile, len(bought), updates)
    purchases = bought[:LAST_PURCHASES]
    return Customer(customer_id, gold, profile, summary, purchases, explanation, is_known, windows(lake, customer_id))


def windows(lake: str, customer_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return by label of a table that is on a customer's newest windows, and late purchases; newest first."""
    if not _is_text(customer_id):
        return {}
    return {
        table.label: sorted(rows, key=lambda row: str(row[_order(table)]), reverse=True)[:LAST_WINDOWS]
        for table in tables_of_windows()
        if (rows := _rows(lake, table, customer_id))
    }


def tables_of_windows() -> list[Table]:
    """Return the tables that are on whose rows are a customer's windows, or tell of one."""
    return [table for table in topology.tables() if _order(table)]


def _order(table: Table) -> str:
    """Return the column that has a table's windows in order; empty where it has none."""
    if "window_start" not in (names := arrow_schema(table).names):
        return ""
    return "window_start" if "is_final" in names else "occurred_at"


def _is_text(argument: str) -> bool:
    """Whether an argument was given in UTF-8: bytes that are not are half characters, which no id has."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _rows(lake: str, table: Table, customer_id: str, columns: list[str] | None = None) -> list[dict[str, Any]]:
    opened = tables.open_table(lake, table)
    if opened is None:
        return []
    data = opened.to_pyarrow_dataset()
    names = columns or data.schema.names
    # What a merge wrote has texts as views, which Arrow cannot compare with a text: the statistics choose the files,
    # and the rows are compared as texts.
    of_customer = pc.field("customer_id").cast(pa.string()) == customer_id
    found = [
        part.to_table(schema=data.schema, columns=names, filter=of_customer)
        for part in data.get_fragments(pc.field("customer_id") == customer_id)
    ]
    # A lake that was not brought up to this release lacks columns.
    blank = dict.fromkeys(arrow_schema(table).names if columns is None else ())
    return [blank | row for rows in found for row in rows.to_pylist()]


def _row(lake: str, table: Table, customer_id: str) -> dict[str, Any] | None:
    return next(iter(_rows(lake, table, customer_id)), None)


def _explanation(
    gold: dict[str, Any] | None, profile: dict[str, Any] | None, purchases: int, updates: list[dict[str, Any]]
) -> str:
    """Say in one sentence why there is a row in gold or not; `updates` are bronze's, without a current profile."""
    if gold is not None:
        as_of = f"{gold['as_of']:%Y-%m-%d %H:%M:%S} UTC"
        follows = "" if profile is not None else "; the profile is gone from silver and gold has still to follow"
        return f"in gold as of {as_of}, version {gold['view_version']}{follows}"
    if profile is not None:
        return "the profile is in silver and gold has still to follow"
    waiting = f"{purchases:,} purchase{'s wait' if purchases != 1 else ' waits'} in silver"
    if updates:
        if not max(updates, key=lambda update: update["offset"])["is_tombstone"]:
            return "a profile has landed in bronze and silver has still to follow"
        comeback = f"; {waiting}, and a new profile brings them back" if purchases else ""
        return f"the profile was deleted, so there is no row in gold{comeback}"
    if purchases:
        return f"no profile has come yet, so there is no row in gold; {waiting} for it"
    return "nothing is known of this customer: no profile and no purchase has come"
