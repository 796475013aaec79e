"""What the masked table must have of each customer, by the rules of docs/ANALYSTS.md and nothing of the pipeline's."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from customer_activity.errors import SettingsError
from customer_activity.verification.records import Activity

SCHEMA = pa.schema(
    {
        name: pa.string()
        for name in ("customer_id", "name_hash", "email_hash", "email_domain", "address_hash", "postcode")
    }
)
POSTCODE_DIGITS = 5
FINGERPRINTED = b"customer-activity: fingerprint of the key of masked values"


def masks(rows: Iterable[Activity], key_file: Path | None) -> pa.Table:
    """Return the masked values of customers; none without a key.

    Raises:
        SettingsError: the key cannot be read.
    """
    if key_file is None:
        return SCHEMA.empty_table()
    key = _key(key_file)
    masked = [
        (
            row.customer_id,
            _hash(key, "name", row.name),
            _hash(key, "email", row.email),
            _domain(row.email),
            _hash(key, "address", row.address),
            _postcode(row.address),
        )
        for row in rows
    ]
    columns = zip(*masked, strict=True) if masked else ((),) * len(SCHEMA)
    return pa.table([pa.array(column, pa.string()) for column in columns], schema=SCHEMA)


def require_same(label: str, notes: Iterable[Mapping[str, Any]], key_file: Path | None) -> None:
    """Make sure that a table was computed with this key, as its commits note it, the newest first.

    Raises:
        SettingsError: it was computed with another one, or there is none.
    """
    noted = next((note["definition"].get("key") for note in notes if "definition" in note), None)
    own = None if key_file is None else hmac.digest(_key(key_file), FINGERPRINTED, "sha256").hex()[:16]
    if noted is not None and noted != own:
        raise SettingsError(
            f"{label} was computed with the key with fingerprint {noted}, and "
            + (f"{key_file} has {own}" if own else "ACTIVITY_MASK_KEY_FILE is not set"),
            remedy="name the file that the streams mask with",
        )


def _key(file: Path) -> bytes:
    try:
        return file.read_bytes().strip()
    except OSError as error:
        raise SettingsError(
            f"ACTIVITY_MASK_KEY_FILE: {file}: {error.strerror}", remedy="name the file that the streams mask with"
        ) from None


def _hash(key: bytes, column: str, text: str | None) -> str | None:
    words = unicodedata.normalize("NFKC", text or "").casefold().split()
    if not words:
        return None
    made = hmac.new(key, digestmod=hashlib.sha256)
    made.update(f"{column}\x1f".encode())
    made.update(" ".join(words).encode("utf-8", "surrogatepass"))
    return f"v1:{made.hexdigest()}"


def _domain(email: str | None) -> str | None:
    user, at, domain = (email or "").strip().partition("@")
    labels = domain.split(".")
    if not user or not at or any(character.isspace() for character in user):
        return None
    is_domain = len(labels) > 1 and all(
        label and all(letter.isalnum() or letter in "_-" for letter in label) for label in labels
    )
    return domain.lower() if is_domain else None


def _postcode(address: str | None) -> str | None:
    _, *parts = (address or "").split(",")
    for part in reversed(parts):
        words = "".join(letter if letter.isalnum() or letter == "_" else " " for letter in part).split()
        if found := [word for word in words if len(word) == POSTCODE_DIGITS and set(word) <= set("0123456789")]:
            return found[0] if len(found) == 1 else None
    return None
