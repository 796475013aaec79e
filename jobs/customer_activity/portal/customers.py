"""Routes of the customers: one row, a search, the newest changes, and changes as they come."""

from __future__ import annotations

from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from customer_activity.portal import answers, described
from customer_activity.portal.access import Role
from customer_activity.portal.reading import Reader
from customer_activity.portal.serving import Portal, role_of

BEAT_SECONDS = 1.0  # between two events of a stream that has nothing to say but how fresh it is
MOST_ROWS = 100

Customer = Annotated[str | None, Query(max_length=1000)]
Text = Annotated[str, Query(max_length=200)]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]


def router(portal: Portal) -> APIRouter:
    """Return the routes of the customers."""
    routes = APIRouter(tags=["customers"], responses=described.NOT_YET)

    @routes.get("/customers/{customer_id:path}", summary="One customer's row", responses=described.CUSTOMER)
    async def customer(request: Request, customer_id: str) -> Response:
        """Return the row of a customer, exactly as the view topic has it."""
        freshness, reader = portal.watch.now(), portal.follower.reader
        if reader is None:
            return answers.not_yet(freshness)
        value = reader.row(customer_id)
        if value is None:
            return answers.answer(freshness, HTTPStatus.NOT_FOUND, error="the view has no row of this customer")
        return answers.answer(freshness, customer=answers.row(value, role_of(request)))

    @routes.get("/customers", summary="Find customers", responses=described.FOUND)
    async def search(request: Request, q: Text, limit: Limit = 20) -> Response:
        """Find customers whose id begins with the text; with the role `personal-data` also by name and e-mail address.

        Each word of the text must begin a word of the name or of the address. Accents and case make no difference.
        """
        freshness, reader = portal.watch.now(), portal.follower.reader
        if reader is None:
            return answers.not_yet(freshness)
        role = role_of(request)
        found = await run_in_threadpool(_search, reader, q.strip(), limit, role)
        return answers.answer(freshness, customers=answers.rows(found, role))

    @routes.get("/changes", summary="The newest changes", responses=described.CHANGES)
    async def changes(request: Request, limit: Limit = 50, customer: Customer = None) -> Response:
        """Return the newest changes of all customers or of one, newest first, of the thousand that are kept."""
        freshness, reader = portal.watch.now(), portal.follower.reader
        if reader is None:
            return answers.not_yet(freshness)
        found = await run_in_threadpool(reader.changes, limit, customer)
        role = role_of(request)
        return answers.answer(freshness, changes=[answers.change(each, role) for each in found])

    @routes.get("/events", summary="Changes as they come", responses=described.EVENTS)
    async def events(request: Request, customer: Customer = None, *, others: bool = False) -> Response:
        """Return changes as server-sent events, of all customers or of one, until who asked goes away.

        `role`: of the token, and `row`: the customer's row as it is now, both at the beginning. `changes`: what
        changed, and `missed` says that there was more than is told. `freshness`: how fresh all this is, each second.
        `restoring`: a `row` follows. With `others`, the changes of all others come with those of the customer.
        """
        if portal.broadcast.is_full:
            return answers.answer(
                portal.watch.now(), HTTPStatus.TOO_MANY_REQUESTS, error="too many event streams are open"
            )
        stream = _stream(portal, customer, role_of(request), others=others or customer is None)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    return routes


def _search(reader: Reader, text: str, limit: int, role: Role) -> list[bytes]:
    """Find by id first, then by words."""
    if not text:
        return []
    found = dict.fromkeys(reader.by_id(text, limit))
    if role.sees_personal_data and len(found) < limit:
        found |= dict.fromkeys(reader.by_words(text, limit))
    return list(found)[:limit]


async def _stream(portal: Portal, customer: str | None, role: Role, *, others: bool) -> AsyncIterator[bytes]:
    with portal.broadcast.listen(customer, others=others) as listener:
        portal.metrics.listening(len(portal.broadcast))
        served = None
        try:
            yield answers.event("role", {"role": role.value})
            while True:
                freshness, reader = portal.watch.now(), portal.follower.reader
                if reader is not None and reader.id != served:
                    served = reader.id
                    if customer is not None:
                        yield answers.event("row", {"row": answers.row(reader.row(customer), role)})
                yield answers.event("freshness" if reader else "restoring", freshness.as_json())
                found = await listener.next(BEAT_SECONDS)
                if found:
                    told = [answers.change(each, role) for each in found]
                    yield answers.event("changes", {"changes": told, "missed": listener.has_missed})
                    listener.has_missed = False
        finally:
            portal.metrics.listening(len(portal.broadcast) - 1)
