"""How answers are put together: rows as they are on the topic, and beside them how fresh they are."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import Response

from customer_activity.portal import records
from customer_activity.portal.access import Role
from customer_activity.portal.freshness import Freshness
from customer_activity.portal.reading import Change

AGAIN_SECONDS = 2  # until who asked too early may ask again


def answer(freshness: Freshness, status: HTTPStatus = HTTPStatus.OK, **parts: Any) -> Response:
    """Make an answer of its parts, with how fresh it is as a field and as headers."""
    body = msgspec.json.encode({**parts, "freshness": freshness.as_json()})
    headers = {"Portal-State": freshness.state.value}
    if freshness.complete_until is not None:
        headers["Portal-Complete-Until"] = str(int(freshness.complete_until * 1000))
    if freshness.lag_records is not None:
        headers["Portal-Lag-Records"] = str(freshness.lag_records)
    if status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        headers["Retry-After"] = str(AGAIN_SECONDS)
    return Response(body, status.value, headers, "application/json")


def not_yet(freshness: Freshness) -> Response:
    """Say that the store is being restored, and how far that is."""
    return answer(
        freshness,
        HTTPStatus.SERVICE_UNAVAILABLE,
        error=f"restoring from the view topic: {freshness.restored:.0%}",
    )


def row(value: bytes | None, role: Role) -> msgspec.Raw | None:
    """Return a row as this role may see it."""
    if value is None:
        return None
    return msgspec.Raw(value if role.sees_personal_data else records.masked(value))


def rows(values: list[bytes], role: Role) -> list[msgspec.Raw | None]:
    """Return rows as this role may see them."""
    return [row(value, role) for value in values]


def change(found: Change, role: Role) -> dict[str, Any]:
    """Return a change as this role may see it."""
    return {
        "number": found.number,
        "customerId": found.customer_id,
        "atEpochMillis": found.at,
        "kind": found.kind,
        "fields": found.fields,
        "row": row(found.value, role),
    }


def event(name: str, data: Mapping[str, Any], number: str = "") -> bytes:
    """Return a server-sent event; JSON has no line break, so it is one line of data."""
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {name}\ndata: ".encode() + msgspec.json.encode(data) + b"\n\n"
