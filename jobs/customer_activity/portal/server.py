"""The portal's process: puts the parts together, and serves them until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources

import uvicorn
from fastapi import FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from customer_activity.errors import EnvironmentFault
from customer_activity.portal import customers, data_docs, health, operations
from customer_activity.portal.access import Access, access
from customer_activity.portal.alone import alone
from customer_activity.portal.events import Broadcast
from customer_activity.portal.following import Follower, folder_of
from customer_activity.portal.freshness import Watch
from customer_activity.portal.guard import Guard
from customer_activity.portal.metrics import Metrics
from customer_activity.portal.pipeline import Pipeline
from customer_activity.portal.reading import Change
from customer_activity.portal.serving import Portal
from customer_activity.settings import Settings

MOST_CONNECTIONS = 1_000  # whoever opens more gets 503
STOP_SECONDS = 2  # that answers under way have; event streams have no end of their own
PAGES = {"/": "index.html", "/docs": "docs.html"}

log = logging.getLogger("customer_activity")


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        SettingsError: other machines could read without a token, or the file of tokens is not as it must be.
        EnvironmentFault: something else has the port, or another portal the store.
    """
    allowed = access(settings)
    with alone(folder_of(settings)), _listening(settings.portal_host, settings.portal_port) as listening:
        config = uvicorn.Config(
            application(settings, allowed),
            log_config=None,
            access_log=False,  # it has paths, and ids in them
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=STOP_SECONDS,
        )
        log.info("the portal is at %s", settings.portal_page)
        uvicorn.Server(config).run(sockets=[listening])


def application(settings: Settings, allowed: Access) -> ASGIApp:
    """Put the parts together; they start and end with the application."""
    watch, broadcast, metrics = Watch(settings.portal_stale_seconds), Broadcast(), Metrics()
    loops: list[asyncio.AbstractEventLoop] = []

    def notify(changes: list[Change]) -> None:
        loops[0].call_soon_threadsafe(partial(broadcast.send, changes))

    portal = Portal(settings, watch, Follower(settings, watch, notify), broadcast, metrics, Pipeline(settings))
    metrics.watch(watch, portal.follower)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        loops.append(asyncio.get_running_loop())
        portal.follower.start()
        try:
            yield
        finally:
            portal.follower.stop()

    return Guard(described(portal, lifespan=running), allowed, metrics)


def described(portal: Portal, lifespan: object = None) -> FastAPI:
    """Return the routes as one application, which describes itself at /openapi.json."""
    app = FastAPI(
        title="Customer activity portal",
        description="The newest row of each customer, as the view topic has it, and how fresh that is.",
        version="1",
        docs_url=None,  # Swagger's page is loaded from other hosts
        redoc_url=None,
        lifespan=lifespan,  # type: ignore[arg-type]
    )
    app.include_router(customers.router(portal))
    app.include_router(operations.router(portal))
    app.include_router(health.router(portal))
    app.include_router(data_docs.router(portal))
    pages = resources.files(__package__) / "pages"
    for path, name in PAGES.items():
        app.add_route(path, _page((pages / name).read_bytes()), include_in_schema=False)
    app.mount("/assets", StaticFiles(packages=[(__package__, "pages")]))
    return app


def _page(content: bytes) -> Callable[[Request], Awaitable[Response]]:
    async def page(_: Request) -> Response:
        return Response(content, media_type="text/html")

    return page


def _listening(host: str, port: int) -> socket.socket:
    """Listen, before anything is started: who cannot has to be told what to do."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, so that asyncio switches Nagle's algorithm off: a body would wait for the ACK of its head, 40 ms.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise EnvironmentFault(
            f"the portal cannot listen on {host}:{port}: {error.strerror}",
            remedy="stop what has the port, or set ACTIVITY_PORTAL_PORT to another one",
        ) from None
    return found
