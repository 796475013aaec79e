"""Bad records: every kind that the contracts refuse, and the reason each must be quarantined for.

A kind breaks exactly one rule, so that its reason does not hang on the order of the checks; the few named
`..._before_...` break two, to pin that order. Ids are the caller's and belong to no good record: none of them may ever
be counted. The profile topic has no kind without a key: the broker of a compacted topic refuses such a record itself.
"""

from __future__ import annotations

from codecs import BOM_UTF16_LE
from functools import partial
from typing import NamedTuple

from customer_activity.catalog import PAYMENTS_ROLE, PROFILES_ROLE, PURCHASES_ROLE, Reason
from customer_activity.demo.traffic.record import BAD, Headers, Record

ID = b"<id>"  # in a kind's key and value: replaced by the record's id
CURRENCY = b"<currency>"  # replaced by the deployment's currency
FOREIGN = b"<foreign>"  # replaced by a currency that is not the deployment's
KIND_HEADER = "traffic-kind"

DEPTH = 100_000  # levels: beyond every parser's recursion limit, and still a message of only 200 kB
NEVER_YET_MS = 4_102_444_800_000  # 2100-01-01: inside the contract's range, far ahead of any Kafka timestamp
YEAR_10000_MS = 253_402_300_800_000  # one past the contract's last millisecond


class Poison(NamedTuple):
    """A kind of bad record: a template of key and value, and the reason that must be given for it."""

    name: str
    role: str
    reason: Reason
    value: bytes | None
    key: bytes | None = ID
    headers: Headers = ()


# A good record's fields as raw JSON text: a kind replaces or leaves out one of them.
_PURCHASE = {
    "purchaseId": '"<id>"',
    "customerId": '"<id>"',
    "productId": '"1082185"',
    "amount": "9.99",
    "currency": '"<currency>"',
    "occurredAtEpochMillis": "1483271606000",
}
_PROFILE = {
    "customerId": '"<id>"',
    "name": '"Rowan Stonebridge"',
    "email": '"<id>@example.com"',
    "address": '"7 Mill Lane, 10001 Eastmarsh"',
    "loyaltyStatus": '"GOLD"',
    "updatedAtEpochMillis": "1483142400000",
}


def _json(fields: dict[str, str], *, without: str = "", **raw: str) -> bytes:
    texts = (f'"{name}":{text}' for name, text in (fields | raw).items() if name != without)
    return ("{" + ",".join(texts) + "}").encode()


_purchase, _profile = partial(_json, _PURCHASE), partial(_json, _PROFILE)
_GOOD = _purchase()
_FOREIGN = _purchase(currency='"<foreign>"')
_NUL = r'"<id>\u0000"'
_GOOD_PROFILE = _profile()
_NESTED = "[" * DEPTH + "]" * DEPTH


def _purchases(reason: Reason, kinds: dict[str, bytes | None]) -> list[Poison]:
    return [Poison(name, PURCHASES_ROLE, reason, value) for name, value in kinds.items()]


def _profiles(reason: Reason, kinds: dict[str, bytes | None]) -> list[Poison]:
    return [Poison(f"profile_{name}", PROFILES_ROLE, reason, value) for name, value in kinds.items()]


KINDS: tuple[Poison, ...] = (
    # --- purchases: the key -------------------------------------------------------------------------------------
    Poison("no_key", PURCHASES_ROLE, Reason.MISSING_KEY, _GOOD, key=None),
    Poison("empty_key", PURCHASES_ROLE, Reason.MISSING_KEY, _GOOD, key=b""),
    Poison("no_key_before_no_value", PURCHASES_ROLE, Reason.MISSING_KEY, None, key=None),
    Poison("no_key_before_not_json", PURCHASES_ROLE, Reason.MISSING_KEY, b"{", key=None),
    Poison("key_not_utf8", PURCHASES_ROLE, Reason.NOT_UTF8, _GOOD, key=ID + b"\xff"),
    Poison("other_key", PURCHASES_ROLE, Reason.KEY_MISMATCH, _GOOD, key=b"other-" + ID),
    Poison("key_with_trailing_space", PURCHASES_ROLE, Reason.KEY_MISMATCH, _GOOD, key=ID + b" "),
    Poison("key_as_json_text", PURCHASES_ROLE, Reason.KEY_MISMATCH, _GOOD, key=b'"' + ID + b'"'),
    Poison("other_key_before_other_currency", PURCHASES_ROLE, Reason.KEY_MISMATCH, _FOREIGN, key=b"other-" + ID),
    # --- purchases: the bytes -----------------------------------------------------------------------------------
    *_purchases(Reason.MISSING_VALUE, {"no_value": None}),
    *_purchases(
        Reason.NOT_UTF8,
        {
            "latin1": _purchase(productId='"caf<e>"').replace(b"<e>", b"\xe9"),
            "utf16": BOM_UTF16_LE + _GOOD.decode().encode("utf-16-le"),
            "overlong_slash": _purchase(productId='"a<slash>b"').replace(b"<slash>", b"\xc0\xaf"),
            "surrogate_as_bytes": _purchase(productId='"<half>"').replace(b"<half>", b"\xed\xa0\x80"),
            "surrogate_as_escape": _purchase(productId=r'"\ud800"'),
            "latin1_before_not_json": b"{\xe9",
        },
    ),
    *_purchases(
        Reason.NOT_JSON,
        {
            "text": b"purchase <id> of today",
            "empty_value": b"",
            "blank_value": b" \n",
            "truncated": _GOOD[:-12],
            "trailing_garbage": _GOOD + b" ok",
            "trailing_brace": _GOOD + b"}",
            "two_objects": _GOOD + _GOOD,
            "two_lines": _GOOD + b"\n" + _GOOD + b"\n",
            "byte_order_mark": b"\xef\xbb\xbf" + _GOOD,
            "single_quotes": _GOOD.replace(b'"', b"'"),
            "trailing_comma": _GOOD[:-1] + b",}",
            "comment": b"/* v2 */ " + _GOOD,
            "control_character": _purchase(productId='"a\nb"'),
            "leading_zero": _purchase(amount="09.99"),
            "amount_nan": _purchase(amount="NaN"),
            "amount_infinity": _purchase(amount="Infinity"),
            "amount_minus_infinity": _purchase(amount="-Infinity"),
            "deep_nesting": _purchase(basket=_NESTED),
        },
    ),
    # --- purchases: the fields ----------------------------------------------------------------------------------
    *_purchases(
        Reason.WRONG_TYPE,
        {
            "array": b"[" + _GOOD + b"]",
            "object_in_string": b'"' + _GOOD.replace(b'"', rb"\"") + b'"',
            "number": b"42",
            "json_null": b"null",
            "purchase_id_null": _purchase(purchaseId="null"),
            "customer_id_null": _purchase(customerId="null"),
            "amount_null": _purchase(amount="null"),
            "currency_null": _purchase(currency="null"),
            "occurred_at_null": _purchase(occurredAtEpochMillis="null"),
            "customer_id_number": _purchase(customerId="1001"),
            "product_id_number": _purchase(productId="1082185"),
            "currency_number": _purchase(currency="978"),
            "amount_text": _purchase(amount='"9.99"'),
            "amount_boolean": _purchase(amount="true"),
            "amount_object": _purchase(amount='{"value":9.99}'),
            "amount_array": _purchase(amount="[9.99]"),
            "occurred_at_text": _purchase(occurredAtEpochMillis='"2017-01-01T11:53:26Z"'),
            "occurred_at_number_as_text": _purchase(occurredAtEpochMillis='"1483271606000"'),
            "occurred_at_fraction": _purchase(occurredAtEpochMillis="1483271606000.5"),
            "occurred_at_boolean": _purchase(occurredAtEpochMillis="true"),
        },
    ),
    *_purchases(
        Reason.MISSING_FIELD,
        {
            "empty_object": b"{}",
            "purchase_id_missing": _purchase(without="purchaseId"),
            "customer_id_missing": _purchase(without="customerId"),
            "amount_missing": _purchase(without="amount"),
            "currency_missing": _purchase(without="currency"),
            "occurred_at_missing": _purchase(without="occurredAtEpochMillis"),
        },
    ),
    *_purchases(
        Reason.OUT_OF_RANGE,
        {
            "purchase_id_empty": _purchase(purchaseId='""'),
            "customer_id_empty": _purchase(customerId='""'),
            "amount_negative": _purchase(amount="-0.01"),
            "amount_three_decimals": _purchase(amount="9.999"),
            "amount_tiny_exponent": _purchase(amount="1e-3"),
            "amount_17_digits": _purchase(amount="12345678901234567.00"),
            "currency_lower_case": _purchase(currency='"eur"'),
            "currency_four_letters": _purchase(currency='"EURO"'),
            "currency_empty": _purchase(currency='""'),
            "occurred_at_negative": _purchase(occurredAtEpochMillis="-1"),
            "occurred_at_microseconds": _purchase(occurredAtEpochMillis="1483271606000000"),
            "occurred_at_year_10000": _purchase(occurredAtEpochMillis=str(YEAR_10000_MS)),
            "occurred_at_beyond_64_bits": _purchase(occurredAtEpochMillis=str(10**30)),
            "customer_id_nul": _purchase(customerId=_NUL),
            "customer_id_escape": _purchase(customerId=r'"<id>\u001b[2J"'),
            "product_id_line_break": _purchase(productId=r'"a\nb"'),
            "product_id_next_line": _purchase(productId='"a\x85b"'),
        },
    ),
    Poison("purchase_id_nul", PURCHASES_ROLE, Reason.OUT_OF_RANGE, _purchase(purchaseId=_NUL), key=ID + b"\0"),
    *_purchases(
        Reason.CURRENCY_MISMATCH,
        {
            "other_currency": _FOREIGN,
            "other_currency_before_future": _purchase(currency='"<foreign>"', occurredAtEpochMillis=str(NEVER_YET_MS)),
        },
    ),
    *_purchases(Reason.TIMESTAMP_IN_FUTURE, {"occurred_in_future": _purchase(occurredAtEpochMillis=str(NEVER_YET_MS))}),
    # Headers that a careless reader drops: a name twice, a null value, bytes that are no text.
    Poison(
        "text_with_headers",
        PURCHASES_ROLE,
        Reason.NOT_JSON,
        b"<id>",
        headers=(("attempt", b"1"), ("attempt", b"2"), ("origin", None), ("digest", b"\x00\xff\xfe")),
    ),
    # --- profiles -----------------------------------------------------------------------------------------------
    Poison("profile_empty_key", PROFILES_ROLE, Reason.MISSING_KEY, _GOOD_PROFILE, key=b""),
    Poison("tombstone_empty_key", PROFILES_ROLE, Reason.MISSING_KEY, None, key=b""),
    Poison("profile_key_not_utf8", PROFILES_ROLE, Reason.NOT_UTF8, _GOOD_PROFILE, key=ID + b"\xff"),
    Poison("tombstone_key_not_utf8", PROFILES_ROLE, Reason.NOT_UTF8, None, key=ID + b"\xff"),
    Poison("profile_other_key", PROFILES_ROLE, Reason.KEY_MISMATCH, _GOOD_PROFILE, key=b"other-" + ID),
    *_profiles(
        Reason.NOT_UTF8,
        {
            "latin1": _profile(name='"Ren<e>"').replace(b"<e>", b"\xe9"),
            "surrogate_as_escape": _profile(name=r'"Rowan \udc00"'),
        },
    ),
    *_profiles(
        Reason.NOT_JSON,
        {
            "text": b"profile of <id>",
            "empty_value": b"",  # an empty value deletes nothing: only null does
            "truncated": _GOOD_PROFILE[:-12],
            "trailing_garbage": _GOOD_PROFILE + b",",
            "updated_at_nan": _profile(updatedAtEpochMillis="NaN"),
            "deep_nesting": _profile(preferences=_NESTED),
        },
    ),
    *_profiles(
        Reason.WRONG_TYPE,
        {
            "json_null": b"null",  # the JSON text, not a null value
            "array": b"[" + _GOOD_PROFILE + b"]",
            "customer_id_number": _profile(customerId="1001"),
            "name_null": _profile(name="null"),
            "name_number": _profile(name="7"),
            "email_boolean": _profile(email="false"),
            "address_object": _profile(address='{"street":"7 Mill Lane","city":"Eastmarsh"}'),
            "loyalty_status_number": _profile(loyaltyStatus="3"),
            "updated_at_text": _profile(updatedAtEpochMillis='"yesterday"'),
            "updated_at_null": _profile(updatedAtEpochMillis="null"),
            "updated_at_fraction": _profile(updatedAtEpochMillis="1483142400.25"),
        },
    ),
    *_profiles(
        Reason.MISSING_FIELD,
        {
            "customer_id_missing": _profile(without="customerId"),
            "name_missing": _profile(without="name"),
            "updated_at_missing": _profile(without="updatedAtEpochMillis"),
        },
    ),
    *_profiles(
        Reason.OUT_OF_RANGE,
        {
            "customer_id_empty": _profile(customerId='""'),
            "updated_at_negative": _profile(updatedAtEpochMillis="-1"),
            "updated_at_year_10000": _profile(updatedAtEpochMillis=str(YEAR_10000_MS)),
        },
    ),
    Poison("profile_customer_id_nul", PROFILES_ROLE, Reason.OUT_OF_RANGE, _profile(customerId=_NUL), key=ID + b"\0"),
    Poison("tombstone_key_delete", PROFILES_ROLE, Reason.OUT_OF_RANGE, None, key=ID + b"\x7f"),
    *_profiles(Reason.TIMESTAMP_IN_FUTURE, {"updated_in_future": _profile(updatedAtEpochMillis=str(NEVER_YET_MS))}),
)

_PAYMENT = {
    "purchaseId": '"<id>"',
    "paymentId": '"pay-<id>"',
    "amount": "9.99",
    "currency": '"<currency>"',
    "confirmedAtEpochMillis": "1483271606000",
}
_payment = partial(_json, _PAYMENT)
OF_PAYMENTS: tuple[Poison, ...] = (  # where payments are sent
    Poison("payment_no_key", PAYMENTS_ROLE, Reason.MISSING_KEY, _payment(), key=None),
    Poison("payment_no_value", PAYMENTS_ROLE, Reason.MISSING_VALUE, None),
    Poison("payment_not_json", PAYMENTS_ROLE, Reason.NOT_JSON, b"payment of <id>"),
    Poison("payment_amount_text", PAYMENTS_ROLE, Reason.WRONG_TYPE, _payment(amount='"9.99"')),
    Poison("payment_id_missing", PAYMENTS_ROLE, Reason.MISSING_FIELD, _payment(without="paymentId")),
    Poison("payment_id_empty", PAYMENTS_ROLE, Reason.OUT_OF_RANGE, _payment(paymentId='""')),
    Poison("payment_customer_empty", PAYMENTS_ROLE, Reason.OUT_OF_RANGE, _payment(customerId='""')),
    Poison("payment_other_key", PAYMENTS_ROLE, Reason.KEY_MISMATCH, _payment(), key=b"other-" + ID),
    Poison(
        "payment_in_future",
        PAYMENTS_ROLE,
        Reason.TIMESTAMP_IN_FUTURE,
        _payment(confirmedAtEpochMillis=str(NEVER_YET_MS)),
    ),
)

REASONS = {kind.name: kind.reason for kind in (*KINDS, *OF_PAYMENTS)}


def record(kind: Poison, identity: str, currency: str) -> Record:
    """Make a bad record of a kind; its id is `identity`, and a header names its kind."""
    foreign = "USD" if currency != "USD" else "EUR"

    def filled(template: bytes | None) -> bytes | None:
        if template is None:
            return None
        for mark, text in ((ID, identity), (CURRENCY, currency), (FOREIGN, foreign)):
            template = template.replace(mark, text.encode())
        return template

    headers = (*kind.headers, (KIND_HEADER, kind.name.encode()))
    return Record(kind.role, filled(kind.key), filled(kind.value), headers, BAD + kind.name)
