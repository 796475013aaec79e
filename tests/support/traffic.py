"""What tests of the traffic ask of records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from importlib import resources
from typing import Any

import msgspec
import pyarrow as pa
from jsonschema import Draft202012Validator

from customer_activity import catalog
from customer_activity.contracts import CUSTOMER_PROFILE, PAYMENT_CONFIRMED, PURCHASE_EVENT
from customer_activity.contracts.parsing import parse_batch
from customer_activity.demo.traffic import generator, mixing
from customer_activity.demo.traffic.generator import GeneratorOptions
from customer_activity.demo.traffic.mixing import Disturbance
from customer_activity.demo.traffic.profiles import ProfileTraffic
from customer_activity.demo.traffic.record import Record
from support.kafka_batches import KAFKA_SCHEMA

decode_exactly: Callable[[bytes], dict[str, Any]] = msgspec.json.Decoder(float_hook=Decimal).decode


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


def parsed(records: Sequence[Record], currency: str, moment: datetime) -> list[dict[str, Any]]:
    """Have bronze's parser read records that were sent, and landed, at one moment; topics are called after roles."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": record.role,
            "partition": 0,
            "offset": offset,
            "timestamp": moment,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
        }
        for offset, record in enumerate(records)
    ]
    contracts = {
        catalog.PURCHASES_ROLE: PURCHASE_EVENT,
        catalog.PROFILES_ROLE: CUSTOMER_PROFILE,
        catalog.PAYMENTS_ROLE: PAYMENT_CONFIRMED,
    }
    batch = pa.RecordBatch.from_pylist(rows, schema=KAFKA_SCHEMA)
    return list(parse_batch(batch, contracts=contracts, currency=currency, landed_at=moment).to_pylist())
