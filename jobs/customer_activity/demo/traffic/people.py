"""Invented people: a profile that depends on nothing but the customer's id. Nobody in it exists."""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from customer_activity import catalog
from customer_activity.demo.traffic.record import PROFILE, Record

# Plants and landscapes rather than a list of first and family names; some letters lie outside ASCII on purpose.
GIVEN = (
    *("Alder", "Aspen", "Basil", "Briar", "Cedar", "Clover", "Érable", "Fern", "Hazel", "Heather", "Ivy", "Jasmine"),
    *("Juniper", "Laurel", "Linden", "Maple", "Myrtle", "Olive", "Rowan", "Sage", "Sorrel", "Tansy", "Willow", "Žalia"),
)
FAMILY = (
    *("Ashbrook", "Birchwood", "Cliffside", "Dünenfeld", "Elmstead", "Fieldgate", "Greenhill", "Havbakke", "Islewater"),
    *("Lakemoor", "Meadowcroft", "Northdale", "O'Shoreham", "Pinecrest", "Quarrybank", "Ridgeway", "Stonebridge"),
)
STREETS = ("Harbour Road", "Mill Lane", "Orchard Street", "Quai du Moulin", "Rosengasse", "Station Road", "Tower Hill")
TOWNS = ("Brookhaven Green", "Eastmarsh", "Førde Vik", "Kingsmere", "Nieuwpolder", "Port Alder", "São Lume", "Westerau")
NO_EMAIL_IN = 20  # one person in twenty gave no mail address: optional fields must be seen missing


class Person(NamedTuple):
    """A customer's profile, without the time of its last change."""

    customer_id: str
    name: str
    email: str | None
    address: str
    loyalty_status: str | None


def person(customer_id: str, loyalty_status: str | None) -> Person:
    """Invent the person behind an id; the same id is always the same person."""
    draw = _number(customer_id)
    name = f"{GIVEN[draw % len(GIVEN)]} {FAMILY[(draw >> 8) % len(FAMILY)]}"
    has_email = (draw >> 16) % NO_EMAIL_IN != 0
    return Person(
        customer_id,
        name,
        f"customer-{customer_id}@example.com" if has_email else None,
        address(customer_id),
        loyalty_status,
    )


def address(customer_id: str, move: int = 0) -> str:
    """Invent where a person lives after that many moves; the number of the move keeps any two addresses apart."""
    draw = _number(f"{customer_id}/{move}")
    flat = f", flat {move}" if move else ""
    postcode = 10_000 + (draw >> 32) % 90_000
    town = TOWNS[(draw >> 16) % len(TOWNS)]
    return f"{draw % 199 + 1} {STREETS[(draw >> 8) % len(STREETS)]}{flat}, {postcode} {town}"


def profile(who: Person, updated_at_ms: int, kind: str = PROFILE) -> Record:
    """Encode a profile update."""
    value = msgspec.json.encode(
        {
            "customerId": who.customer_id,
            "name": who.name,
            "email": who.email,
            "address": who.address,
            "loyaltyStatus": who.loyalty_status,
            "updatedAtEpochMillis": updated_at_ms,
        }
    )
    return Record(catalog.PROFILES_ROLE, who.customer_id.encode(), value, kind=kind)


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
