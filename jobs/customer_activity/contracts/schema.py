"""Read the JSON Schemas: which fields a record has, what each may hold, and which column it becomes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from importlib import resources
from typing import Any

MILLIS_SUFFIX = "EpochMillis"
NO_CONTROL_CHARACTERS = r"^[^\x00-\x1f\x7f-\x9f]*$"  # Unicode's category Cc, in a form that every reader of it takes
# Rules that change have a version, which each landing notes: a record is judged by those that were in force.
#   1  the key and texts may hold anything; an event is compared with its Kafka timestamp alone, without a check of that
#   2  ids and keys hold no control characters; an event is compared with the time of landing, too; a Kafka timestamp
#      is none (-1) or within the years 1970 to 9999
#   3  a purchase has a risk score; before, a field of that name was unknown and could hold anything
#   4  the trace context of purchases and profiles is kept; of records before, none is known
RULES = 4
LATEST_MILLIS = 253_402_300_799_999  # the last millisecond of the year 9999
NO_TIMESTAMP = -1  # what Kafka gives a record that has no timestamp


class Kind(StrEnum):
    """JSON types that a field may have, null apart."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"


def column_name(field: str) -> str:
    """Name a field's column: snake_case, and `…EpochMillis` is a timestamp named without it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", field.removesuffix(MILLIS_SUFFIX)).lower()


@dataclass(frozen=True)
class Field:
    """One field of a record."""

    name: str
    kind: Kind
    description: str
    nullable: bool
    required: bool
    min_length: int | None
    pattern: str | None
    minimum: Decimal | None
    maximum: Decimal | None
    step: Decimal | None  # multipleOf

    @property
    def column(self) -> str:
        """The column that holds it."""
        return column_name(self.name)

    @property
    def is_timestamp(self) -> bool:
        """Whether it counts milliseconds since 1970-01-01 UTC."""
        return self.name.endswith(MILLIS_SUFFIX)

    @property
    def scale(self) -> int:
        """Decimals that it may have."""
        return -int(self.step.as_tuple().exponent) if self.step is not None else 0

    @property
    def precision(self) -> int:
        """Digits that a number may have in all."""
        return self.scale + (self.maximum.adjusted() + 1 if self.maximum is not None else 0)

    @property
    def sql_type(self) -> str:
        """Type of its column, in Spark's DDL."""
        if self.is_timestamp:
            return "timestamp"
        if self.kind is Kind.NUMBER:
            return f"decimal({self.precision},{self.scale})"
        return "bigint" if self.kind is Kind.INTEGER else "string"


@dataclass(frozen=True, eq=False)  # there is one of each: equal means identical, and hashing it costs nothing
class Contract:
    """What a record of one topic must look like."""

    title: str
    description: str
    fields: tuple[Field, ...]
    key: str  # the field that equals the record's key
    event_time: str  # the field that says when it happened
    null_deletes: bool  # whether a null value is a tombstone; otherwise it is refused
    allows_unknown_fields: bool

    def field(self, name: str) -> Field:
        """Return the field of that name.

        Raises:
            KeyError: there is none.
        """
        return {field.name: field for field in self.fields}[name]


def _field(name: str, schema: dict[str, Any], *, required: bool) -> Field:
    types = [schema["type"]] if isinstance(schema["type"], str) else list(schema["type"])
    kinds = [Kind(kind) for kind in types if kind != "null"]
    if len(kinds) != 1:
        raise ValueError(f"{name}: a field has one type besides null, not {types}")
    if not required and "null" not in types:
        raise ValueError(f"{name}: what may be absent may be null: a column says the same of both")

    def exact(keyword: str) -> Decimal | None:
        return Decimal(schema[keyword]) if keyword in schema else None

    field = Field(
        name=name,
        kind=kinds[0],
        description=schema["description"],
        nullable="null" in types,
        required=required,
        min_length=schema.get("minLength"),
        pattern=schema.get("pattern"),
        minimum=exact("minimum"),
        maximum=exact("maximum"),
        step=exact("multipleOf"),
    )
    if field.kind is Kind.NUMBER and (field.maximum is None or field.step != Decimal(1).scaleb(-field.scale)):
        raise ValueError(
            f"{name}: a number needs a maximum and a multipleOf that is a power of ten: they make its decimal column"
        )
    return field


def _load(file: str) -> Contract:
    # Through importlib, so that it also works from the zip that spark-submit ships with --py-files.
    text = resources.files(__package__).joinpath(file).read_text(encoding="utf-8")
    schema = json.loads(text, parse_float=Decimal)  # a limit of 18 digits must not pass through a float
    return Contract(
        title=schema["title"],
        description=schema["description"],
        fields=tuple(
            _field(name, field, required=name in schema["required"]) for name, field in schema["properties"].items()
        ),
        key=schema["x-kafka"]["key"],
        event_time=schema["x-kafka"]["eventTime"],
        null_deletes=schema["x-kafka"]["nullValue"] == "deletes",
        allows_unknown_fields=schema["additionalProperties"],
    )


PURCHASE_EVENT = _load("purchase_event.schema.json")
CUSTOMER_PROFILE = _load("customer_profile.schema.json")
CUSTOMER_ACTIVITY = _load("customer_activity.schema.json")
FRAUD_ALERT = _load("fraud_alert.schema.json")
PAYMENT_CONFIRMED = _load("payment_confirmed.schema.json")
CONTRACTS = (PURCHASE_EVENT, CUSTOMER_PROFILE, CUSTOMER_ACTIVITY, FRAUD_ALERT, PAYMENT_CONFIRMED)
