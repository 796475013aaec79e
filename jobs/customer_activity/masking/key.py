"""The key of masked values: a secret in a file, of which nothing but a fingerprint is ever noted or shown.

A process has one key, as it has one set of streams: whoever computes a table again as its commits note it has the lake
alone, and the lake does not have the key.
"""

from __future__ import annotations

import hmac
import os
import secrets
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from customer_activity.errors import SettingsError

LEAST_CHARACTERS = 32  # 128 bits, as `openssl rand -hex 16` has them
FINGERPRINTED = b"customer-activity: fingerprint of the key of masked values"
TO_MAKE_ONE = "make one with `openssl rand -hex 32`, readable by the pipeline alone"

_files: list[Path] = []  # of this process: one, or none


@dataclass(frozen=True)
class Key:
    """A key, and what may be told of it.

    Attributes:
        secret: what values are hashed with.
        fingerprint: 16 hexadecimal digits that change with the key, and do not tell it.
    """

    secret: bytes = field(repr=False)
    fingerprint: str


def make(file: Path) -> None:
    """Make a key at random in a file that only its owner can read."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open(file, "x", encoding="utf-8", opener=partial(os.open, mode=0o600)) as opened:
        opened.write(f"{secrets.token_hex()}\n")


def use(file: Path | None) -> None:
    """Have this process mask with the key in a file; it is read when it is needed."""
    _files[:] = [] if file is None else [file]


def current() -> Key:
    """Return the key of this process.

    Raises:
        SettingsError: there is none, or its file is not one.
    """
    return read(_files[0] if _files else None)


def read(file: Path | None) -> Key:
    """Read a key from its file: one line of text.

    Raises:
        SettingsError: no file is named, it cannot be read, or it holds too little.
    """
    if file is None:
        raise SettingsError(
            "there is no key to mask with: ACTIVITY_MASK_KEY_FILE is not set",
            remedy=f"{TO_MAKE_ONE}, and name its file; or leave the stream out of ACTIVITY_STREAMS",
        )
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"ACTIVITY_MASK_KEY_FILE: {file}: {why}", remedy=TO_MAKE_ONE) from None
    if len(secret) < LEAST_CHARACTERS or "\n" in secret:
        raise SettingsError(
            f"ACTIVITY_MASK_KEY_FILE: {file} has no line of at least {LEAST_CHARACTERS} characters, alone",
            remedy=TO_MAKE_ONE,
        )
    return Key(secret.encode(), hmac.digest(secret.encode(), FINGERPRINTED, "sha256").hex()[:16])
