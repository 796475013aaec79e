"""The contracts: what the schemas say, and that everything derived from them says the same."""

from __future__ import annotations

import json

import jsonschema
import msgspec
import pytest

from customer_activity import contracts
from customer_activity.catalog import Reason
from customer_activity.contracts import CUSTOMER_ACTIVITY, CUSTOMER_PROFILE, PURCHASE_EVENT, Contract, Refusal
from support.contracts import BY_TITLE, good_text, object_text, schema_of


@pytest.mark.parametrize("contract", BY_TITLE)
def test_schema_is_valid_json_schema(contract: Contract) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(contract))


@pytest.mark.parametrize("contract", BY_TITLE)
def test_key_and_event_time_are_required_fields_and_not_null(contract: Contract) -> None:
    for name in (contract.key, contract.event_time):
        assert contract.field(name).required
        assert not contract.field(name).nullable
    assert contract.field(contract.event_time).is_timestamp


def test_purchases_alerts_and_payments_have_no_tombstones() -> None:
    assert [contract.title for contract in contracts.CONTRACTS if not contract.null_deletes] == [
        "PurchaseEvent",
        "FraudAlert",
        "PaymentConfirmed",
    ]


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
        "risk_score": "bigint",
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
