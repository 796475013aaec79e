"""What every request passes: whether it may be answered, what its answer tells a browser, and what is noted of it.

Noted is the route, never the path: an id is in that. Nothing here knows what an answer says.
"""

from __future__ import annotations

import logging
import time
from http import HTTPStatus

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from customer_activity.portal.access import ASSETS, OPEN_PATHS, Access, Role, of_data_docs
from customer_activity.portal.metrics import Metrics

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
# Of Data Docs and the report: pages that bring their own styles, run no script and load nothing at all.
DATA_DOCS_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]
REFUSED = (401, 403, 405, 421)  # what is noted: all others are only counted
METHODS = ("GET", "HEAD")
ASK = b'Basic realm="Data Docs: the password is a token of the portal", charset="UTF-8"'  # a browser asks for it
UNMATCHED = "none"  # the route of a path that has none

log = logging.getLogger("customer_activity.portal")


class Guard:
    """An ASGI application around the portal's own."""

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics) -> None:
        """Take what answers, who may ask, and where answers are counted."""
        self.app, self.access, self.metrics = app, access, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                policy = (b"content-security-policy", _policy(scope["path"]).encode())
                message["headers"] = [*message.get("headers", []), policy, *HEADERS]
            await send(message)

        refusal, role = self._judge(scope)
        scope.setdefault("state", {})["role"] = role
        try:
            if refusal is None:
                await self.app(scope, receive, sent)
            else:
                await _refuse(refusal, scope["path"], sent)
        except Exception as error:  # noqa: BLE001 - it was answered; what it says may be data, and is told nobody
            log.error("a request failed: %s in %s", type(error).__name__, _where(error))  # noqa: TRY400
        finally:
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", UNMATCHED)
            self.metrics.answered(route, status, seconds)
            if status in REFUSED:
                log.warning("refused: route=%s status=%d", route, status)

    def _judge(self, scope: Scope) -> tuple[HTTPStatus | None, Role | None]:
        """Return why a request is not answered, and whose it is."""
        headers = dict(scope["headers"])
        path = scope["path"]
        role = self.access.role(_text(headers, b"authorization"), path)
        if scope["method"] not in METHODS:
            return HTTPStatus.METHOD_NOT_ALLOWED, role
        if not self.access.admits_host(_text(headers, b"host")):
            return HTTPStatus.MISDIRECTED_REQUEST, None
        if path in OPEN_PATHS or path.startswith(ASSETS):
            return None, role
        is_foreign = _text(headers, b"sec-fetch-site") in ("cross-site", "same-site")
        if is_foreign and _text(headers, b"sec-fetch-mode") != "navigate":
            return HTTPStatus.FORBIDDEN, role
        if role is not None and not role.may_ask(path):
            return HTTPStatus.FORBIDDEN, role
        return (HTTPStatus.UNAUTHORIZED if role is None else None), role


def _policy(path: str) -> str:
    return DATA_DOCS_POLICY if of_data_docs(path) else POLICY


async def _refuse(status: HTTPStatus, path: str, send: Send) -> None:
    body = msgspec.json.encode({"error": status.phrase})
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status is HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", ASK if of_data_docs(path) else b"Bearer"))
    if status is HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append((b"allow", b"GET, HEAD"))
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _text(headers: dict[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def _where(error: BaseException) -> str:
    """Return where an exception was raised, without what it says."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else "an unknown place"
