"""Payments of generated or real purchases: most in time, some late, early, twice, differing or of no purchase.

Pure and seeded: the same purchases with the same plan give the same payments. Bad records of the payment topic are
among those of the others (`poison.py`) where payments are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from heapq import heappop, heappush
from random import Random
from typing import NamedTuple

import msgspec

from customer_activity import catalog
from customer_activity.demo.traffic.record import PURCHASE, Record

MINUTE_MS = 60_000
ARRIVES_WITHIN = 50  # records after its purchase
_decode_exactly = msgspec.json.Decoder(float_hook=Decimal).decode


class Kind(NamedTuple):
    """How a purchase is paid.

    Attributes:
        name: what such a record is there for.
        share: of the purchases that are paid.
        after: minutes after the purchase at which it is confirmed, from and to.
        more: added to the amount.
        again: what follows it: the same record once more, or a payment of its own.
    """

    name: str
    share: float
    after: tuple[int, int] = (1, 29)
    more: Decimal = Decimal(0)
    again: str = ""


SAME, ANOTHER = "repeated_payment", "second_payment"
EARLY, NOBODYS = "early_payment", "payment_without_purchase"
KINDS = (
    Kind("late_payment", 0.03, after=(31, 600)),
    Kind(EARLY, 0.02, after=(-5, -1)),
    Kind("differing_payment", 0.01, more=Decimal("0.01")),
    Kind(NOBODYS, 0.01),
    Kind("payment", 0.02, again=SAME),
    Kind("payment", 0.01, again=ANOTHER),
    Kind("payment", 0.90),
)
RECORDS_A_PAYMENT = 1 + sum(kind.share for kind in KINDS if kind.again)


@dataclass(frozen=True)
class PaymentTraffic:
    """How many of the purchases somebody tries to pay: 0 to 1."""

    share: float = 0.0
    seed: int = 0


def among(records: Iterable[Record], plan: PaymentTraffic) -> Iterator[Record]:
    """Put the payments of good purchases among the records: an early one before its purchase, others soon after it."""
    random = Random(f"{plan.seed}/payments")
    waiting: list[tuple[int, int, Record]] = []  # a heap: position to come at, which one it is, the payment
    number = 0
    for position, record in enumerate(records):
        payments = _of(record, random) if record.kind == PURCHASE and random.random() < plan.share else []
        for payment in payments:
            number += 1
            if payment.kind == EARLY:
                yield payment
            else:
                heappush(waiting, (position + random.randrange(ARRIVES_WITHIN), number, payment))
        yield record
        while waiting and waiting[0][0] <= position:
            yield heappop(waiting)[-1]
    for _, _, payment in sorted(waiting):
        yield payment


def _of(purchase: Record, random: Random) -> list[Record]:
    """Return the payments of one purchase."""
    fields = _decode_exactly(purchase.value or b"{}")
    (kind,) = random.choices(KINDS, [kind.share for kind in KINDS])
    name = fields["purchaseId"] + ("-nobody" if kind.name == NOBODYS else "")
    paid = {
        "purchaseId": name,
        "paymentId": f"pay-{name}",
        "customerId": fields["customerId"] if random.random() < 0.5 else None,  # noqa: PLR2004 - half of them say
        "amount": msgspec.Raw(str(fields["amount"] + kind.more).encode()),
        "currency": fields["currency"],
        "confirmedAtEpochMillis": fields["occurredAtEpochMillis"] + random.randint(*kind.after) * MINUTE_MS,
    }
    found = [_record(paid, kind.name)]
    if kind.again:
        found.append(_record(paid | ({"paymentId": f"pay-{name}-2"} if kind.again == ANOTHER else {}), kind.again))
    return found


def _record(fields: dict[str, object], kind: str) -> Record:
    return Record(catalog.PAYMENTS_ROLE, str(fields["purchaseId"]).encode(), msgspec.json.encode(fields), kind=kind)
