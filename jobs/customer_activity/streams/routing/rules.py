"""Rules by which purchases are routed, as people write them: checked, and brought to the form in which they decide.

A rule is data: conditions on declared columns, all of which must hold. Nothing of it is run as code. What decides of a
document of rules is its canonical text, which `choosing.py` goes by; the version of the rules is a digest of it, so
words about them change nothing.
"""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from customer_activity.catalog import ROUTES
from customer_activity.errors import SettingsError
from customer_activity.streams.routing.choosing import DEFAULT, NUMBERS, ORDERED, TEXTS, Comparison

DIGEST_BYTES = 8
MOST = Decimal(10**16)  # an amount is below

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)]


class Condition(BaseModel):
    """One comparison of a column with a value, or with several; a file calls them `value`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str
    comparison: Comparison = Field(alias="is")
    values: tuple[Any, ...]

    @model_validator(mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """Take one value for a list of one."""
        if not isinstance(given, dict) or "value" not in given:
            return given
        value = given["value"]
        others = {name: each for name, each in given.items() if name != "value"}
        return {"values": value if isinstance(value, list) else [value], **others}

    @model_validator(mode="after")
    def _fits_the_column(self) -> Self:
        if self.column not in (*TEXTS, *NUMBERS):
            raise ValueError(f"there is no column {self.column}; there are {', '.join((*TEXTS, *NUMBERS))}")
        if not self.values or (len(self.values) > 1 and self.comparison is not Comparison.ONE_OF):
            raise ValueError("`in` takes a list of values, and every other comparison one value")
        if self.column in TEXTS and self.comparison in ORDERED:
            raise ValueError(f"{self.column} is a text: it is compared by =, != or in")
        self.typed()
        return self

    def typed(self) -> list[Decimal] | list[str]:
        """Return the values as the column has them.

        Raises:
            ValueError: one is of another kind.
        """
        if self.column in NUMBERS:
            return [_number(value) for value in self.values]
        if not all(isinstance(value, str) for value in self.values):
            raise ValueError(f"{self.column} is a text: put what it is compared with in quotes")
        return list(self.values)


def _number(value: Any) -> Decimal:
    try:
        number = Decimal(str(value)) if not isinstance(value, bool) else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    if not number.is_finite() or abs(number) > MOST or number != round(number, 2):
        raise ValueError(f"{value} is no number of at most 16 digits and 2 decimals")
    return number


class Rule(BaseModel):
    """Conditions that must all hold, and the route that they lead to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rule: Name
    why: str = ""
    conditions: tuple[Condition, ...] = Field(min_length=1, alias="when")
    route: str


class Rules(BaseModel):
    """A document of rules."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[Rule, ...]
    default: str

    @model_validator(mode="after")
    def _names_and_routes_are_known(self) -> Self:
        names = [each.rule for each in self.rules]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two rules are called {repeated[0]}")
        if DEFAULT in names:
            raise ValueError(f"no rule may be called {DEFAULT}: that is the route where none matches")
        if unknown := [route for route in (*(each.route for each in self.rules), self.default) if route not in ROUTES]:
            raise ValueError(f"there is no route {unknown[0]}; there are {', '.join(ROUTES)}")
        return self

    @property
    def text(self) -> str:
        """What decides, in one form: as it is stored."""
        rules = [
            {
                "rule": each.rule,
                "route": each.route,
                "when": [
                    {
                        "column": one.column,
                        "is": one.comparison.value,
                        "values": [_text(value) for value in one.typed()],
                    }
                    for one in each.conditions
                ],
            }
            for each in self.rules
        ]
        return json.dumps({"rules": rules, "default": self.default}, sort_keys=True, ensure_ascii=False)

    @property
    def version(self) -> str:
        """A digest of what decides."""
        return blake2b(self.text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def _text(value: Decimal | str) -> str:
    return value if isinstance(value, str) else f"{value:.2f}"


def read(file: Path) -> Rules:
    """Read the rules of a deployment.

    Raises:
        SettingsError: there is no such file, or it has no such rules; says what is wrong where.
    """
    try:
        return Rules.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{file} cannot be read: {error}", remedy="correct ACTIVITY_ROUTING_RULES") from None
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        words = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"{file}{f', {where}' if where else ''}: {words}", remedy="correct the file") from None
