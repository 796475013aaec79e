"""Rules of routing: the first that matches decides, what is missing fits none, and a wrong file says what is wrong."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.catalog import ROUTES, Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import SettingsError
from customer_activity.settings import Settings
from customer_activity.streams.routing import choosing, rules
from customer_activity.streams.routing.choosing import COLUMNS
from customer_activity.streams.routing.rules import Rules

HIGH, OTHER = ROUTES
SCHEMA = pa.schema([arrow_schema(Table.ENRICHED).field(name) for name in COLUMNS])
PURCHASE = {"purchase_id": "P-1", "amount": Decimal("999.99"), "currency": "EUR", "department": "DRINKS"}


def bought(*changes: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([{**PURCHASE, **each} for each in changes or ({},)], SCHEMA)


def rule(name: str, *conditions: tuple[str, str, Any], route: str = HIGH) -> dict[str, Any]:
    listed = [{"column": column, "is": how, "value": value} for column, how, value in conditions]
    return {"rule": name, "when": listed, "route": route}


def of(*found: dict[str, Any], default: str = OTHER) -> Rules:
    return Rules.model_validate({"rules": list(found), "default": default})


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        pytest.param(("amount", ">=", 1000), False, id="a cent below"),
        pytest.param(("amount", ">=", 999.99), True, id="exactly as much"),
        pytest.param(("amount", ">", "999.99"), False, id="not more"),
        pytest.param(("amount", "<", 1000), True, id="less"),
        pytest.param(("amount", "<=", 999), False, id="not at most"),
        pytest.param(("amount", "=", 999.99), True, id="the same amount"),
        pytest.param(("amount", "!=", 999.99), False, id="no other amount"),
        pytest.param(("amount", "in", [1, 999.99]), True, id="one of some amounts"),
        pytest.param(("department", "=", "DRINKS"), True, id="the same text"),
        pytest.param(("department", "=", "drinks"), False, id="other case"),
        pytest.param(("department", "!=", "FOOD"), True, id="another text"),
        pytest.param(("department", "in", ["FOOD", "DRINKS"]), True, id="one of some texts"),
        pytest.param(("brand", "=", "A"), False, id="nothing equals what is missing"),
        pytest.param(("brand", "!=", "A"), False, id="nothing differs from what is missing"),
        pytest.param(("brand", "in", ["A"]), False, id="what is missing is none of them"),
    ],
)
def test_a_condition(condition: tuple[str, str, Any], holds: bool) -> None:
    ((found,),) = (each.conditions for each in choosing.stored(of(rule("a", condition)).text).rules)
    assert found.holds(bought()).to_pylist() == [holds]


@pytest.mark.parametrize(
    ("found", "purchase", "wanted"),
    [
        pytest.param(of(), {}, ("default", OTHER), id="no rules"),
        pytest.param(of(rule("a", ("amount", "<", 1))), {}, ("default", OTHER), id="none matches"),
        pytest.param(of(rule("a", ("amount", ">", 1)), default=HIGH), {}, ("a", HIGH), id="one matches"),
        pytest.param(
            of(rule("a", ("amount", ">", 1), route=OTHER), rule("b", ("amount", ">", 1))),
            {},
            ("a", OTHER),
            id="the first of two",
        ),
        pytest.param(
            of(rule("a", ("amount", ">", 1), ("department", "=", "FOOD")), rule("b", ("amount", ">", 1))),
            {},
            ("b", HIGH),
            id="all conditions of a rule have to hold",
        ),
        pytest.param(of(rule("a", ("amount", ">=", 1000))), {"amount": Decimal(1000)}, ("a", HIGH), id="at the limit"),
    ],
)
def test_the_first_rule_that_matches(found: Rules, purchase: dict[str, Any], wanted: tuple[str, str]) -> None:
    names, routes = choosing.stored(found.text).chosen(bought(purchase))
    assert (names.to_pylist(), routes.to_pylist()) == ([wanted[0]], [wanted[1]])


CONDITION = st.one_of(
    st.tuples(st.just("amount"), st.sampled_from(["<", "<=", ">", ">=", "=", "!="]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["department", "brand"]), st.sampled_from(["=", "!="]), st.sampled_from("AB")),
)
ROW = st.fixed_dictionaries(
    {
        "amount": st.integers(0, 3).map(Decimal),
        "department": st.sampled_from(["A", "B", None]),
        "brand": st.sampled_from(["A", "B", None]),
    }
)
DOCUMENT = st.lists(st.tuples(st.lists(CONDITION, min_size=1, max_size=2), st.sampled_from(ROUTES)), max_size=3)
HOW = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@given(DOCUMENT, st.lists(ROW, min_size=1, max_size=5))
def test_rows_are_routed_as_one_by_one_by_rules_as_they_are_stored(document: Any, rows: list[dict[str, Any]]) -> None:
    found = of(*(rule(f"r{number}", *each, route=route) for number, (each, route) in enumerate(document)))

    def wanted(row: dict[str, Any]) -> str:
        for number, (conditions, _) in enumerate(document):
            if all(row[name] is not None and HOW[how](row[name], value) for name, how, value in conditions):
                return f"r{number}"
        return "default"

    names, _ = choosing.stored(found.text).chosen(bought(*rows))
    assert names.to_pylist() == [wanted(row) for row in rows]
    again = Rules.model_validate_json(found.text)
    assert (again.version, again.text) == (found.version, found.text)


def test_only_what_decides_is_in_the_version() -> None:
    plain, told = of(rule("a", ("amount", ">", 1))), of({**rule("a", ("amount", ">", 1.00)), "why": "they are large"})
    assert plain.version == told.version
    assert plain.version != of(rule("a", ("amount", ">=", 1))).version
    assert plain.version != of(rule("a", ("amount", ">", 1)), default=HIGH).version


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("rules: []", "default: Field required", id="no default"),
        pytest.param("rules: []\ndefault: nowhere", "no route nowhere; there are high_value", id="an unknown default"),
        pytest.param("{}", "rules: Field required", id="empty"),
        pytest.param("", "should be a valid dictionary", id="nothing at all"),
        pytest.param("rules: [", "cannot be read", id="no YAML"),
        pytest.param("rules: []\ndefault: other_purchases\nmore: 1", "more: Extra inputs", id="a typing error"),
        pytest.param("name", "no rule may be called default", id="the default's name"),
        pytest.param("twice", "two rules are called a", id="a name twice"),
        pytest.param("code", "Input should be '=', '!='", id="code for a comparison"),
        pytest.param("column", "no column address; there are", id="a column that may not be looked at"),
        pytest.param("text", "department is a text: it is compared by", id="an order of texts"),
        pytest.param("quotes", "in quotes", id="a number for a text"),
        pytest.param("number", "many is no number of at most", id="a text for a number"),
        pytest.param("cents", "0.005 is no number of at most", id="half a cent"),
        pytest.param("truth", "True is no number", id="a truth for a number"),
        pytest.param("infinite", "inf is no number", id="infinity"),
        pytest.param("list", "`in` takes a list", id="a list for one value"),
        pytest.param("none", "`in` takes a list", id="an empty list"),
        pytest.param("always", "at least 1 item", id="a rule without a condition"),
    ],
)
def test_a_wrong_file_is_refused_and_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    def with_one(*conditions: tuple[str, str, str], name: str = "a") -> str:
        listed = "".join(f"\n      - {{column: {c}, is: '{how}', value: {value}}}" for c, how, value in conditions)
        return f"\n  - rule: {name}\n    route: other_purchases\n    when:{listed or ' []'}"

    made = {
        "name": with_one(("amount", ">", "1"), name="default"),
        "twice": with_one(("amount", ">", "1")) * 2,
        "code": with_one(("amount", "__import__", "1")),
        "column": with_one(("address", "=", "x")),
        "text": with_one(("department", ">", "x")),
        "quotes": with_one(("department", "=", "22")),
        "number": with_one(("amount", "=", "many")),
        "cents": with_one(("amount", "=", "0.005")),
        "truth": with_one(("amount", "=", "true")),
        "infinite": with_one(("amount", "<", ".inf")),
        "list": with_one(("amount", ">", "[1, 2]")),
        "none": with_one(("amount", "in", "[]")),
        "always": with_one(),
    }
    file = tmp_path / "rules.yaml"
    file.write_text(f"rules:{made[text]}\ndefault: other_purchases\n" if text in made else text, encoding="utf-8")
    with pytest.raises(SettingsError) as refused:
        rules.read(file)
    assert words in refused.value.what
    assert (str(file) in refused.value.what, bool(refused.value.remedy)) == (True, True)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read") as refused:
        rules.read(tmp_path / "none.yaml")
    assert "ACTIVITY_ROUTING_RULES" in refused.value.remedy


def test_the_rules_of_the_project_can_be_read() -> None:
    assert [each.rule for each in rules.read(Settings().routing_rules).rules] == ["large_amount", "platinum_customer"]
