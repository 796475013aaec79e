"""Data Docs behind the portal's sign-in: pages that the product wrote, for whom, and nothing else that lies there."""

from __future__ import annotations

import base64
import os
import shutil
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from customer_activity.portal import data_docs
from customer_activity.portal.access import Access, access
from customer_activity.portal.guard import Guard
from customer_activity.portal.metrics import Metrics
from customer_activity.portal.serving import Portal
from customer_activity.quality import documents
from customer_activity.quality.judging import Judged
from customer_activity.quality.rules import Rule, Severity, Suite
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import Settings

VIEWER, PERSONAL, METRICS = "v" * 32, "p" * 32, "m" * 32
RULE = Rule(
    rule="amounts_in_range",
    severity=Severity.HOLD,
    why="It would mean that somebody pays a negative amount.",
    expect={"expect_column_values_to_be_between": {"column": "amount", "min_value": 0}},
    suite="silver/purchases",
)
PAGE = "/data-docs/runs/20260301T120000Z-ab12/silver.purchases.html"


@pytest.fixture
def empty(tmp_path: Path) -> Settings:
    """Return settings of a deployment that has no pages yet, beside a secret."""
    (tmp_path / "secret.html").write_text("secret", encoding="utf-8")
    return Settings(quality_docs=str(tmp_path / "docs"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the pages of a run, and a report beside them."""
    folder = tmp_path_factory.mktemp("docs")
    suite = Suite(name="silver/purchases", rules=(RULE,), frames={})
    results = {suite: {RULE: Judged(Outcome.PASSED, None, "", (), None)}}
    documents.write(str(folder), "20260301T120000Z-ab12", datetime(2026, 3, 1, 12, tzinfo=UTC), results)
    (folder / "report.html").write_text("<!DOCTYPE html>the report", encoding="utf-8")
    return folder


@pytest.fixture
def judged(empty: Settings, written: Path) -> Settings:
    """Return settings of a deployment that has them."""
    shutil.copytree(written, empty.quality_docs)
    return empty


@pytest.fixture
def tokens(tmp_path: Path) -> Access:
    """Return access by a token of each role."""
    file = tmp_path / "tokens"
    file.write_text(f"viewer {VIEWER}\npersonal-data {PERSONAL}\nmetrics {METRICS}\n", encoding="utf-8")
    return access(Settings(portal_tokens=file))


def client(settings: Settings, allowed: Access | None = None) -> TestClient:
    app = FastAPI()
    app.include_router(data_docs.router(cast("Portal", SimpleNamespace(settings=settings))))

    @app.get("/customers")
    async def customers() -> str:
        return "a customer"

    guarded = Guard(app, allowed or access(settings), Metrics())
    return TestClient(guarded, base_url="http://localhost:8090", follow_redirects=False)


def basic(token: str, name: str = "") -> str:
    return f"Basic {base64.b64encode(f'{name}:{token}'.encode()).decode()}"


def get(settings: Settings, path: str, allowed: Access | None = None, **headers: str) -> httpx.Response:
    asked = {name.replace("_", "-"): value for name, value in headers.items()}
    return cast("httpx.Response", client(settings, allowed).get(path, headers=asked))


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/data-docs/", "The newest run of quality"),
        ("/data-docs/index.html", "The newest run of quality"),
        ("/data-docs/runs/20260301T120000Z-ab12/index.html", "silver.purchases"),
        (PAGE, "amounts_in_range"),
        ("/data-docs/report.html", "the report"),
    ],
)
def test_pages_are_served(judged: Settings, path: str, says: str) -> None:
    answer = get(judged, path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert says in answer.text


def test_the_folder_is_where_links_are_relative_to(judged: Settings) -> None:
    answer = get(judged, "/data-docs")
    assert (answer.status_code, answer.headers["location"]) == (307, "/data-docs/")


def test_a_browser_is_told_to_run_nothing_to_load_nothing_and_to_keep_nothing(judged: Settings) -> None:
    for path in ("/data-docs/", PAGE, "/data-docs/nowhere", "/data-docs"):
        headers = get(judged, path).headers
        (policy,) = headers.get_list("content-security-policy")
        assert policy.startswith("default-src 'none'; style-src 'unsafe-inline';")
        assert "frame-ancestors 'none'" in policy
        assert "script" not in policy
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    (policy,) = get(judged, "/customers").headers.get_list("content-security-policy")
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        pytest.param("", 401, id="nobody"),
        pytest.param(f"Bearer {VIEWER}", 200, id="a viewer, who shows a header"),
        pytest.param(basic(VIEWER), 200, id="a viewer's browser"),
        pytest.param(basic(VIEWER, "jane"), 200, id="whatever name is typed"),
        pytest.param(basic(PERSONAL), 200, id="personal data"),
        pytest.param(basic(METRICS), 403, id="who scrapes metrics"),
        pytest.param(basic("x" * 32), 401, id="a password that is no token"),
        pytest.param(basic(""), 401, id="no password"),
        pytest.param(f"Basic {base64.b64encode(VIEWER.encode()).decode()}", 401, id="a name alone"),
        pytest.param(f"Basic {VIEWER}", 401, id="a token that is not written as one"),
        pytest.param("Basic " + base64.b64encode(b":\xff\xfe").decode(), 401, id="no text"),
        pytest.param(f"Digest {VIEWER}", 401, id="another scheme"),
    ],
)
@pytest.mark.parametrize("path", ["/data-docs/", "/data-docs", PAGE, "/data-docs/report.html", "/data-docs/nowhere"])
def test_a_token_is_asked_for_and_may_be_the_password_that_a_browser_asks_for(
    judged: Settings, tokens: Access, path: str, authorization: str, status: int
) -> None:
    answer = get(judged, path, tokens, Authorization=authorization)
    assert (answer.status_code == status) if status >= 400 else (answer.status_code not in (401, 403))
    assert answer.headers.get("www-authenticate", "").startswith("Basic realm=") is (status == 401)


def test_a_password_that_a_browser_sends_by_itself_opens_nothing_else(judged: Settings, tokens: Access) -> None:
    answer = get(judged, "/customers", tokens, Authorization=basic(PERSONAL))
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}, 200, id="a link of Airflow"),
        pytest.param({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors"}, 403, id="a page on another port"),
        pytest.param({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors"}, 403, id="an image elsewhere"),
    ],
)
def test_pages_of_others_may_lead_there_and_read_nothing(
    judged: Settings, tokens: Access, headers: dict[str, str], status: int
) -> None:
    assert get(judged, "/data-docs/", tokens, Authorization=basic(VIEWER), **headers).status_code == status


@pytest.mark.parametrize(
    "path",
    [
        "../secret.html",
        "..%2Fsecret.html",
        "%2e%2e/secret.html",
        "runs/../../secret.html",
        "runs/..%2F..%2Fsecret.html",
        "runs/%2E%2E/report.html",
        "..%5Csecret.html",
        "/secret.html",
        "%2Fsecret.html",
        "runs.json",
        "notes.txt",
        "other.html",
        "index/html",
        "report_html",
        f"runs/{'a' * 300}/index.html",
        "index.html%00",
        "index.html/",
        "runs/",
        "runs/20260301T120000Z-ab12",
        "runs/20260301T120000Z-ab12/",
        "runs/link/secret.html",
        "runs/20260301T120000Z-ab12/link.html",
        "runs/20260301T120000Z-ab12/loop.html",
        "runs/20260301T120000Z-ab12/pipe.html",
        "runs/20260301T120000Z-ab12/folder.html",
        "runs/20260301T120000Z-ab12/index.html/x.html",
    ],
)
def test_nothing_else_that_lies_there_is_served(judged: Settings, path: str) -> None:
    docs = Path(judged.quality_docs)
    run = docs / "runs" / "20260301T120000Z-ab12"
    for name in ("notes.txt", "other.html"):
        (docs / name).write_text("secret", encoding="utf-8")
    (docs / "runs" / "link").symlink_to(docs.parent)
    (run / "link.html").symlink_to(docs.parent / "secret.html")
    (run / "loop.html").symlink_to(run / "loop.html")
    (run / "folder.html").mkdir()
    os.mkfifo(run / "pipe.html")
    answer = get(judged, f"/data-docs/{path}")
    assert answer.status_code == HTTPStatus.NOT_FOUND
    assert "secret" not in answer.text


def test_pages_behind_a_link_to_the_folder_are_served(judged: Settings, tmp_path: Path) -> None:
    (tmp_path / "linked").symlink_to(judged.quality_docs)
    assert get(Settings(quality_docs=str(tmp_path / "linked")), PAGE).status_code == 200


@pytest.mark.parametrize(
    ("path", "says"), [("/data-docs/", "activity quality"), ("/data-docs/report.html", "activity report")]
)
def test_what_is_not_there_yet_is_said_with_what_writes_it(empty: Settings, path: str, says: str) -> None:
    answer = get(empty, path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert says in answer.text


def test_a_folder_that_cannot_be_read_is_said_without_where_it_is(
    judged: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(*_: object) -> bytes:
        raise PermissionError("/var/lib/quality")

    monkeypatch.setattr(data_docs, "read", refuses)
    answer = get(judged, "/data-docs/")
    assert (answer.status_code, answer.text) == (503, "Data Docs cannot be read: PermissionError\n")
    assert "/var/lib/quality" not in caplog.text


def test_what_commands_write_is_what_is_served(judged: Settings) -> None:
    docs = Path(judged.quality_docs)
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.html")}
    assert len(written) == 4
    assert all(data_docs.PAGE.fullmatch(name) for name in written)
