"""The contracts as tests see them: their schemas, and texts that fit or nearly do."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

import jsonschema
import pytest

from customer_activity import contracts
from customer_activity.catalog import Reason
from customer_activity.contracts import (
    CUSTOMER_ACTIVITY,
    CUSTOMER_PROFILE,
    FRAUD_ALERT,
    PAYMENT_CONFIRMED,
    PURCHASE_EVENT,
    Contract,
)

FILES = {
    PURCHASE_EVENT: "purchase_event.schema.json",
    CUSTOMER_PROFILE: "customer_profile.schema.json",
    CUSTOMER_ACTIVITY: "customer_activity.schema.json",
    FRAUD_ALERT: "fraud_alert.schema.json",
    PAYMENT_CONFIRMED: "payment_confirmed.schema.json",
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
    "PaymentConfirmed": {
        "purchaseId": '"P-1"',
        "paymentId": '"pay-1"',
        "customerId": "null",
        "amount": "12.34",
        "currency": '"EUR"',
        "confirmedAtEpochMillis": "1500000000000",
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
