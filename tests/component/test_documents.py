"""Data Docs of hostile data: real pages, read as a browser reads them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pytest

from customer_activity.quality import documents
from customer_activity.quality.judging import Judge, expectation_of
from customer_activity.quality.rules import Rule, Severity, Suite
from customer_activity.quality.verdicts import Outcome

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
WHY = "It would mean that somebody counts twice."
HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "\"'><script>alert(1)</script>",
    "javascript:alert(1)//[x](javascript:alert(2))",
    "${v__0}$column&lt;b&gt;{{section_id}}{% raw %}",
    "\x1b]0;owned\x07\u202egpj.<b>\x00\n<i>",
)
EXPECTATIONS = {
    "unique_ids": {"expect_column_values_to_be_unique": {"column": "customer_id"}},
    "known_ids": {"expect_column_values_to_be_in_set": {"column": "customer_id", "value_set": ["A"]}},
    "numbers_alone": {"expect_column_mean_to_be_between": {"column": "customer_id", "max_value": 1}},
    "no_name_twice": {"expect_column_values_to_be_unique": {"column": "name"}},
    "names_are_numbers": {"expect_column_mean_to_be_between": {"column": "name", "max_value": 1}},
}
RULES = [
    Rule(rule=name, severity=Severity.HOLD, why=WHY, expect=expect, suite="gold/customer_activity")
    for name, expect in EXPECTATIONS.items()
]


class Structure(HTMLParser):
    """What of a page is markup: its elements with their attributes; and what a reader reads."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[tuple[str, str], ...]]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # Ids and times that are drawn anew for each page are not of the data.
        drawn = r"[0-9a-f-]{36,}|\d{8}T\d{6}\.\d+Z"
        values = ((name, re.sub(drawn, "", value or "")) for name, value in attrs)
        self.elements.append((tag, tuple(values)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @classmethod
    def of(cls, page: str) -> Structure:
        structure = cls()
        structure.feed(page)
        return structure


def pages(folder: Path, ids: list[str], names: list[str]) -> str:
    """Judge ids and names, each there twice; return the text of all pages."""
    judge = Judge()
    frame = pa.table({"customer_id": ids * 2, "name": names * 2})
    suite = Suite(name="gold/customer_activity", rules=tuple(RULES), frames={})
    judged = judge.judge("gold", frame, {rule: expectation_of(rule, {}) for rule in RULES})
    assert {found.outcome for found in judged.values()} <= {Outcome.FAILED, Outcome.ERROR}
    documents.write(judge, str(folder), "20260301T120000Z-run", AT, {suite: judged})
    found = [path for path in sorted(folder.rglob("*.html")) if "customer_activity" in path.read_text()]
    assert len(found) >= 2  # the index, and the page of the run
    return "\n".join(path.read_text(encoding="utf-8") for path in found)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    return pages(tmp_path_factory.mktemp("hostile"), list(HOSTILE), [f"name-of-{text}" for text in HOSTILE])


def test_no_element_and_no_attribute_comes_from_data(hostile: str, tmp_path: Path) -> None:
    harmless = Structure.of(pages(tmp_path / "docs", list("BCDEF"), list("VWXYZ")))
    found = Structure.of(hostile)
    assert len(found.elements) > 100
    assert found.elements == harmless.elements


def test_a_reader_sees_what_the_data_are(hostile: str) -> None:
    text = "".join(Structure.of(hostile).text)
    assert r"\x3cimg src=x onerror=alert(1)\x3e" in text
    assert "javascript:alert(1)" in text
    assert r"\x1b]0;owned\x07\u202egpj.\x3cb\x3e\x00\n\x3ci\x3e" in text


def test_nothing_about_a_person_is_in_a_page(hostile: str) -> None:
    assert "name-of-" not in hostile
