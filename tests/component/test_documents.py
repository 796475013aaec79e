"""Data Docs of hostile data: real pages, read as a browser reads them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from customer_activity.portal import data_docs
from customer_activity.quality import documents
from customer_activity.quality.judging import Judge, Judged, expectation_of
from customer_activity.quality.rules import Rule, Severity, Suite
from customer_activity.quality.verdicts import Outcome
from customer_activity.storage import s3
from customer_activity.storage.filesystem import write_whole

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
    documents.write(str(folder), "20260301T120000Z-0000abcd", AT, {suite: judged})
    found = sorted(folder.rglob("*.html"))
    assert len(found) == 3  # the index, the run, and its suite
    assert all("customer_activity" in path.read_text() for path in found)
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


def test_a_figure_is_on_the_page_as_it_was_observed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mean = {"expect_column_mean_to_be_between": {"column": "amount", "max_value": 1}}
    rule = Rule(rule="mean", severity=Severity.WARN, why=WHY, expect=mean, suite="silver/purchases")
    frame = pa.table({"amount": [1.25, 2.5]})
    suite = Suite(name="silver/purchases", rules=(rule,), frames={})
    judged = Judge().judge("silver", frame, {rule: expectation_of(rule, {})})
    documents.write(str(tmp_path), run_id(1), AT, {suite: judged})
    page = (tmp_path / "runs" / run_id(1) / "silver.purchases.html").read_text(encoding="utf-8")
    assert "1.875" in page
    assert "0 of 1 rules passed" in page
    assert not caplog.records  # Great Expectations logs what it could not render, and leaves it out


SUITE = Suite(name="silver/purchases", rules=tuple(RULES[:2]), frames={})
JUDGED = {rule: Judged(Outcome.PASSED, None, "", (), None) for rule in RULES[:2]}


def run_id(number: int) -> str:
    return f"2026030{number}T120000Z-{number:08x}"


def write(folder: Path, number: int) -> None:
    documents.write(str(folder), run_id(number), AT + timedelta(days=number - 1), {SUITE: JUDGED})


def reached(folder: Path) -> set[Path]:
    """Follow the links of the index, and theirs; return the pages, all of which are there."""
    found, wanted = set[Path](), [folder / "index.html"]
    while wanted:
        page = wanted.pop()
        found.add(page)
        elements = Structure.of(page.read_text(encoding="utf-8")).elements
        leads_to = {(page.parent / dict(attributes)["href"]).resolve() for tag, attributes in elements if tag == "a"}
        wanted += leads_to - found
    return found


def test_pages_run_no_script_and_load_nothing(hostile: str) -> None:
    elements = Structure.of(hostile).elements
    brings = {"script", "link", "img", "iframe", "object", "embed", "base", "form", "svg", "video", "audio"}
    assert not brings & {tag for tag, _ in elements}
    attributes = [attribute for _, found in elements for attribute in found]
    assert not [name for name, _ in attributes if name.startswith("on") or name in ("src", "srcset")]
    assert not [value for name, value in attributes if name == "href" and ":" in value]
    assert not re.search(r"url\(|@import", hostile)
    assert hostile.count("default-src 'none'; style-src 'unsafe-inline'") == hostile.count("<!DOCTYPE html>") == 3


def test_a_run_leaves_the_pages_of_those_before_it_and_lists_them(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        write(tmp_path, number)
    index = (tmp_path / "index.html").read_text(encoding="utf-8")
    listed = [index.index(f"2026-03-0{number} 12:00:00 UTC") for number in (3, 2, 1)]
    assert listed == sorted(listed)
    assert reached(tmp_path) >= {tmp_path / "runs" / run_id(n) / "silver.purchases.html" for n in (1, 2, 3)}


def test_the_pages_of_the_newest_runs_are_kept_and_none_of_former_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "KEPT_RUNS", 2)
    for former in (f"validations/gold.customer_activity/{run_id(9)}/{run_id(9)}/page.html", "static/styles/docs.css"):
        (tmp_path / former).parent.mkdir(parents=True)
        (tmp_path / former).touch()
    (tmp_path / "report.html").write_text("the report", encoding="utf-8")
    for number in (1, 2, 3):
        write(tmp_path, number)
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {run_id(2), run_id(3)}
    assert {path.name for path in tmp_path.iterdir()} == {"index.html", "report.html", "runs", "runs.json"}
    assert len(reached(tmp_path)) == 5


THEIRS = (
    "runs/2024-01-03_train/model.bin",
    "runs/exp-001/index.html",
    "runs/.gitkeep",
    "validations/orders/20240103T000000Z-run/1/page.html",
    "static/styles/data_docs_default_styles.css",
)


def test_folders_of_somebody_else_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "KEPT_RUNS", 1)
    former = f"validations/gold.customer_activity/{run_id(9)}/{run_id(9)}/page.html"
    for name in (*THEIRS, former):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for number in (1, 2):
        write(tmp_path, number)
    assert [name for name in THEIRS if not (tmp_path / name).exists()] == []
    assert not (tmp_path / former).exists()
    assert {path.name for path in (tmp_path / "runs").glob("2026*")} == {run_id(2)}
    assert len(reached(tmp_path)) == 3


def test_a_folder_whose_name_begins_as_one_of_ours_stays(tmp_path: Path) -> None:
    ours = tmp_path / "validations" / "gold.customer_activity" / run_id(9)
    theirs = ours.with_name(f"{run_id(9)}-theirs")
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "page.html").touch()
    write(tmp_path, 1)
    assert (ours.exists(), (theirs / "page.html").exists()) == (False, True)


@pytest.mark.parametrize("damaged", [b"", b"{", b"\xff", b'[{"run": 1}]'])
def test_a_list_that_cannot_be_read_is_begun_anew(tmp_path: Path, damaged: bytes) -> None:
    write(tmp_path, 1)
    (tmp_path / "runs.json").write_bytes(damaged)
    write(tmp_path, 2)
    assert (tmp_path / "runs" / run_id(1) / "index.html").is_file()
    assert len(reached(tmp_path)) == 3


def test_who_reads_meanwhile_finds_every_page_that_the_index_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "KEPT_RUNS", 1)
    write(tmp_path, 1)
    seen = []

    def looked(*told: Any) -> None:
        write_whole(*told)
        seen.append(len(reached(tmp_path)))

    monkeypatch.setattr(documents, "write_whole", looked)
    write(tmp_path, 2)
    assert seen == [3, 3, 3, 3]


def test_a_store_that_lets_nothing_be_removed_has_the_new_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(_: str) -> None:
        raise PermissionError("AccessDenied: bucket secret")

    monkeypatch.setattr(documents, "_prune", refuses)
    write(tmp_path, 1)
    assert (tmp_path / "index.html").is_file()
    assert "PermissionError" in caplog.text
    assert "secret" not in caplog.text


def test_a_bucket_has_the_same_pages_as_what_they_are(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "KEPT_RUNS", 2)
    store = s3.client()
    store.create_bucket(Bucket="pages")
    for former in (f"validations/gold/{run_id(9)}/1/former.html", "static/styles/docs.css"):
        store.put_object(Bucket="pages", Key=f"quality/{former}", Body=b"former")
    for number in (1, 2, 3):
        index = documents.write("s3a://pages/quality", run_id(number), AT, {SUITE: JUDGED})
    assert index == "s3a://pages/quality/index.html"
    names = {entry["Key"] for entry in store.list_objects_v2(Bucket="pages")["Contents"] if entry["Size"]}
    pages = {f"runs/{run_id(n)}/{name}.html" for n in (2, 3) for name in ("index", "silver.purchases")}
    assert names == {f"quality/{name}" for name in (*pages, "index.html", "runs.json")}
    assert store.get_object(Bucket="pages", Key="quality/index.html")["ContentType"] == "text/html"
    assert b"silver.purchases" in (data_docs.read("s3a://pages/quality", "index.html") or b"")
    assert data_docs.read("s3a://pages/quality", "report.html") is None
