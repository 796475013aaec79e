"""Alert people when a task has failed for good: by a webhook, by e-mail, or in the log only.

The pipeline's connection `…_alerts` says which. Of type HTTP: `{"text": …}`, which chat services take, is posted
to its host with its password after it, where webhooks have their secret. Of type SMTP: a mail from its `from_email` to
its extra `to`. What is told is what the task said last: the product's own words, in which there are ids and figures and
nothing else about a person.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import structlog
from airflow.providers.smtp.hooks.smtp import SmtpHook
from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from activity_dags import shown
from activity_dags.pipelines import Pipeline

CONNECTION = "alerts"
LIMIT_SECONDS = 10.0

log = structlog.get_logger(__name__)


def alerts_of(pipeline: Pipeline) -> Callable[[Any], None]:
    """Return what tells people of a failure in this pipeline."""
    return partial(alert, name=pipeline.id(CONNECTION))


def alert(context: Any, *, name: str) -> None:
    """Tell people by a connection; what goes wrong with that is logged, and changes nothing about the task."""
    try:
        connection = BaseHook.get_connection(name)
    except AirflowNotFoundException:
        log.info("No alert is sent: there is no such connection", connection=name)
        return
    try:
        send(connection, *words(context))
    except Exception as error:  # noqa: BLE001 - the task has failed, and that is what counts
        # Not the error itself: it may name the webhook, secret and all.
        log.error("The alert could not be sent", connection=name, why=type(error).__name__)  # noqa: TRY400


def words(context: Any) -> tuple[str, str]:
    """Return a line about what failed, and what it said last with where to look."""
    task = context["ti"]
    why = shown.lines(str(context.get("exception") or "it gave no reason"))
    return f"{task.dag_id}: {task.task_id} failed", f"{why}\n\nlog: {task.log_url}"


def send(connection: Connection, subject: str, text: str) -> None:
    """Send it the way the connection says.

    Raises:
        HTTPError: the webhook does not take it.
        SMTPException: the mail server does not.
    """
    if connection.conn_type == "smtp":
        with SmtpHook(smtp_conn_id=connection.conn_id) as mail:
            page = f"<pre>{_without_markup(text)}</pre>"
            mail.send_email_smtp(to=connection.extra_dejson["to"], subject=subject, html_content=page)
        return
    url = f"{connection.host}{connection.password or ''}"
    body = {"text": _without_markup(f"{subject}\n{text}")}
    httpx.post(url, json=body, timeout=LIMIT_SECONDS).raise_for_status()


def _without_markup(text: str) -> str:
    """Escape what HTML, and chat services, take for tags, links and mentions of a whole channel (`<!channel>`)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
