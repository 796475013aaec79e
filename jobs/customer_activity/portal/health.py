"""Whether the portal lives and is ready, and its metrics."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from customer_activity.portal import answers
from customer_activity.portal.freshness import Freshness
from customer_activity.portal.serving import Portal


def router(portal: Portal) -> APIRouter:
    """Return the routes that machines look at."""
    routes = APIRouter(tags=["health"])

    @routes.get("/livez", summary="Whether it lives")
    async def livez(request: Request) -> Response:
        """Say whether the portal works at all: 503 means that starting it again helps."""
        lives = portal.follower.is_alive
        status = HTTPStatus.OK if lives else HTTPStatus.SERVICE_UNAVAILABLE
        return answers.answer(_shown(portal, request), status, live=lives)

    @routes.get("/readyz", summary="Whether it is ready")
    async def readyz(request: Request) -> Response:
        """Say whether answers are right and not stale."""
        freshness = _shown(portal, request)
        status = HTTPStatus.SERVICE_UNAVAILABLE if freshness.is_stale else HTTPStatus.OK
        return answers.answer(freshness, status, ready=not freshness.is_stale)

    @routes.get("/metrics", summary="Metrics for Prometheus")
    async def metrics() -> Response:
        """Return the portal's own metrics; the driver has others."""
        return Response(portal.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    return routes


def _shown(portal: Portal, request: Request) -> Freshness:
    """Return how fresh it is; who shows no token is not told what is wrong, in which the brokers' addresses are."""
    found = portal.watch.now()
    return found._replace(problem="") if request.state.role is None else found
