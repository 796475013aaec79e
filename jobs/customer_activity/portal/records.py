"""Records of the view topic: what is needed of one to find it, what changed in it, and what a viewer may see of it.

A row is kept and served as the JSON text that the publisher wrote, so amounts stay exact to the cent.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec

from customer_activity.contracts.schema import CUSTOMER_ACTIVITY

PERSONAL = ("name", "email", "address")
FIELDS = tuple(field.name for field in CUSTOMER_ACTIVITY.fields)
# A field that this release does not know is not shown to a viewer: nobody has said yet that it is not personal.
OPEN = frozenset(FIELDS) - set(PERSONAL)
TECHNICAL = frozenset({"viewVersion", "asOfEpochMillis"})  # they differ with every change
MASK = msgspec.Raw(b'"\xe2\x80\xa2\xe2\x80\xa2\xe2\x80\xa2"')  # three bullets, whatever is behind them
NULL = b"null"
# A version is a time in milliseconds, by the clock of the driver that gave it. One that is further ahead is nobody's:
# it would keep every later row of its customer out.
AHEAD_MILLIS = 366 * 24 * 3600 * 1000
LATEST_VERSION = 2**63 - 1


class Row(NamedTuple):
    """A record of the view topic.

    Attributes:
        customer_id: its key.
        value: the row as JSON; None when the row was removed.
        view_version: of the row; 0 of a removal.
        at: the record's Kafka timestamp, in milliseconds since 1970.
        words: what it is found by besides its id: name and e-mail address.
    """

    customer_id: str
    value: bytes | None
    view_version: int
    at: int
    words: tuple[str, str]


class _Needed(msgspec.Struct):
    viewVersion: int  # noqa: N815 - the contract's name
    name: str | None = None
    email: str | None = None


_needed = msgspec.json.Decoder(_Needed)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
# Each value of a row is a plain one. All are decoded: text that is not UTF-8 is not noticed otherwise.
_whole = msgspec.json.Decoder(dict[str, str | int | float | bool | None])


def read(key: bytes | None, value: bytes | None, at: int) -> Row | None:
    """Read a record; None for one that is not the publisher's: without a key, not a row as JSON, or of no time."""
    try:
        customer_id = (key or b"").decode()
        if not customer_id:
            return None
        if value is None:
            return Row(customer_id, None, 0, at, ("", ""))
        _whole.decode(value)
        needed = _needed.decode(value)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return None
    if not 0 <= needed.viewVersion <= _latest(at):
        return None
    return Row(customer_id, value, needed.viewVersion, at, _words(needed))


def _latest(at: int) -> int:
    """Return the latest version that a record of this time may have, also where the clock of this machine is slow."""
    return min(LATEST_VERSION, max(at, time.time_ns() // 1_000_000) + AHEAD_MILLIS)


def words(value: bytes) -> tuple[str, str]:
    """Return what a stored row is found by."""
    return _words(_needed.decode(value))


def _words(needed: _Needed) -> tuple[str, str]:
    """Return name and e-mail address; SQLite ends a text at its first U+0000."""
    return (needed.name or "").replace("\0", " "), (needed.email or "").replace("\0", " ")


def changed(before: bytes | None, after: bytes | None) -> list[str]:
    """Name the fields whose values differ between two states of a row, in the contract's order; none without both."""
    if before is None or after is None:
        return []
    old, new = _fields.decode(before), _fields.decode(after)
    names = dict.fromkeys([*FIELDS, *new, *old])
    return [name for name in names if name not in TECHNICAL and bytes(old.get(name, b"")) != bytes(new.get(name, b""))]


def masked(value: bytes) -> bytes:
    """Return a row for a viewer: of personal fields only whether there is a value, and no field that is unknown."""
    fields = _fields.decode(value)
    shown = {
        name: MASK if name in PERSONAL and bytes(text) != NULL else text
        for name, text in fields.items()
        if name in OPEN or name in PERSONAL
    }
    return msgspec.json.encode(shown)
