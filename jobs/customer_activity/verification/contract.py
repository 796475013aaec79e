"""The input contracts, written a second time in plain Python: whether a record is valid, or what is wrong first.

Standard library only. Numbers with a fraction or an exponent stay the text that they were on the wire, so that money
becomes whole cents without ever being a binary float.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from math import inf
from sys import intern
from typing import Any, NoReturn

from customer_activity.catalog import Reason
from customer_activity.verification.numbers import MAX_NUMBER_LENGTH, NumberText, cents_of

LATEST_MILLIS = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z, the last instant that four-digit years can say
FUTURE_MILLIS = 5 * 60 * 1000  # how far an event may be ahead of its Kafka timestamp and of its landing
UNDATED = -1  # the Kafka timestamp of a record that has none
OLDEST_RULES = 1  # a landing that notes no version of the rules followed these
RISK_RULES = 3  # the first with a risk score
HIGHEST_RISK = 100
MAX_NESTING = 256  # levels of objects and arrays; anything deeper is refused as not JSON

PURCHASE_TYPES: Mapping[str, str] = {
    "purchaseId": "text",
    "customerId": "text",
    "productId": "text?",
    "amount": "number",
    "currency": "text",
    "occurredAtEpochMillis": "integer",
    "riskScore": "integer?",
}
TYPES_WITHOUT_RISK = {name: kind for name, kind in PURCHASE_TYPES.items() if name != "riskScore"}
PROFILE_TYPES: Mapping[str, str] = {
    "customerId": "text",
    "name": "text",
    "email": "text?",
    "address": "text?",
    "loyaltyStatus": "text?",
    "updatedAtEpochMillis": "integer",
}

PAYMENT_TYPES: Mapping[str, str] = {
    "purchaseId": "text",
    "paymentId": "text",
    "customerId": "text?",
    "amount": "number",
    "currency": "text",
    "confirmedAtEpochMillis": "integer",
}

PurchaseFields = tuple[str, str, str | None, int, str, int, int | None]
PaymentFields = tuple[str, str, str | None, int, str, int]
ProfileFields = tuple[str, str | None, str | None, str | None, str | None, int | None]


def purchase(  # noqa: PLR0911 - one return a rule, in the order of the rules
    key: bytes | None,
    value: bytes | None,
    timestamp: int | None,
    currency: str,
    *,
    landed_at: int | None,
    rules: int,
) -> PurchaseFields | Reason:
    """Read a purchase record by a version of the rules, given its Kafka timestamp and when it landed, in milliseconds.

    The timestamp is None where no table can hold it; `landed_at` is None where it is not known, which counts as never
    too early.

    Returns:
        Purchase id, customer id, product id, amount in cents, currency, time of purchase in milliseconds, risk score;
        or why the record is refused.
    """
    decoded = _required(key, value)
    if isinstance(decoded, Reason):
        return decoded
    key_text, fields = decoded
    get = fields.get
    purchase_id, customer_id, product_id = get("purchaseId"), get("customerId"), get("productId")
    amount, code, occurred_at = get("amount"), get("currency"), get("occurredAtEpochMillis")
    risk = get("riskScore") if rules >= RISK_RULES else None
    if not (
        type(purchase_id) is type(customer_id) is type(code) is str
        and type(occurred_at) is int
        and (type(amount) is NumberText or type(amount) is int)
        and (product_id is None or type(product_id) is str)
        and (risk is None or type(risk) is int)
    ):
        return _first_fault(fields, PURCHASE_TYPES if rules >= RISK_RULES else TYPES_WITHOUT_RISK)
    cents = cents_of(amount)
    is_in_range = 0 <= occurred_at <= LATEST_MILLIS and (risk is None or 0 <= risk <= HIGHEST_RISK)
    if not purchase_id or not customer_id or cents is None or not is_in_range:
        return Reason.OUT_OF_RANGE
    if (code != currency and not _CURRENCY_CODE.fullmatch(code)) or _is_refused_since(
        rules, timestamp, key_text, purchase_id, customer_id, product_id or ""
    ):
        return Reason.OUT_OF_RANGE
    if purchase_id != key_text:
        return Reason.KEY_MISMATCH
    if code != currency:
        return Reason.CURRENCY_MISMATCH
    if occurred_at > latest_event(timestamp, landed_at, rules):
        return Reason.TIMESTAMP_IN_FUTURE
    # A million records name a few thousand customers and products: keep each name once.
    return purchase_id, intern(customer_id), product_id and intern(product_id), cents, currency, occurred_at, risk


def payment(  # noqa: PLR0911 - one return a rule, in the order of the rules
    key: bytes | None, value: bytes | None, timestamp: int | None, *, landed_at: int | None, rules: int
) -> PaymentFields | Reason:
    """Read a payment record, as `purchase` does; it may be in any currency.

    Returns:
        Purchase id, payment id, customer id, amount in cents, currency, time of confirmation in milliseconds; or why
        the record is refused.
    """
    decoded = _required(key, value)
    if isinstance(decoded, Reason):
        return decoded
    key_text, fields = decoded
    get = fields.get
    purchase_id, payment_id, customer_id = get("purchaseId"), get("paymentId"), get("customerId")
    amount, code, confirmed_at = get("amount"), get("currency"), get("confirmedAtEpochMillis")
    if not (
        type(purchase_id) is type(payment_id) is type(code) is str
        and type(confirmed_at) is int
        and (type(amount) is NumberText or type(amount) is int)
        and (customer_id is None or type(customer_id) is str)
    ):
        return _first_fault(fields, PAYMENT_TYPES)
    cents = cents_of(amount)
    is_named = purchase_id and payment_id and customer_id != ""
    if not is_named or cents is None or not 0 <= confirmed_at <= LATEST_MILLIS:
        return Reason.OUT_OF_RANGE
    if not _CURRENCY_CODE.fullmatch(code) or _is_refused_since(
        rules, timestamp, key_text, purchase_id, payment_id, customer_id or ""
    ):
        return Reason.OUT_OF_RANGE
    if purchase_id != key_text:
        return Reason.KEY_MISMATCH
    if confirmed_at > latest_event(timestamp, landed_at, rules):
        return Reason.TIMESTAMP_IN_FUTURE
    return purchase_id, payment_id, customer_id and intern(customer_id), cents, code, confirmed_at


def profile(  # noqa: PLR0911 - one return a rule, in the order of the rules
    key: bytes | None, value: bytes | None, timestamp: int | None, *, landed_at: int | None, rules: int
) -> ProfileFields | Reason:
    """Read a profile record, as `purchase` does; a null value deletes.

    Returns:
        Customer id, name, e-mail, address, loyalty status, time of update in milliseconds, all but the first null for a
        tombstone; or why the record is refused.
    """
    if not key:
        return Reason.MISSING_KEY
    if value is None:
        return _tombstone(key, timestamp, rules)
    decoded = _decode(key, value)
    if isinstance(decoded, Reason):
        return decoded
    key_text, fields = decoded
    customer_id, name, updated_at = fields.get("customerId"), fields.get("name"), fields.get("updatedAtEpochMillis")
    optional = fields.get("email"), fields.get("address"), fields.get("loyaltyStatus")
    if not (
        type(customer_id) is type(name) is str
        and type(updated_at) is int
        and all(text is None or type(text) is str for text in optional)
    ):
        return _first_fault(fields, PROFILE_TYPES)
    is_in_range = customer_id and 0 <= updated_at <= LATEST_MILLIS
    if not is_in_range or _is_refused_since(rules, timestamp, key_text, customer_id):
        return Reason.OUT_OF_RANGE
    if customer_id != key_text:
        return Reason.KEY_MISMATCH
    if updated_at > latest_event(timestamp, landed_at, rules):
        return Reason.TIMESTAMP_IN_FUTURE
    return customer_id, name, *optional, updated_at


def _tombstone(key: bytes, timestamp: int | None, rules: int) -> ProfileFields | Reason:
    try:
        customer_id = str(key, "utf-8")
    except UnicodeDecodeError:
        return Reason.NOT_UTF8
    if _is_refused_since(rules, timestamp, customer_id):
        return Reason.OUT_OF_RANGE
    return customer_id, None, None, None, None, None


def _is_refused_since(rules: int, timestamp: int | None, *names: str) -> bool:
    """Whether later rules refuse it: a Kafka timestamp beyond the years 1970 to 9999, or a control in a name."""
    return rules > OLDEST_RULES and (
        timestamp is None or not UNDATED <= timestamp <= LATEST_MILLIS or _CONTROL.search("".join(names)) is not None
    )


def latest_event(timestamp: int | None, landed_at: int | None, rules: int) -> float:
    """Return the latest time, in milliseconds, at which the event of a record may have been."""
    clocks = [] if timestamp is None else [timestamp]
    if rules > OLDEST_RULES:
        clocks = [clock for clock in (*clocks, landed_at) if clock is not None and clock != UNDATED]
    return min(clocks, default=inf) + FUTURE_MILLIS


def json_value(text: str) -> Any:
    """Parse exactly one JSON value; the last of equal names in an object wins.

    Raises:
        ValueError: it is not JSON: malformed, NaN or Infinity, or anything after the value.
        RecursionError: it is nested too deeply.
    """
    try:
        value, end = _scan(text, 0)
    except (StopIteration, ValueError):
        return _WIDE_DECODER.decode(text)
    return value if end == len(text) else _DECODER.decode(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _wide_integer(text: str) -> int:
    """Read an integer of any length; those that Python refuses to convert are far outside every range."""
    return int(text[:MAX_NUMBER_LENGTH])


_DECODER = json.JSONDecoder(parse_float=NumberText, parse_constant=_refuse_constant)
_WIDE_DECODER = json.JSONDecoder(parse_float=NumberText, parse_int=_wide_integer, parse_constant=_refuse_constant)
# What decode() calls between its two searches for white space; typeshed leaves it out.
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined]
_PAIRS_DECODER = json.JSONDecoder(object_pairs_hook=list, parse_float=NumberText, parse_int=NumberText)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_CURRENCY_CODE = re.compile(r"[A-Z]{3}")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")  # Unicode's category Cc, whole


def _required(key: bytes | None, value: bytes | None) -> tuple[str, dict[str, Any]] | Reason:
    """Decode a record of a topic on which a null value has no meaning."""
    if not key:
        return Reason.MISSING_KEY
    return Reason.MISSING_VALUE if value is None else _decode(key, value)


def _decode(key: bytes, value: bytes) -> tuple[str, dict[str, Any]] | Reason:
    """Bytes to the key's text and the value's fields, or what is wrong before any field is looked at."""
    try:
        key_text, text = str(key, "utf-8"), str(value, "utf-8")
    except UnicodeDecodeError:
        return Reason.NOT_UTF8
    if len(text) > 2 * MAX_NESTING and _nesting(text) > MAX_NESTING:
        return Reason.NOT_JSON
    try:
        fields = json_value(text)
    except (ValueError, RecursionError):
        return Reason.NOT_JSON
    if "\\u" in text and _SURROGATE.search(text) and _has_lone_surrogate(text):
        return Reason.NOT_UTF8
    return (key_text, fields) if type(fields) is dict else Reason.WRONG_TYPE


def _nesting(text: str) -> int:
    """Levels of objects and arrays in a JSON text; brackets within strings do not count."""
    if text.count("{") + text.count("[") <= MAX_NESTING:
        return 0
    depth = deepest = 0
    in_string = is_escaped = False
    for character in text:
        if in_string:
            in_string = is_escaped or character != '"'
            is_escaped = character == "\\" and not is_escaped
        elif character == '"':
            in_string = True
        elif character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}]":
            depth -= 1
    return deepest


def _has_lone_surrogate(text: str) -> bool:
    """Whether any string or name in a JSON text cannot be written as UTF-8, even one that a later name replaces."""
    waiting = [_PAIRS_DECODER.decode(text)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                return True
        elif isinstance(value, list | tuple):
            waiting += value
    return False


def _first_fault(fields: dict[str, Any], types: Mapping[str, str]) -> Reason:
    """Tell a field of a wrong type from one that is missing, when one of the two is the case."""
    for name, kind in types.items():
        if name in fields and not _is(fields[name], kind):
            return Reason.WRONG_TYPE
    return Reason.MISSING_FIELD


def _is(value: Any, kind: str) -> bool:
    """Whether a JSON value is of a kind; true and false are no numbers, and null only fits where `?` allows it."""
    if kind == "number":
        return type(value) in (int, NumberText)
    if value is None:
        return kind.endswith("?")
    return type(value) is (int if kind.startswith("integer") else str)
