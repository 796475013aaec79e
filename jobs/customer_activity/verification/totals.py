"""Customers whose total does not fit its type: their rows stay as they last were right, or are not there.

When a row froze depends on how batches were cut, so every state that was right once is allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from customer_activity.verification.records import GREATEST_TOTAL, Activity, Bought, Profile, Purchase


class Frozen(NamedTuple):
    """What the row may be of a customer whose total has left its type; it may as well not be there."""

    bought: Sequence[Bought]  # what was bought after each of the purchases whose total still fitted, in their order
    profiles: Sequence[Profile]  # every profile that was current since the last tombstone; none where there is none now
    currency: str

    def allows(self, row: Activity) -> bool:
        """Whether a row was right once."""
        count = row.purchase_count
        if type(count) is not int or not 0 <= count <= len(self.bought):
            return False
        bought = self.bought[count - 1] if count else None
        return any(row == joined(profile, bought, self.currency) for profile in self.profiles)


def freeze(purchases: Iterable[Purchase], lives: Mapping[str, Sequence[Profile]], currency: str) -> dict[str, Frozen]:
    """Return what the rows may be of some customers, from the purchases that count, in the order in which they did.

    `lives` has, by customer, the profiles that were current since the last tombstone.
    """
    bought: dict[str, list[Bought]] = {customer: [] for customer in lives}
    for purchase in purchases:
        if (states := bought.get(purchase.customer_id)) is None:
            continue
        last = states[-1] if states else Bought(0, 0, purchase.occurred_at, purchase.occurred_at, 0)
        states.append(
            Bought(
                last.purchase_count + 1,
                last.total_amount + purchase.amount,
                min(last.first_purchase_at, purchase.occurred_at),
                max(last.last_purchase_at, purchase.occurred_at),
                max(last.last_kafka_timestamp, purchase.kafka_timestamp),
            )
        )
    return {
        customer: Frozen([s for s in states if s.total_amount <= GREATEST_TOTAL], lives[customer], currency)
        for customer, states in bought.items()
    }


def settled(rows: Iterable[tuple[Any, ...]], frozen: Mapping[str, Frozen]) -> dict[str, Activity]:
    """Return the rows of certain customers that were right once: the one that each of these customers must have.

    `rows` have Activity's columns, then what is not compared.
    """
    found = (Activity._make(row[: len(Activity._fields)]) for row in rows if row[0] in frozen)
    return {row.customer_id: row for row in found if frozen[row.customer_id].allows(row)}


def joined(profile: Profile, bought: Bought | None, currency: str) -> Activity:
    """Return a row of the view; without purchases where nothing was bought."""
    if bought is None:
        return Activity(*profile[:6], 0, 0, currency, None, None, profile.kafka_timestamp)
    count, total, first, last, newest = bought
    return Activity(*profile[:6], count, total, currency, first, last, max(newest, profile.kafka_timestamp))
