"""Odd records: valid by the contract, and easy for a careless reader to get wrong. All of them count.

Their purchase and customer ids are the caller's and belong to no other record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from customer_activity import catalog
from customer_activity.demo.traffic.record import Headers, Record

ODD = "odd/"  # followed by the name of a kind: what such a record is there for
NOTE_BYTES = 900_000  # with Kafka's defaults a record has a megabyte at most
GREATEST_CENTS = 10**18 - 1  # two of them are more than a customer's total may be


class Kind(NamedTuple):
    """A kind of odd record: what follows the ids, the amount in cents, what else is in it, and its headers."""

    name: str
    after_ids: str = ""
    cents: int = 999
    more: Mapping[str, Any] = MappingProxyType({})
    headers: Headers = ()


KINDS: tuple[Kind, ...] = (
    Kind("id_of_other_scripts", after_ids="-\u00e9\u4e2d\U0001f600"),
    Kind("id_that_looks_like_code", after_ids="-'\"\\%_<b>{0}"),
    Kind("id_right_to_left", after_ids="-\u202egnol"),
    Kind("id_with_blanks", after_ids=" \u00a0"),
    Kind("id_of_5000_characters", after_ids="-" + "x" * 5_000),
    Kind("greatest_amount", cents=GREATEST_CENTS),
    Kind("amount_zero", cents=0),
    Kind("large", more={"note": "x" * NOTE_BYTES}),
    Kind("unknown_fields", more={"basket": {"lines": [None, 1e300, "\x00\x1b[31m"]}, "customerid": 7}),
    Kind("headers", headers=(("", b""), ("attempt", b"1"), ("attempt", None), ("na\u00efve \x1b[0m", b"\x00\xff"))),
)


def record(kind: Kind, identity: str, currency: str) -> Record:
    """Make an odd purchase; its id, and its customer's, begin with `identity`."""
    name = identity + kind.after_ids
    fields = {"purchaseId": name, "customerId": name, "currency": currency, "occurredAtEpochMillis": 1_483_271_606_000}
    text = json.dumps(fields | dict(kind.more), ensure_ascii=False)[:-1]
    text += f', "amount": {kind.cents // 100}.{kind.cents % 100:02d}}}'
    return Record(catalog.PURCHASES_ROLE, name.encode(), text.encode(), kind.headers, ODD + kind.name)
