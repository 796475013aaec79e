"""The sanitiser itself."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest

from customer_activity import shown

EVERYTHING = "".join(chr(point) for point in range(sys.maxunicode + 1))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("C-1 Zoë 東京 \u00a0€ 😀", "C-1 Zoë 東京 \u00a0€ 😀", id="texts of people"),
        pytest.param("\x1b[31m", r"\x1b[31m", id="an escape sequence"),
        pytest.param("\x00\x7f\x9b", r"\x00\x7f\x9b", id="NUL, DEL and C1"),
        pytest.param("a\r\n\tb", r"a\r\n\tb", id="breaks"),
        pytest.param("\u2028\u2029", r"\u2028\u2029", id="separators"),
        pytest.param("\u202egpj\u2066\u200b\ufeff", r"\u202egpj\u2066\u200b\ufeff", id="bidi and hidden"),
        pytest.param("\U000e0041", r"\U000e0041", id="a tag above the BMP"),
        pytest.param("\udcff", r"\udcff", id="half a character"),
        pytest.param(b"\x1b", r"b'\x1b'", id="bytes"),
        pytest.param(None, "None", id="nothing"),
    ],
)
def test_what_is_shown(value: object, text: str) -> None:
    assert shown.escaped(value) == text


def test_nothing_hidden_is_left_of_all_of_unicode() -> None:
    for show, kept in ((shown.escaped, ""), (shown.lines, "\n\t"), (shown.inert, "")):
        assert {c for c in show(EVERYTHING) if unicodedata.category(c) in shown.HIDDEN} == set(kept)
    assert not set(shown.inert(EVERYTHING)) & set("&<>\"'`$")


def test_json_reads_as_the_same_data() -> None:
    halves = [c for c in EVERYTHING if unicodedata.category(c) == "Cs"]  # side by side, two of them are a character
    data = {"".join(c for c in EVERYTHING if unicodedata.category(c) != "Cs"): halves}
    written = shown.json_text(json.dumps(data, ensure_ascii=False, indent=2))
    assert json.loads(written) == data
    assert {c for c in written if unicodedata.category(c) in shown.HIDDEN} == {"\n"}


def test_an_error_has_one_line_that_begins_at_the_margin() -> None:
    assert shown.message("a\nb", "c\nd") == "a\n  b\n  → c\n    d"
    assert shown.message("a", "") == "a"
