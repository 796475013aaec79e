"""Money in JSON: numbers as the text that they were on the wire, and as whole cents. Standard library only."""

from __future__ import annotations

import re
from functools import lru_cache

WHOLE_DIGITS = 16
MAX_CENTS = 10 ** (WHOLE_DIGITS + 2) - 1
MAX_NUMBER_LENGTH = 100  # characters; a longer one is out of range in any case
MAX_EXPONENT_LENGTH = 18  # digits
_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")


class NumberText(str):
    """The text of a JSON number that has a fraction or an exponent."""

    __slots__ = ()


@lru_cache(maxsize=100_000)  # prices repeat
def cents_of(number: int | NumberText) -> int | None:
    """Return a JSON number as whole cents, or None where it is negative, finer than a cent or longer than 16 digits."""
    if type(number) is int:
        return number * 100 if 0 <= number <= MAX_CENTS // 100 else None
    whole, _, fraction = str(number).partition(".")
    if len(fraction) in (1, 2) and len(whole) <= WHOLE_DIGITS and whole.isdigit() and fraction.isdigit():
        return int(whole + fraction.ljust(2, "0"))
    return _cents_of_unusual(str(number))


def _cents_of_unusual(text: str) -> int | None:
    """Do the same for numbers with a sign, an exponent or more digits after the point; by value, not by looks."""
    match = _NUMBER.fullmatch(text)
    if match is None or len(text) > MAX_NUMBER_LENGTH:
        return None
    sign, whole, fraction, exponent = match[1], match[2], match[3] or "", match[4] or "0"
    if len(exponent.lstrip("+-").lstrip("0")) > MAX_EXPONENT_LENGTH:
        return None
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return 0  # zero, with either sign
    shift = int(exponent) - len(fraction) + 2 + len(digits) - len(significant)
    if sign or shift < 0 or len(significant) + shift > len(str(MAX_CENTS)):
        return None
    return int(significant + "0" * shift)
