"""The portal's answers: what is in them, for whom, and what a browser and a log get to know."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from customer_activity.errors import EnvironmentFault
from customer_activity.portal import server, store
from customer_activity.portal.access import Access, access
from customer_activity.portal.events import Broadcast
from customer_activity.portal.following import Follower
from customer_activity.portal.freshness import Watch
from customer_activity.portal.guard import Guard
from customer_activity.portal.metrics import Metrics
from customer_activity.portal.pipeline import Pipeline
from customer_activity.portal.reading import Reader
from customer_activity.portal.server import described
from customer_activity.portal.serving import Portal
from customer_activity.portal.store import Store
from customer_activity.settings import Settings
from support.view import gone, row

VIEWER, PERSONAL, METRICS = "v" * 32, "p" * 32, "m" * 32
HOSTILE = '<img src=x onerror=alert(1)>\u202e\x1b[31m"'
Asks = Callable[..., Any]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Store]:
    """Return a store that has two customers."""
    held = store.create(tmp_path / "portal", "topic", {0: 0})
    held.finish()
    held.take([row(), row("C/2?#", name=HOSTILE, email=None)], {0: 2})
    yield held
    held.close()


@pytest.fixture
def portal(settings: Settings, held: Store) -> Portal:
    """Return a portal that serves it, and is current."""
    watch, metrics = Watch(10.0), Metrics()
    follower = Follower(settings, watch, lambda _: None)
    portal = Portal(settings, watch, follower, Broadcast(), metrics, Pipeline(settings))
    metrics.watch(watch, follower)
    watch.begin(held.positions, 0)
    follower._serve(held)
    watch.heard(watch.moment(), {0: 2}, watch.positions)
    return portal


def client(portal: Portal, allowed: Access | None = None, **headers: str) -> TestClient:
    app = Guard(described(portal), allowed or access(portal.settings), portal.metrics)
    return TestClient(app, base_url="http://localhost:8090", headers=headers)


@pytest.fixture
def tokens(tmp_path: Path) -> Access:
    """Return access by a token of each role."""
    file = tmp_path / "tokens"
    file.write_text(f"viewer {VIEWER}\npersonal-data {PERSONAL}\nmetrics {METRICS}\n", encoding="utf-8")
    return access(Settings(portal_tokens=file))


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_row_is_that_of_the_topic_with_how_fresh_it_is(portal: Portal) -> None:
    answer = client(portal).get("/customers/C-1")
    assert answer.json()["customer"] == json.loads(row().value or b"")
    freshness = answer.json()["freshness"]
    assert (freshness["state"], freshness["lagRecords"], freshness["position"]) == ("current", 0, {"0": 2})
    assert answer.headers["portal-state"] == "current"
    assert answer.headers["portal-complete-until"] == str(freshness["completeUntilEpochMillis"])


def test_an_amount_is_exact(portal: Portal, held: Store) -> None:
    text = (row(version=2).value or b"").replace(b'"totalAmount":12.5', b'"totalAmount":9999999999999999.90')
    held.take([row(version=2)._replace(value=text)], {0: 3})
    assert b'"totalAmount":9999999999999999.90' in client(portal).get("/customers/C-1").content


@pytest.mark.parametrize("path", ["/customers/C%2F2%3F%23", "/customers?q=C/2"])
def test_an_id_may_be_any_text(portal: Portal, path: str) -> None:
    answer = client(portal).get(path).json()
    assert [row["name"] for row in answer.get("customers", [answer.get("customer")])] == [HOSTILE]


def test_a_customer_without_a_row_is_told_so_with_how_fresh_that_is(portal: Portal) -> None:
    answer = client(portal).get("/customers/C-9")
    assert (answer.status_code, answer.json()["freshness"]["state"]) == (404, "current")
    assert "C-9" not in answer.text


@pytest.mark.parametrize(
    "path", ["/customers/C-1", "/customers?q=C", "/changes", "/readyz"], ids=["row", "search", "changes", "ready"]
)
def test_while_it_restores_there_is_no_answer_but_how_far_it_is(portal: Portal, path: str) -> None:
    portal.watch.begin({0: 0}, 0)
    portal.watch.restoring(0.42)
    portal.follower.reader = None
    answer = client(portal).get(path)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    assert (answer.json()["freshness"]["state"], answer.json()["freshness"]["restored"]) == ("restoring", 0.42)


def test_what_is_stale_is_served_and_says_so(portal: Portal) -> None:
    portal.watch.stale_seconds = 0.0
    portal.watch.failed("asking", "no answer from Kafka at localhost:1")
    answer = client(portal).get("/customers/C-1")
    assert (answer.status_code, answer.json()["customer"]["name"]) == (200, "Myrtle Ridgeway")
    assert answer.json()["freshness"] | {"state": "silent", "stale": True} == answer.json()["freshness"]
    assert answer.json()["freshness"]["problem"] == "no answer from Kafka at localhost:1"
    assert client(portal).get("/readyz").status_code == 503


@pytest.mark.parametrize(
    ("token", "status"),
    [(None, 401), ("x" * 32, 401), (VIEWER, 200), (PERSONAL, 200)],
    ids=["nobody", "a token that is none", "a viewer", "personal data"],
)
@pytest.mark.parametrize(
    "path", ["/customers/C-1", "/customers?q=C", "/changes", "/flow", "/quality", "/alerts", "/metrics"]
)
def test_every_route_that_shows_data_asks_for_a_token(
    portal: Portal, tokens: Access, path: str, token: str | None, status: int
) -> None:
    answer = client(portal, tokens).get(path, headers=bearer(token) if token else {})
    assert answer.status_code == status
    assert ("www-authenticate" in answer.headers) is (status == 401)


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/customers/C-1", 403), ("/flow", 403), ("/", 200)])
def test_who_scrapes_metrics_sees_nothing_else(portal: Portal, tokens: Access, path: str, status: int) -> None:
    assert client(portal, tokens).get(path, headers=bearer(METRICS)).status_code == status


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_who_has_no_token_is_not_told_where_the_brokers_are(portal: Portal, tokens: Access, path: str) -> None:
    portal.watch.failed("asking", "no answer from Kafka at kafka:9092")
    assert "kafka:9092" not in client(portal, tokens).get(path).text
    assert "kafka:9092" in client(portal, tokens).get(path, headers=bearer(VIEWER)).text


def test_routes_that_are_not_known_to_be_open_are_closed(portal: Portal, tokens: Access) -> None:
    app = described(portal)
    paths = [route.path for route in app.routes if hasattr(route, "path")]
    found = {path for path in paths if client(portal, tokens).get(path).status_code != 401}
    assert found == {"/", "/docs", "/livez", "/readyz", "/openapi.json"}


@pytest.mark.parametrize("path", ["/customers/C-1", "/customers?q=C-1", "/changes"])
def test_a_viewer_gets_no_character_of_what_is_personal(portal: Portal, tokens: Access, path: str) -> None:
    text = client(portal, tokens).get(path, headers=bearer(VIEWER)).text
    assert "•••" in text
    assert not [word for word in ("Myrtle", "Ridgeway", "example.org", "Mill Lane", "onerror") if word in text]


def test_a_viewer_finds_nobody_by_name(portal: Portal, tokens: Access) -> None:
    for token, found in ((VIEWER, 0), (PERSONAL, 1)):
        answer = client(portal, tokens).get("/customers?q=ridgeway", headers=bearer(token)).json()
        assert len(answer["customers"]) == found


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 200, id="no browser"),
        pytest.param({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, 200, id="this page"),
        pytest.param({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200, id="the address bar"),
        pytest.param({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200, id="a link of another page"),
        pytest.param({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403, id="an image of another page"),
        pytest.param({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, 403, id="a page on another port"),
        pytest.param({"Host": "evil.example.org"}, 421, id="a name that was made to lead here"),
    ],
)
def test_pages_of_others_get_no_answer(portal: Portal, headers: dict[str, str], status: int) -> None:
    answer = client(portal).get("/customers/C-1", headers=headers)
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_requests_only_read(portal: Portal, method: str) -> None:
    assert client(portal).request(method, "/customers/C-1").status_code == 405


def test_no_page_runs_a_script_of_anything_but_its_own_files(portal: Portal) -> None:
    for path in ("/", "/docs", "/customers/C-1", "/nowhere", "/assets/main.js"):
        policy = client(portal).get(path).headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self';" in policy
        assert "unsafe" not in policy
    for path in ("/", "/docs"):
        page = client(portal).get(path).text
        assert "://" not in page
        assert "<script>" not in page
        assert " style=" not in page


def test_every_file_that_a_page_names_is_there(portal: Portal) -> None:
    asked, wanted = set[str](), ["/", "/docs"]
    while wanted:
        path = wanted.pop()
        answer = client(portal).get(path)
        assert answer.status_code == 200, path
        asked.add(path)
        words = answer.text.replace("'", '"').split('"')
        named = [word if word.startswith("/assets/") else f"/assets/{word[2:]}" for word in words if is_asset(word)]
        wanted += [name for name in named if name not in asked]
    assert {"/assets/main.js", "/assets/style.css", "/assets/text.js", "/assets/docs.js"} <= asked


def is_asset(word: str) -> bool:
    return word.startswith(("/assets/", "./")) and word.endswith((".js", ".css", ".svg"))


def test_logs_and_metrics_have_nothing_of_a_customer(
    portal: Portal, tokens: Access, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    asks = client(portal, tokens)
    for path in ("/customers/C-1", "/customers?q=Ridgeway", "/nowhere/C-1", "/changes?customer=C-1"):
        asks.get(path)
        asks.get(path, headers=bearer(PERSONAL))
    text = asks.get("/metrics", headers=bearer(VIEWER)).text
    logging.getLogger().removeHandler(handler)
    seen = text + "".join(capsys.readouterr())
    assert not [word for word in ("C-1", "Ridgeway", VIEWER, PERSONAL) if word in seen]


def test_a_request_that_fails_says_nothing_of_why(
    portal: Portal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("Myrtle Ridgeway")

    monkeypatch.setattr(Reader, "row", fails)
    asks = client(portal)
    asks._transport.raise_server_exceptions = False  # type: ignore[attr-defined]
    answer = asks.get("/customers/C-1")
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert "ValueError" in caplog.text
    assert "Myrtle" not in caplog.text


def test_metrics_move(portal: Portal, held: Store) -> None:
    def figures() -> dict[tuple[str, str], float]:
        text = client(portal).get("/metrics").text
        return {
            (sample.name.removeprefix("activity_portal_"), ",".join(sample.labels.values())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    before = figures()
    client(portal).get("/customers/C-1")
    client(portal).get("/customers/C-9")
    held.take([gone()], {0: 3})
    portal.follower._serve(held)
    portal.watch.heard(portal.watch.moment(), {0: 7}, portal.watch.positions)
    after = figures()
    for status in ("200", "404"):
        assert after["requests_total", f"/customers/{{customer_id:path}},{status}"] == 1
    assert after["request_seconds_count", "/customers/{customer_id:path}"] == 2
    assert (before["customers", ""], after["customers", ""]) == (2, 1)
    assert (before["lag_records", ""], after["lag_records", ""]) == (0, 5)
    assert after["state", "current"] == 1


def test_a_lake_that_cannot_be_read_is_said_and_the_rows_are_served(portal: Portal) -> None:
    answer = client(portal).get("/flow").json()
    assert answer["flow"]["notes"]  # there is neither a broker nor a lake
    assert [stream["state"] for stream in answer["flow"]["streams"]] == ["not started"] * len(answer["flow"]["streams"])
    assert client(portal).get("/quality").json()["quality"] == {
        "judgedAtEpochMillis": None,
        "rules": [],
        "holding": {},
        "overridden": {},
    }


def test_no_answer_waits_until_its_first_half_is_acknowledged() -> None:
    with server._listening("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP  # asyncio switches Nagle's algorithm off for no other


def test_a_port_that_is_taken_is_said() -> None:
    with server._listening("127.0.0.1", 0) as listening:
        listening.listen()
        with pytest.raises(EnvironmentFault, match="ACTIVITY_PORTAL_PORT"):
            server._listening("127.0.0.1", listening.getsockname()[1])


def test_the_api_describes_each_of_its_routes(portal: Portal) -> None:
    described_paths = client(portal).get("/openapi.json").json()["paths"]
    assert set(described_paths) == {
        *("/customers/{customer_id}", "/customers", "/changes", "/events", "/flow", "/quality", "/alerts", "/windows"),
        *("/livez", "/readyz", "/metrics"),
    }
    assert all(path["get"]["summary"] for path in described_paths.values())
