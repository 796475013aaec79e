"""Routes of the pipeline: its flow, quality's verdicts, and alerts and windows where those streams run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from customer_activity import shown
from customer_activity.errors import ActivityError
from customer_activity.portal import answers, described, optional
from customer_activity.portal.looks import Looks
from customer_activity.portal.serving import Portal
from customer_activity.quality import verdicts

log = logging.getLogger("customer_activity")

Limit = Annotated[int, Query(ge=1, le=100)]


def router(portal: Portal) -> APIRouter:
    """Return the routes of the pipeline."""
    routes = APIRouter(tags=["pipeline"], responses=described.NO_LAKE)
    lake, looks, judged = portal.settings.lake, Looks(), verdicts.Newest()

    async def answered(name: str, look: Callable[..., Any], *arguments: Any) -> Response:
        """Answer with what a look at the lake finds."""
        try:
            found = await looks.take(name, look, *arguments)
        except (ActivityError, OSError) as error:
            words = error.what if isinstance(error, ActivityError) else type(error).__name__
            log.warning("the portal cannot tell %s: %s", name, shown.in_a_line(words))
            return answers.answer(
                portal.watch.now(), HTTPStatus.SERVICE_UNAVAILABLE, error=f"the lake cannot be read: {words}"
            )
        return answers.answer(portal.watch.now(), **{name: found})

    @routes.get("/flow", summary="The pipeline's flow", responses=described.FLOW)
    async def flow() -> Response:
        """Return topics, tables and the streams between them with rates, lags and states, as `activity status` does."""
        return await answered("flow", portal.pipeline.flow)

    @routes.get("/quality", summary="The newest verdict on each rule", responses=described.QUALITY)
    async def quality() -> Response:
        """Return the newest verdict on each rule of quality, and the rules that hold publishing."""
        return await answered("quality", lambda: judged.read(lake).as_json())

    @routes.get("/alerts", summary="The newest alerts", responses=described.ALERTS)
    async def alerts(limit: Limit = 20) -> Response:
        """Return the newest alerts, newest first; null where no stream raises any."""
        return await answered("alerts", optional.alerts, lake, limit)

    @routes.get("/windows", summary="A customer's windows", responses=described.WINDOWS)
    async def windows(customer: Annotated[str, Query(max_length=1000)]) -> Response:
        """Return a customer's newest windows, late purchases and alerts by table; null where no stream makes any."""
        return await answered("windows", optional.windows, lake, customer)

    return routes
