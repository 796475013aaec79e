"""What tests of the traffic ask of records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from importlib import resources
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from customer_activity import catalog
from customer_activity.catalog import Reason
from customer_activity.demo.traffic import generator, mixing
from customer_activity.demo.traffic.generator import GeneratorOptions
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.demo.traffic.profiles import ProfileTraffic
from customer_activity.demo.traffic.record import Record

decode_exactly: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(float_hook=Decimal).decode

# Known by silver, by gold and by publish, not by the record alone.
LATER_REASONS = {Reason.CONFLICTING_DUPLICATE, Reason.TOO_LARGE_TO_PUBLISH, Reason.TOTAL_OUT_OF_RANGE}


def contract(name: str) -> Draft202012Validator:
    """Judge by the published JSON Schema, with exact decimals."""
    text = resources.files("customer_activity.contracts").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return Draft202012Validator(json.loads(text, parse_float=Decimal))


CONTRACTS = {
    catalog.PURCHASES_ROLE: contract("purchase_event"),
    catalog.PROFILES_ROLE: contract("customer_profile"),
}


def small(**changes: Any) -> GeneratorOptions:
    return GeneratorOptions(**{"customers": 50, "purchases": 2_000, **changes})


def kinds(records: Iterable[Record]) -> Counter[str]:
    return Counter(record.kind for record in records)


def fields_of(record: Record) -> dict[str, Any]:
    assert record.value is not None
    return decode_exactly(record.value)


def disturbed_stream(seed: int) -> list[Record]:
    plan = ProfileTraffic(changes=100, tombstones=10, seed=seed)
    return list(
        mixing.disturbed(generator.records(small(seed=seed, profiles=plan)), Disturbance(0.05, 0.02, 0.05, "EUR", seed))
    )


PLAN = ProfileTraffic(changes=200, tombstones=10)
