"""Who is told that a task failed, and that telling them breaks nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any, Self

import pytest
from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException
from structlog.testing import capture_logs

from activity_dags import alerts
from activity_dags.pipelines import DEFAULT, Pipeline

NAME = "customer_activity_alerts"
TASK = SimpleNamespace(dag_id="customer_activity_quality", task_id="judge", log_url="http://airflow/log")
CONTEXT = {"ti": TASK, "exception": ValueError("2 of 61 rules failed: rows_follow_their_changes")}

alert = alerts.alerts_of(Pipeline(DEFAULT))


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes the connection."""

    def connect(**values: Any) -> None:
        made = Connection(conn_id=NAME, **values)
        monkeypatch.setattr(BaseHook, "get_connection", {NAME: made}.__getitem__)

    return connect


@pytest.fixture
def webhook(serve: Callable[..., int]) -> tuple[str, list[dict[str, Any]]]:
    """Take what is posted; a path that ends in `broken` is refused."""
    posted: list[dict[str, Any]] = []

    def take(request: BaseHTTPRequestHandler) -> tuple[int, dict[str, Any]]:
        posted.append(json.loads(request.rfile.read(int(request.headers["Content-Length"]))))
        return 500 if request.path.endswith("broken") else 200, {}

    return f"http://127.0.0.1:{serve(take)}", posted


def test_a_webhook_gets_what_failed_why_and_where_to_look(connected: Any, webhook: Any) -> None:
    url, posted = webhook
    connected(conn_type="http", host=f"{url}/hook")
    alert({**CONTEXT, "exception": ValueError("rows_follow_their_changes: <!channel> <http://x|y>")})
    (message,) = posted
    assert "&lt;!channel&gt; &lt;http://x|y&gt;" in message["text"]
    assert message["text"].startswith("customer_activity_quality: judge failed")
    assert "rows_follow_their_changes" in message["text"]
    assert "http://airflow/log" in message["text"]


def test_a_mail_goes_to_whom_the_connection_names(connected: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []

    class Hook:
        def __init__(self, smtp_conn_id: str) -> None:
            assert smtp_conn_id == NAME

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            """Close it."""

        def send_email_smtp(self, **mail: Any) -> None:
            sent.append(mail)

    monkeypatch.setattr(alerts, "SmtpHook", Hook)
    connected(
        conn_type="smtp", host="mail", extra=json.dumps({"to": "team@example.org", "from_email": "a@example.org"})
    )
    alert({**CONTEXT, "exception": ValueError("1 < 2")})
    (mail,) = sent
    assert (mail["to"], mail["subject"]) == ("team@example.org", "customer_activity_quality: judge failed")
    assert "1 &lt; 2" in mail["html_content"]


def test_a_webhook_that_fails_is_logged_without_its_address(connected: Any, webhook: Any) -> None:
    url, posted = webhook
    connected(conn_type="http", host=f"{url}/", password="secret/broken")  # noqa: S106 - of the server above
    with capture_logs() as logged:
        alert(CONTEXT)
    assert len(posted) == 1
    (entry,) = logged
    assert (entry["log_level"], entry["why"]) == ("error", "HTTPStatusError")
    assert "secret" not in str(entry)


def test_without_a_connection_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Connection:
        raise AirflowNotFoundException

    monkeypatch.setattr(BaseHook, "get_connection", missing)
    with capture_logs() as logged:
        alert(CONTEXT)
    assert [entry["log_level"] for entry in logged] == ["info"]
