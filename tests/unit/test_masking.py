"""Masked values: what joins and what stays readable, the same by the pipeline's rules and by the verifier's."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from customer_activity.errors import SettingsError
from customer_activity.masking import key, values
from customer_activity.verification import masking as verifying
from customer_activity.verification.records import Activity
from support.masks import SECRETS, key_file

SECRET = SECRETS["one"].encode()
TEXTS = st.text(st.sampled_from("a\u00df1205\uff19,.@-_ \t\u0130\xa0\u00e9\u4e2d") | st.characters(), max_size=25)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("Ada@Example.org", "ada@example.ORG ", id="case and space around"),
        pytest.param("Ada  Lovelace", "ada lovelace", id="space within"),
        pytest.param("\uff26\uff55\uff4c\uff4c", "full", id="compatible forms"),
        pytest.param("Stra\u00dfe", "STRASSE", id="case that has two letters"),
        pytest.param("e\u0301", "\u00e9", id="composed and decomposed"),
    ],
)
def test_values_that_mean_the_same_have_one_hash(one: str, other: str) -> None:
    assert values.hashed(SECRET, "email", one) == values.hashed(SECRET, "email", other) is not None


def test_a_hash_is_reproduced_by_whoever_has_the_key() -> None:
    told = hmac.new(SECRET, b"email\x1fada@example.org", hashlib.sha256).hexdigest()
    assert values.hashed(SECRET, "email", "Ada@example.org") == f"v1:{told}"


def test_another_key_and_another_column_have_another_hash() -> None:
    others = [(SECRET, "name"), (SECRET, "address"), (SECRETS["another"].encode(), "name")]
    assert len({values.hashed(secret, column, "Ada") for secret, column in others}) == len(others)


@pytest.mark.parametrize("text", [None, "", " \t\xa0"], ids=["null", "empty", "space"])
def test_what_says_nothing_has_no_hash(text: str | None) -> None:
    assert values.hashed(SECRET, "name", text) is None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param("38 New Street, 20095 Hamburg", "20095", id="before the place"),
        pytest.param("742 Evergreen Terrace, Springfield, IL 62704", "62704", id="behind the place"),
        pytest.param("12 Hill Road, D-20095 Hamburg, Germany", "20095", id="with a country"),
        pytest.param("1 Main Street, Springfield, IL 62704-1234", "62704", id="with what is added to it"),
        pytest.param("12345 Mill Lane, Kingsmere", None, id="a house number is none"),
        pytest.param("12345 Mill Lane 20095 Hamburg", None, id="without a comma"),
        pytest.param("1 Mill Lane, box 12345, 20095 Hamburg", "20095", id="the last one"),
        pytest.param("1 Mill Lane, 10115 or 20095 Berlin", None, id="two in one part"),
        pytest.param("1 Mill Lane, SW1A 1AA London", None, id="letters"),
        pytest.param("1 Mill Lane, 123456 Moscow", None, id="six digits"),
        pytest.param("1 Mill Lane, \uff12\uff10\uff10\uff19\uff15 Hamburg", None, id="digits that are not ASCII"),
        pytest.param(None, None, id="null"),
    ],
)
def test_the_postcode_of_an_address(address: str | None, expected: str | None) -> None:
    assert values.postcode(address) == expected


@pytest.mark.parametrize(
    ("email", "expected"),
    [
        pytest.param(" Ada@Example.ORG", "example.org", id="in lower case"),
        pytest.param("ada@b@example.org", None, id="two signs"),
        pytest.param("Ada <ada@example.org>", None, id="more than the address"),
        pytest.param("@example.org", None, id="nobody"),
        pytest.param("ada@example..org", None, id="an empty label"),
        pytest.param("a@max_mustermann_hauptstr_5", None, id="no dot: it may be anything"),
        pytest.param("ada", None, id="no address"),
        pytest.param(None, None, id="null"),
    ],
)
def test_the_domain_of_an_email_address(email: str | None, expected: str | None) -> None:
    assert values.email_domain(email) == expected


@given(TEXTS, TEXTS, TEXTS)
@example("Ada", "a@b.c", "1 Old Street, 20095 Hamburg")
@example("İ", "a@b-.é", ",1_2345, 12345,x")
@example("\ud800", "a\x1f@b", ",20095\u200b")
def test_the_verifier_comes_to_the_same(
    tmp_path_factory: pytest.TempPathFactory, name: str, email: str, address: str
) -> None:
    file = key_file(tmp_path_factory.getbasetemp())
    row = Activity("C-1", name, email, address, None, None, 0, 0, "EUR", None, None, 0)
    (verified,) = verifying.masks([row], file).to_pylist()
    assert verified == {
        "customer_id": "C-1",
        "name_hash": values.hashed(SECRET, "name", name),
        "email_hash": values.hashed(SECRET, "email", email),
        "email_domain": values.email_domain(email),
        "address_hash": values.hashed(SECRET, "address", address),
        "postcode": values.postcode(address),
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(b"short\n", "at least 32 characters", id="too short"),
        pytest.param(b"a" * 40 + b"\n" + b"b" * 40, "at least 32 characters, alone", id="two lines"),
        pytest.param(b"\xff" * 40, "it is not text", id="not text"),
        pytest.param(None, "No such file", id="no file"),
    ],
)
def test_a_file_that_is_no_key_is_refused_without_its_content(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError, match=words) as refused:
        key.read(file)
    assert "openssl rand" in (refused.value.remedy or "")
    assert "short" not in str(refused.value)
    assert "bbbb" not in str(refused.value)


def test_a_key_tells_its_fingerprint_and_nothing_else(tmp_path: Path) -> None:
    one, another = (key.read(key_file(tmp_path, name)) for name in SECRETS)
    assert one.fingerprint != another.fingerprint
    assert SECRETS["one"] not in repr(one)
    assert one.fingerprint in repr(one)


def test_without_a_key_it_says_what_to_set() -> None:
    with pytest.raises(SettingsError, match="ACTIVITY_MASK_KEY_FILE is not set"):
        key.read(None)


def test_the_verifier_knows_the_key_by_its_fingerprint(tmp_path: Path) -> None:
    one, another = (key_file(tmp_path, name) for name in SECRETS)
    notes: list[dict[str, Any]] = [
        {"query": "maintenance"},
        {"definition": {"rules": "v1", "key": key.read(one).fingerprint}},
    ]
    verifying.require_same("gold.masked", notes, one)
    for file, words in ((another, f"has {key.read(another).fingerprint}"), (None, "is not set")):
        with pytest.raises(SettingsError, match=words):
            verifying.require_same("gold.masked", notes, file)


@pytest.mark.parametrize("note", [{}, {"definition": {"time_zone": "UTC"}}], ids=["none", "of windows"])
def test_a_table_that_notes_no_key_needs_none(note: dict[str, object]) -> None:
    verifying.require_same("gold.daily", [note], None)
