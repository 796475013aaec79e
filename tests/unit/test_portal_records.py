"""Records of the view topic as the portal reads them: what is found, what changed, and what a viewer sees."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pytest

from customer_activity.portal import records
from support.view import record, value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        pytest.param(None, value(), id="no key"),
        pytest.param(b"", value(), id="an empty key"),
        pytest.param(b"\xff", value(), id="a key that is not UTF-8"),
        pytest.param(b"C-1", b"{", id="not JSON"),
        pytest.param(b"C-1", b"[]", id="no object"),
        pytest.param(b"C-1", b"{}", id="no version"),
        pytest.param(b"C-1", b'{"viewVersion": "1"}', id="a version that is a text"),
        pytest.param(b"C-1", b'{"viewVersion": 1, "name": 7}', id="a name that is none"),
        pytest.param(b"C-1", b"\xff", id="not UTF-8"),
        pytest.param(b"C-1", b'{"viewVersion": 1, "address": "\xff"}', id="a field that is not UTF-8"),
        pytest.param(b"C-1", b'{"viewVersion": 1, "\xff": 1}', id="a name of a field that is not UTF-8"),
        pytest.param(b"C-1", b'{"viewVersion": 1, "address": "\\ud800"}', id="half of a character"),
        pytest.param(b"C-1", b'{"viewVersion": 1, "x": ' + b"[" * 99_999 + b"]" * 99_999 + b"}", id="deeply nested"),
        pytest.param(b"C-1", b'{"viewVersion": 1, "x": {}}', id="an object in a field"),
        pytest.param(b"C-1", b'{"viewVersion": -1}', id="a version before all time"),
        pytest.param(b"C-1", b'{"viewVersion": 9223372036854775808}', id="a version that SQLite cannot hold"),
        pytest.param(b"C-1", b'{"viewVersion": 9223372036854775807}', id="the greatest that it holds"),
        pytest.param(b"C-1", b'{"viewVersion": %d}' % (time.time_ns() // 1000), id="a version in microseconds"),
        pytest.param(b"C-1", b'{"viewVersion": 1%s}' % (b"0" * 5000), id="a version of many digits"),
    ],
)
def test_a_record_that_is_not_the_publishers_is_none(key: bytes | None, text: bytes) -> None:
    assert records.read(key, text, 0) is None


@pytest.mark.parametrize(
    ("version", "at"),
    [
        pytest.param(0, 0, id="the first"),
        pytest.param(
            time.time_ns() // 1_000_000 + records.AHEAD_MILLIS - 60_000, 0, id="of a driver's clock that is fast"
        ),
        pytest.param(10_000_000_000_000, 10_000_000_000_000, id="of now, and the clock of this machine is slow"),
        pytest.param(2**63 - 1, 2**63 - 1, id="of a record that has no time"),
    ],
)
def test_a_version_is_a_time(version: int, at: int) -> None:
    found = records.read(b"C-1", b'{"viewVersion": %d}' % version, at)
    assert found is not None
    assert found.view_version == version


def test_a_null_value_is_a_removal() -> None:
    assert records.read(b"C-1", None, 7) == records.Row("C-1", None, 0, 7, ("", ""))


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        pytest.param({"address": "1 New Street"}, ["address"], id="one field"),
        pytest.param({"totalAmount": Decimal("12.30")}, ["totalAmount"], id="an amount by cents alone"),
        pytest.param({"email": None}, ["email"], id="to null"),
        pytest.param({"viewVersion": 9, "asOfEpochMillis": 9}, [], id="what differs with every change"),
        pytest.param({"tier": "new"}, ["tier"], id="a field of a later release"),
        pytest.param({"purchaseCount": 8, "name": "Ann"}, ["name", "purchaseCount"], id="in the contract's order"),
    ],
)
def test_fields_that_changed_are_named(fields: dict[str, Any], names: list[str]) -> None:
    assert records.changed(value(), value(**fields)) == names


def test_a_viewer_sees_no_character_of_what_is_personal() -> None:
    shown = records.masked(value(name="Ünal", email="u@example.org", address='9 "High" Street', phone="+49 30"))
    assert {name: json.loads(shown)[name] for name in records.PERSONAL} == dict.fromkeys(records.PERSONAL, "•••")
    assert not [word for word in ("nal", "example", "High", "phone", "+49") if word.encode() in shown]


def test_a_viewer_sees_that_there_is_no_value_and_all_the_rest_exactly() -> None:
    text = value(email=None, totalAmount=Decimal("9999999999999999.90"))
    shown = json.loads(records.masked(text), parse_float=Decimal)
    assert shown["email"] is None
    assert shown == json.loads(text, parse_float=Decimal) | {"name": "•••", "address": "•••"}
    assert b"9999999999999999.90" in records.masked(text)


def test_a_row_is_kept_as_it_is_on_the_topic() -> None:
    text = value(name="Zoë\u0000\x1b[31m")
    row = record("C-1", text)
    assert row.value == text
    assert row.words == ("Zoë \x1b[31m", "myrtle@example.org")
