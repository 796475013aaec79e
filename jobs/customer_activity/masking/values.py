"""The masked values of a customer: keyed hashes that join, and what of a text stays readable. Pure functions.

A hash is `v1:` and the HMAC-SHA-256 of the normalised text, in hexadecimal digits, under the key of the deployment.
The name of the column is hashed, too: a name and an address that are one text have two hashes. `docs/ANALYSTS.md` has
the rules; `verification/masking.py` has them a second time, on purpose.
"""

from __future__ import annotations

import hmac
import re
import unicodedata

VERSION = "v1"  # of these rules: with others a value has another hash
BETWEEN = "\x1f"
POSTCODE = re.compile(r"(?<!\w)[0-9]{5}(?!\w)")
EMAIL = re.compile(r"[^\s@]+@([\w-]+(?:\.[\w-]+)+)")  # with a dot: a name that was typed behind an @ is no domain


def normalised(text: str) -> str:
    """Return a text as it is hashed: NFKC, without case, and with single spaces between words alone."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def hashed(secret: bytes, column: str, text: str | None) -> str | None:
    """Return the keyed hash of a column's value; None where it says nothing."""
    if text is None or not (plain := normalised(text)):
        return None
    message = f"{column}{BETWEEN}{plain}".encode("utf-8", "surrogatepass")
    return f"{VERSION}:{hmac.digest(secret, message, 'sha256').hex()}"


def email_domain(email: str | None) -> str | None:
    """Return the domain of an e-mail address, in lower case; None where there is no such address."""
    found = None if email is None else EMAIL.fullmatch(email.strip())
    return None if found is None else found[1].lower()


def postcode(address: str | None) -> str | None:
    """Return the postcode of an address: five digits that stand alone, behind its first comma; None without any.

    A house number is before the first comma. Of several parts with such digits the last one counts; two groups in one
    part leave it open which it is.
    """
    for part in reversed((address or "").split(",")[1:]):
        if found := POSTCODE.findall(part):
            return str(found[0]) if len(found) == 1 else None
    return None
