"""Strict decoding of a record's value in two ways: fast for valid records, thorough for the rest.

`decoder` is msgspec's compiled decoder. What it accepts is valid JSON with fields of the right type, and within limits
except where a limit needs exact decimals or a pattern: the caller checks those for whole columns at once.
`examine` decides alone and completely. It is the judge of whatever the fast way did not accept, and says why:
msgspec stops at the first fault it meets, which need not be the one that comes first in the order of reasons, and
compares each occurrence of a repeated field where only the last one counts.

Known limits, all on the strict side:
- a value nested deeper than 256 levels is `not_json`, so that the verdict does not hang on the stack that is left;
- a number of more than 100 characters is `out_of_range`, so that nobody can make us work on a million digits;
- an integer field takes digits only: `1.0` and `1e3` are `wrong_type`;
- the escape of a lone surrogate (half a character, which has no UTF-8 form) is `not_utf8` wherever it stands.
"""

from __future__ import annotations

import json
import re
from decimal import Context, Decimal, InvalidOperation
from functools import cache
from itertools import accumulate
from typing import Annotated, Any, NamedTuple, NoReturn

import msgspec

from customer_activity.catalog import Reason
from customer_activity.contracts.schema import NO_CONTROL_CHARACTERS, Contract, Field, Kind

MAX_NESTING = 256
LONGEST_NUMBER = 100
NULL = msgspec.Raw(b"null")

_SYNTAX = msgspec.json.Decoder(msgspec.Raw)
# Possessive, and content with an end that is missing: one pass whatever the text.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_LEVEL_OF = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_NO_BRACKETS = bytes(set(range(256)) - _LEVEL_OF.keys())
_WORDS = {Kind.STRING: "a string", Kind.INTEGER: "an integer", Kind.NUMBER: "a number"}
_FAULTS_IN_ORDER = (Reason.WRONG_TYPE, Reason.MISSING_FIELD, Reason.OUT_OF_RANGE)


class Refusal(NamedTuple):
    """Why a record is refused. `detail` says where and what was expected, never what the record holds."""

    reason: Reason
    detail: str


class _NumberText(str):
    """A JSON number as it was written."""

    __slots__ = ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# The standard library's parser: strict as well, but for NaN and Infinity, refused here, and lone surrogates.
_LENIENT = json.JSONDecoder(parse_int=_NumberText, parse_float=_NumberText, parse_constant=_refuse_constant)


def _field_type(field: Field) -> Any:
    if field.kind is Kind.NUMBER:
        return msgspec.Raw  # the text as written: a float would lose digits, Decimal would take "1.50" in quotes too
    if field.kind is Kind.INTEGER:
        minimum, maximum = (None if limit is None else int(limit) for limit in (field.minimum, field.maximum))
        return Annotated[int, msgspec.Meta(ge=minimum, le=maximum)]
    # No pattern here: a regular expression a record costs as much as all the rest of its decoding.
    return Annotated[str, msgspec.Meta(min_length=field.min_length)]


@cache
def record_type(contract: Contract) -> type[msgspec.Struct]:
    """Build the type of a decoded record: attributes are columns, values str, int, None or the raw text of a number."""
    fields: list[tuple[str, Any, Any]] = []
    for field in contract.fields:
        is_number = field.kind is Kind.NUMBER  # its text may be "null": msgspec takes no `Raw | None`
        kind = _field_type(field) | None if field.nullable and not is_number else _field_type(field)
        default = {} if field.required else {"default": NULL if is_number else None}
        fields.append((field.column, kind, msgspec.field(name=field.name, **default)))
    return msgspec.defstruct(
        contract.title,
        fields,
        kw_only=True,
        gc=False,  # holds no cycles; the collector need not look at a million of them
        forbid_unknown_fields=not contract.allows_unknown_fields,
    )


@cache
def decoder(contract: Contract) -> msgspec.json.Decoder[msgspec.Struct]:
    """Return the fast decoder of `record_type`.

    It raises msgspec.DecodeError for what it does not accept: ask `examine` then. It expects UTF-8 that is nested no
    deeper than `is_nested_too_deeply` allows; number texts and patterns remain to be checked.
    """
    return msgspec.json.Decoder(record_type(contract))


def utf8_refusal(part: str, data: bytes) -> Refusal | None:
    """Refuse bytes that are not UTF-8; `part` is key or value."""
    try:
        data.decode()
    except UnicodeDecodeError as error:  # its own message shows the byte
        return Refusal(Reason.NOT_UTF8, f"{part}: not UTF-8 at byte {error.start}")
    return None


def is_nested_too_deeply(value: bytes) -> bool:
    """Whether objects and arrays in a JSON text are nested deeper than MAX_NESTING levels."""
    if len(value) <= 2 * MAX_NESTING or value.count(b"[") + value.count(b"{") <= MAX_NESTING:
        return False
    brackets = _STRING.sub(b"", value).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_LEVEL_OF.__getitem__, brackets)), default=0) > MAX_NESTING


def examine(contract: Contract, value: bytes) -> msgspec.Struct | Refusal:
    """Judge one value completely: a record whose numbers are rewritten plainly (`1e2` as `100.00`), or the refusal.

    Several faults: the first in the order not_utf8, not_json, wrong_type, missing_field, out_of_range counts, and among
    equals the first in the schema's order of fields.
    """
    unreadable = utf8_refusal("value", value) or _syntax_refusal(value)
    if unreadable:
        return unreadable
    content = _LENIENT.decode(value.decode())
    if not isinstance(content, dict):
        return Refusal(Reason.WRONG_TYPE, f"$: expected an object, got {_type_of(content)}")
    if not contract.allows_unknown_fields and content.keys() - {field.name for field in contract.fields}:
        return Refusal(Reason.WRONG_TYPE, "$: expected no fields besides the contract's")
    judged = {field.column: _judge(field, content) for field in contract.fields}
    refusals = [found for found in judged.values() if isinstance(found, Refusal)]
    if refusals:
        return min(refusals, key=lambda refusal: _FAULTS_IN_ORDER.index(refusal.reason))
    return record_type(contract)(**judged)


def _syntax_refusal(value: bytes) -> Refusal | None:
    if is_nested_too_deeply(value):
        return Refusal(Reason.NOT_JSON, f"value: nested deeper than {MAX_NESTING} levels")
    try:
        _SYNTAX.decode(value)
    except msgspec.DecodeError as error:
        if b"\\u" in value and _is_lenient_json(value):  # nothing else divides the two parsers
            return Refusal(Reason.NOT_UTF8, "value: a string holds half a surrogate pair")
        return Refusal(Reason.NOT_JSON, f"value: {error}")
    return None


def _is_lenient_json(value: bytes) -> bool:
    """Whether it is JSON when lone surrogates are let pass."""
    try:
        _LENIENT.decode(value.decode())
    except ValueError:
        return False
    return True


def _judge(field: Field, content: dict[str, Any]) -> Any:
    if field.name not in content:
        return Refusal(Reason.MISSING_FIELD, f"$.{field.name}: missing") if field.required else None
    found = content[field.name]
    if found is None and field.nullable:
        return None
    if type(found) is not (str if field.kind is Kind.STRING else _NumberText):
        return Refusal(Reason.WRONG_TYPE, f"$.{field.name}: expected {_WORDS[field.kind]}, got {_type_of(found)}")
    if field.kind is Kind.STRING:
        return _judge_text(field, found)
    if field.kind is Kind.INTEGER and not re.fullmatch("-?[0-9]+", found):
        return Refusal(
            Reason.WRONG_TYPE, f"$.{field.name}: expected an integer, got a number with a fraction or an exponent"
        )
    return _judge_number(field, found)


def _judge_text(field: Field, found: str) -> str | Refusal:
    if field.min_length is not None and len(found) < field.min_length:
        return Refusal(Reason.OUT_OF_RANGE, f"$.{field.name}: expected at least {field.min_length} character")
    # `$` of JSON Schema's regular expressions is the very end; Python's would let a line break follow.
    if field.pattern is not None and not re.search(re.sub(r"\$$", r"\\Z", field.pattern), found):
        is_about_controls = field.pattern == NO_CONTROL_CHARACTERS
        expected = "no control characters" if is_about_controls else f"text that matches {field.pattern}"
        return Refusal(Reason.OUT_OF_RANGE, f"$.{field.name}: expected {expected}")
    return found


def _judge_number(field: Field, found: str) -> int | msgspec.Raw | Refusal:
    expected = _expected_number(field, found)
    if expected:
        return Refusal(Reason.OUT_OF_RANGE, f"$.{field.name}: expected {expected}")
    if field.kind is Kind.INTEGER:
        return int(found)
    return msgspec.Raw(str(_rounded(Decimal(found), field)).encode())


def _expected_number(field: Field, found: str) -> str | None:
    """Say what was expected of a number that is out of range; None when it is within."""
    if len(found) > LONGEST_NUMBER:
        return f"a number of at most {LONGEST_NUMBER} characters"
    try:
        number = Decimal(found)  # exact, whatever its exponent, up to 18 digits of exponent
    except InvalidOperation:
        return "an exponent of at most 18 digits"
    # Comparing is exact and never expands an exponent; after it the number is small enough to compute with.
    if field.minimum is not None and number < field.minimum:
        return f"at least {field.minimum}"
    if field.maximum is not None and number > field.maximum:
        return f"at most {field.maximum}"
    if field.step is not None and _rounded(number, field) != number:
        return f"a multiple of {field.step}"
    return None


def _rounded(number: Decimal, field: Field) -> Decimal:
    return number.quantize(Decimal(1).scaleb(-field.scale), context=Context(prec=2 * LONGEST_NUMBER))


def _type_of(found: object) -> str:
    if isinstance(found, _NumberText):
        return "a number"
    return {str: "a string", bool: "a boolean", list: "an array", dict: "an object"}.get(type(found), "null")
