"""Rows that two relations of a database do not share, and what replaces them."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb


def find(database: duckdb.DuckDBPyConnection, name: str, key: Sequence[str], these: str, those: str) -> None:
    """Make tables of what two relations with the same columns do not share.

    `<name>_gone` has the rows that `these` has and `those` has not, `<name>_come` the others, repeats included;
    `<name>_keys` has their keys, each once.
    """
    for which, some, others in (("gone", these, those), ("come", those, these)):
        database.execute(f"CREATE OR REPLACE TEMP TABLE {name}_{which} AS FROM {some} EXCEPT ALL FROM {others}")
    keys = listed(key)
    both = f"SELECT {keys} FROM {name}_gone UNION SELECT {keys} FROM {name}_come"  # noqa: S608 - the names are ours
    database.execute(f"CREATE OR REPLACE TEMP TABLE {name}_keys AS {both}")


def of_keys(relation: str, keys: str, key: Sequence[str]) -> str:
    """Return a query for the rows of a relation whose keys are in another one; a null equals a null."""
    return f"SELECT r.* FROM {relation} AS r SEMI JOIN {keys} AS k ON {is_same(key)}"  # noqa: S608 - the names are ours


def is_same(key: Sequence[str]) -> str:
    """Return the condition that rows `r` and `k` have the same key; a null equals a null."""
    return " AND ".join(f'r."{name}" IS NOT DISTINCT FROM k."{name}"' for name in key)


def listed(columns: Sequence[str]) -> str:
    """Return columns as SQL lists them."""
    return ", ".join(f'"{column}"' for column in columns)


def count(database: duckdb.DuckDBPyConnection, relation: str) -> int:
    """Return how many rows a relation has."""
    return int(database.execute(f"SELECT count(*) FROM {relation}").fetchall()[0][0])  # noqa: S608 - the names are ours
