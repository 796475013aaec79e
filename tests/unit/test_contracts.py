"""The contracts: what the schemas say, and that everything derived from them says the same."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from customer_activity import contracts
from customer_activity.catalog import Reason
from customer_activity.contracts import CUSTOMER_ACTIVITY, CUSTOMER_PROFILE, PURCHASE_EVENT, Contract, Refusal

FILES = {
    PURCHASE_EVENT: "purchase_event.schema.json",
    CUSTOMER_PROFILE: "customer_profile.schema.json",
    CUSTOMER_ACTIVITY: "customer_activity.schema.json",
}
BY_TITLE = [pytest.param(contract, id=contract.title) for contract in contracts.CONTRACTS]
FAULTS_IN_ORDER = [Reason.WRONG_TYPE, Reason.MISSING_FIELD, Reason.OUT_OF_RANGE]

GOOD = {
    "PurchaseEvent": {
        "purchaseId": '"P-1"',
        "customerId": '"C-1"',
        "productId": '"A-1"',
        "amount": "12.34",
        "currency": '"EUR"',
        "occurredAtEpochMillis": "1500000000000",
    },
    "CustomerProfile": {
        "customerId": '"C-1"',
        "name": '"Ada"',
        "email": '"ada@example.org"',
        "address": "null",
        "loyaltyStatus": '"gold"',
        "updatedAtEpochMillis": "1500000000000",
    },
}


def schema_of(contract: Contract) -> dict[str, Any]:
    text = resources.files("customer_activity.contracts").joinpath(FILES[contract]).read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text, parse_float=Decimal)
    return schema


def object_text(fields: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in fields) + "}"


def good_text(contract: Contract, **changes: str) -> str:
    return object_text(list((GOOD[contract.title] | changes).items()))


def refuse_constant(name: str) -> None:
    raise ValueError(name)


def has_lone_surrogate(content: object) -> bool:
    return re.search("[\ud800-\udfff]", json.dumps(content, ensure_ascii=False, default=str)) is not None


@cache
def validator(contract: Contract) -> jsonschema.Draft202012Validator:
    schema = schema_of(contract)
    for field in schema["properties"].values():
        if "pattern" in field:  # Python's $ lets a line break follow, JSON Schema's does not
            field["pattern"] = field["pattern"].replace("$", r"\Z")
    return jsonschema.Draft202012Validator(schema)


def reason_by_the_schema(contract: Contract, text: str) -> Reason | None:
    """Judge by other means: the standard library's parser and a JSON Schema validator, in exact decimals."""
    try:
        content = json.loads(text, parse_float=Decimal, parse_constant=refuse_constant)
    except ValueError:
        return Reason.NOT_JSON
    if has_lone_surrogate(content):
        return Reason.NOT_UTF8
    kinds = {"type": Reason.WRONG_TYPE, "required": Reason.MISSING_FIELD, "additionalProperties": Reason.WRONG_TYPE}
    faults = {
        kinds.get(str(error.validator), Reason.OUT_OF_RANGE) for error in validator(contract).iter_errors(content)
    }
    return min(faults, key=FAULTS_IN_ORDER.index, default=None)


@pytest.mark.parametrize("contract", BY_TITLE)
def test_schema_is_valid_json_schema(contract: Contract) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(contract))


@pytest.mark.parametrize("contract", BY_TITLE)
def test_key_and_event_time_are_required_fields_and_not_null(contract: Contract) -> None:
    for name in (contract.key, contract.event_time):
        assert contract.field(name).required
        assert not contract.field(name).nullable
    assert contract.field(contract.event_time).is_timestamp


def test_only_purchases_have_no_tombstones() -> None:
    assert [contract.null_deletes for contract in contracts.CONTRACTS] == [False, True, True]


@pytest.mark.parametrize(
    ("field", "column"),
    [
        ("customerId", "customer_id"),
        ("name", "name"),
        ("loyaltyStatus", "loyalty_status"),
        ("occurredAtEpochMillis", "occurred_at"),
        ("updatedAtEpochMillis", "updated_at"),
        ("profileUpdatedAtEpochMillis", "profile_updated_at"),
        ("firstPurchaseAtEpochMillis", "first_purchase_at"),
        ("lastPurchaseAtEpochMillis", "last_purchase_at"),
        ("asOfEpochMillis", "as_of"),
        ("viewVersion", "view_version"),
    ],
)
def test_column_is_the_field_in_snake_case_without_its_unit(field: str, column: str) -> None:
    assert contracts.column_name(field) == column


def test_columns_have_the_types_of_the_tables() -> None:
    assert {field.column: field.sql_type for field in PURCHASE_EVENT.fields} == {
        "purchase_id": "string",
        "customer_id": "string",
        "product_id": "string",
        "amount": "decimal(18,2)",
        "currency": "string",
        "occurred_at": "timestamp",
    }
    assert {field.column: field.sql_type for field in CUSTOMER_ACTIVITY.fields} == {
        "customer_id": "string",
        "name": "string",
        "email": "string",
        "address": "string",
        "loyalty_status": "string",
        "profile_updated_at": "timestamp",
        "purchase_count": "bigint",
        "total_amount": "decimal(18,2)",
        "currency": "string",
        "first_purchase_at": "timestamp",
        "last_purchase_at": "timestamp",
        "view_version": "bigint",
        "as_of": "timestamp",
    }


@pytest.mark.parametrize("contract", BY_TITLE)
def test_markdown_table_has_one_row_a_field(contract: Contract) -> None:
    head, rule, *rows = contracts.markdown_table(contract).splitlines()

    assert len(rows) == len(contract.fields)
    assert {line.count("|") for line in (head, rule, *rows)} == {8}
    for field, row in zip(contract.fields, rows, strict=True):
        assert row.startswith(f"| `{field.name}` | `{field.column}` |")


def test_decoder_keeps_numbers_as_they_were_written() -> None:
    record = contracts.decoder(PURCHASE_EVENT).decode(good_text(PURCHASE_EVENT, amount="0.10").encode())

    assert bytes(record.amount) == b"0.10"  # type: ignore[attr-defined]
    assert record.occurred_at == 1500000000000  # type: ignore[attr-defined]


def test_decoder_reads_absent_optional_fields_as_none() -> None:
    record = contracts.decoder(CUSTOMER_PROFILE).decode(b'{"customerId": "C", "name": "", "updatedAtEpochMillis": 0}')

    assert msgspec.structs.asdict(record) == {
        "customer_id": "C",
        "name": "",
        "email": None,
        "address": None,
        "loyalty_status": None,
        "updated_at": 0,
    }


def test_view_contract_takes_no_unknown_fields() -> None:
    view = {
        field.name: "null" if field.nullable else "1" if field.kind != "string" else '"EUR"'
        for field in CUSTOMER_ACTIVITY.fields
    }

    assert not isinstance(contracts.examine(CUSTOMER_ACTIVITY, object_text(list(view.items())).encode()), Refusal)
    refused = contracts.examine(CUSTOMER_ACTIVITY, object_text([*view.items(), ("more", "1")]).encode())
    assert refused == (Reason.WRONG_TYPE, "$: expected no fields besides the contract's")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("0", "0.00"),
        ("1.5", "1.50"),
        ("1e2", "100.00"),
        ("1.23E1", "12.30"),
        ("1500e-2", "15.00"),
        ("0e999999999", "0.00"),
        ("1.000000000000000000000000000000000000", "1.00"),
        ("9999999999999999.99", "9999999999999999.99"),
    ],
)
def test_examine_rewrites_a_number_plainly(text: str, plain: str) -> None:
    record = contracts.examine(PURCHASE_EVENT, good_text(PURCHASE_EVENT, amount=text).encode())

    assert bytes(record.amount).decode() == plain  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-0.01", "at least 0"),
        ("0.001", "a multiple of 0.01"),
        ("1E-400", "a multiple of 0.01"),
        ("1e-999999999999999999", "a multiple of 0.01"),
        ("1e400", "at most 9999999999999999.99"),
        ("1e999999999999999999", "at most 9999999999999999.99"),
        ("1e9999999999999999999999", "an exponent of at most 18 digits"),
        ("9999999999999999.991", "at most 9999999999999999.99"),
        ("10000000000000000", "at most 9999999999999999.99"),
        ("1" + "0" * 1_000_000, "a number of at most 100 characters"),
        ("0." + "0" * 1_000_000, "a number of at most 100 characters"),
    ],
)
def test_examine_refuses_numbers_out_of_range_whatever_their_size(text: str, expected: str) -> None:
    refused = contracts.examine(PURCHASE_EVENT, good_text(PURCHASE_EVENT, amount=text).encode())

    assert refused == (Reason.OUT_OF_RANGE, f"$.amount: expected {expected}")


@pytest.mark.parametrize("levels", [contracts.MAX_NESTING, contracts.MAX_NESTING + 1])
@pytest.mark.parametrize(("opened", "closed"), [("[", "]"), ('{"[{\\"":', "}")])
def test_nesting_has_a_limit_of_its_own(levels: int, opened: str, closed: str) -> None:
    value = (opened * levels + "1" + closed * levels).encode()

    assert contracts.is_nested_too_deeply(value) is (levels > contracts.MAX_NESTING)
    judged = contracts.examine(PURCHASE_EVENT, value)
    assert isinstance(judged, Refusal)
    assert (judged.reason is Reason.NOT_JSON) is (levels > contracts.MAX_NESTING)


@pytest.mark.parametrize("text", ["[" * 1_000_000, '"' + "[" * 1_000_000, '"\\"' * 300_000 + "{" * 300])
def test_nesting_is_measured_in_one_pass_of_broken_text(text: str) -> None:
    assert contracts.is_nested_too_deeply(text.encode()) is text.startswith("[")


def test_brackets_in_text_are_no_nesting() -> None:
    value = json.dumps({"note": '["' * 1000, "more": "\\"}).encode()

    assert not contracts.is_nested_too_deeply(value)


FRAGMENTS = st.one_of(
    st.sampled_from(
        [
            "null",
            "true",
            "false",
            "[]",
            "{}",
            '""',
            '"12.3"',
            '"EUR"',
            '"eur"',
            '"EUR\\n"',
            '"ÄÖÜ"',
            '"\\u00e9"',
            '"\\ud83d\\ude00"',
        ]
    ),
    st.sampled_from(
        [
            "0",
            "-0",
            "-1",
            "1.0",
            "1e3",
            "1E+2",
            "12.345",
            "12.340",
            "1e-2",
            "1e-3",
            "9999999999999999.99",
            "1e16",
            "253402300799999",
        ]
    ),
    st.sampled_from(["253402300800000", "99999999999999999999999999"]),
    st.decimals(min_value=-10, max_value=10**17, places=3).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.text(max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False)),
)


@st.composite
def nearly_valid_texts(draw: st.DrawFn, contract: Contract) -> str:
    """Draw a good record with some fields changed, gone, repeated, unknown, in any order."""
    fields = list(GOOD[contract.title].items())
    names = st.sampled_from([name for name, _ in fields] + ["unknown", "purchase\\u0049d"])
    dropped = draw(st.sets(names, max_size=1))
    changed = draw(st.lists(st.tuples(names, FRAGMENTS), max_size=3))
    kept = [(name, value) for name, value in fields if name not in dropped]
    return object_text(draw(st.permutations(kept + changed)) if draw(st.booleans()) else kept + changed)


@pytest.mark.parametrize("contract", BY_TITLE[:2])
@settings(deadline=None, max_examples=100)
@given(data=st.data())
def test_examine_agrees_with_json_schema_and_the_decoder_with_examine(contract: Contract, data: st.DataObject) -> None:
    text = data.draw(nearly_valid_texts(contract))

    judged = contracts.examine(contract, text.encode())
    assert (judged.reason if isinstance(judged, Refusal) else None) == reason_by_the_schema(contract, text)

    try:
        contracts.decoder(contract).decode(text.encode())
    except msgspec.DecodeError:
        return
    # What the decoder leaves to its caller: patterns, and the texts of numbers.
    if isinstance(judged, Refusal):
        assert judged.detail.split(":")[0] in ("$.currency", "$.amount")


JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
).flatmap(lambda content: st.sampled_from([json.dumps(content), json.dumps(content, ensure_ascii=False, indent=1)]))
SIGNIFICANT = st.sampled_from(
    [*"{}[]\",:\\/-+.eE0123456789untrfals \t\n\r\x00\x0c\x1f\x7f\xa0\ufeff\u2028'", "\\u", "\\ud83d", "\\udc00", "NaN"]
)


@st.composite
def broken_json(draw: st.DrawFn) -> str:
    """Draw a JSON text and put, replace or drop a few characters that mean something in JSON."""
    text = draw(JSON_TEXTS)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(SIGNIFICANT | st.just("")) + text[at + draw(st.integers(0, 1)) :]
    return text


@settings(deadline=None, max_examples=200)
@given(text=broken_json())
@example(text='{"x": nul}')
@example(text='{"x": NaN}')
@example(text='{"x": [1, -Infinity]}')
@example(text='{"x": "\\x"}')
@example(text='{"x": "\x01"}')
@example(text='{"x": "\\ud800"}')
@example(text='{"x": "\\udc00\\ud800"}')
@example(text='{"x": "\\ud800", "y": NaN}')
@example(text='{"x": "\\ud800", "y": 1')
@example(text='{"x": 01}')
@example(text='{"x": 1.}')
@example(text="{}{}")
@example(text="{},")
@example(text="\ufeff{}")
def test_both_ways_take_exactly_what_the_standard_parser_takes(text: str) -> None:
    """As the whole value for `examine`, as the content of an unknown field for the fast decoder."""
    try:
        content = json.loads(text, parse_int=str, parse_float=str, parse_constant=refuse_constant)
        expected = Reason.NOT_UTF8 if has_lone_surrogate(content) else None
    except ValueError:
        expected = Reason.NOT_JSON

    judged = contracts.examine(PURCHASE_EVENT, text.encode())
    reason = judged.reason if isinstance(judged, Refusal) else None
    assert (reason if reason in (Reason.NOT_JSON, Reason.NOT_UTF8) else None) == expected

    inside = good_text(PURCHASE_EVENT, unknown=text)
    try:
        json.loads(inside, parse_int=str, parse_float=str, parse_constant=refuse_constant)
    except ValueError:
        with pytest.raises(msgspec.DecodeError):
            contracts.decoder(PURCHASE_EVENT).decode(inside.encode())
    else:
        if expected is None:
            contracts.decoder(PURCHASE_EVENT).decode(inside.encode())


@pytest.mark.parametrize("contract", BY_TITLE[:2])
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_detail_never_shows_what_the_record_holds(contract: Contract, data: st.DataObject) -> None:
    told = "Zq7X"
    names = st.sampled_from([*GOOD[contract.title], told])
    shapes = [
        f'"{told}"',
        f'["{told}"]',
        f'{{"{told}": 1}}',
        f'"{told}',
        told,
        "-73310073",
        "73310073.7331",
        "7331007300000000000",
    ]
    text = good_text(contract, **data.draw(st.dictionaries(names, st.sampled_from(shapes), min_size=1, max_size=3)))

    judged = contracts.examine(contract, text.encode())

    if isinstance(judged, Refusal):
        assert told not in judged.detail
        assert "7331" not in judged.detail
        assert len(judged.detail) <= 200
