"""Which profile record is current. Pure steps, no IO.

Records are in the order of (landing, partition, offset). A tombstone ends the life of a profile; the updates after it
start a new one. Within a life the greatest `updated_at` wins, and of equal ones the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from customer_activity.lake.microbatch import ACCEPTED, DUPLICATE, STALE
from customer_activity.state.profile_records import Profile


def judge(updates: Iterable[Profile], current: Mapping[str, Profile]) -> tuple[list[str], list[int]]:
    """Judge records in their order: accepted, duplicate, or stale.

    Args:
        updates: profile records, tombstones included.
        current: the customers' current profiles (others do no harm).

    Returns:
        The verdicts; and the numbers of the records that change a customer's profile, in their order: the one by which
        it begins, is replaced or ends, and the one by which the profile of before has ended when another began since.
        A profile that was not there before and is not there after has none.
    """
    profiles = dict(current)
    verdicts = []
    changed: dict[str, int] = {}
    ended: dict[str, int] = {}
    for number, update in enumerate(updates):
        customer = update.customer_id
        held = profiles.get(customer)
        if update.is_tombstone:
            profiles.pop(customer, None)
            changed[customer] = ended[customer] = number
            verdicts.append(ACCEPTED)
        elif held is not None and _is_older(update, held):
            verdicts.append(STALE)
        elif held is not None and update.content == held.content:
            verdicts.append(DUPLICATE)
        else:
            profiles[customer] = update
            changed[customer] = number
            verdicts.append(ACCEPTED)
    last = {number for customer, number in changed.items() if customer in profiles or customer in current}
    return verdicts, sorted(last.union(number for customer, number in ended.items() if customer in current))


def _is_older(update: Profile, held: Profile) -> bool:
    return (update.updated_at or 0) < (held.updated_at or 0)
