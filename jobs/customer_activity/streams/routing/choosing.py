"""Which route purchases take, by rules as they are stored: the first that matches decides. Pure steps, no IO.

Spark's executors import this module and need little for it: `rules.py`, which checks what people write, needs more.
"""

from __future__ import annotations

import json
from decimal import Decimal
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.contracts.columns import POSITION, ROUTED_FIELDS, names

NUMBER = pa.decimal128(38, 2)
TEXTS = [field.name for field in ROUTED_FIELDS if pa.types.is_string(field.type)]
NUMBERS = [field.name for field in ROUTED_FIELDS if pa.types.is_decimal(field.type) or pa.types.is_integer(field.type)]
COLUMNS = names([*ROUTED_FIELDS, *POSITION])
DEFAULT = "default"  # what the route without a rule is called


class Comparison(StrEnum):
    """How a column is compared."""

    EQUAL = "="
    UNEQUAL = "!="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    ONE_OF = "in"


ORDERED = {
    Comparison.LESS: pc.less,
    Comparison.AT_MOST: pc.less_equal,
    Comparison.GREATER: pc.greater,
    Comparison.AT_LEAST: pc.greater_equal,
}


class Condition(NamedTuple):
    """One comparison of a column with a value, or with several, of the column's kind."""

    column: str
    comparison: Comparison
    values: list[Decimal] | list[str]

    def holds(self, purchases: pa.Table) -> pa.ChunkedArray:
        """Return for which purchases it holds; for none whose value is missing."""
        kind = pa.string() if self.column in TEXTS else NUMBER
        column, values = purchases.column(self.column).cast(kind), pa.array(self.values, kind)
        if self.comparison in ORDERED:
            return pc.fill_null(ORDERED[self.comparison](column, values[0]), fill_value=False)
        is_in = pc.is_in(column, value_set=values)
        return pc.and_(pc.invert(is_in), pc.is_valid(column)) if self.comparison is Comparison.UNEQUAL else is_in


class Rule(NamedTuple):
    """Conditions that must all hold, and the route that they lead to."""

    name: str
    route: str
    conditions: list[Condition]

    def matches(self, purchases: pa.Table) -> pa.ChunkedArray:
        """Return which purchases it matches."""
        first, *others = (condition.holds(purchases) for condition in self.conditions)
        for each in others:
            first = pc.and_(first, each)
        return first


class Choice(NamedTuple):
    """Rules in their order, and the route where none matches."""

    rules: list[Rule]
    default: str

    def chosen(self, purchases: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Return for each purchase the name of the rule that decides, and the route that it leads to."""
        number = np.full(purchases.num_rows, len(self.rules))
        for at in reversed(range(len(self.rules))):  # the first one comes last, and wins
            number[self.rules[at].matches(purchases).to_numpy()] = at
        chosen = pa.array(number)
        rules, routes = [each.name for each in self.rules], [each.route for each in self.rules]
        return pa.array([*rules, DEFAULT]).take(chosen), pa.array([*routes, self.default]).take(chosen)


@cache
def stored(text: str) -> Choice:
    """Return rules as they were stored, by their text (`Rules.text`)."""
    document = json.loads(text)
    return Choice([_rule(each) for each in document["rules"]], document["default"])


def _rule(said: dict[str, Any]) -> Rule:
    return Rule(said["rule"], said["route"], [_condition(each) for each in said["when"]])


def _condition(said: dict[str, Any]) -> Condition:
    column, values = said["column"], said["values"]
    return Condition(column, Comparison(said["is"]), values if column in TEXTS else [Decimal(each) for each in values])


def routed(purchases: pa.Table, decided: pa.Table) -> pa.Table:
    """Choose each purchase's route. Grain: as given; columns of gold.routed_purchases.

    Args:
        purchases: the columns of COLUMNS.
        decided: for each purchase the rules that were in force when it landed.
    """
    texts, version = decided.column("rules").combine_chunks(), decided.column("rules_version")
    known = pc.unique(texts)
    chosen = [stored(text).chosen(purchases) for text in known.to_pylist()]
    which = pc.index_in(texts, value_set=known).cast(pa.int64())
    rule, route = (pc.choose(which, *(each[column] for each in chosen)) for column in range(2))
    purchase = {name: purchases.column(name) for name in COLUMNS}
    return pa.table({**purchase, "rule": rule, "route": route, "rules_version": version})
