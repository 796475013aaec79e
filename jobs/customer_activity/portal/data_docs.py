"""Data Docs and the report, as `activity quality` and `activity report` have written them to ACTIVITY_QUALITY_DOCS.

Whoever follows a link shows no header of his own, so here a token is also taken as the password that a browser asks for
(`access`). What is served are the pages that those commands write, by their names, and nothing else that lies there: a
path that is no such name is never looked for, and in a folder a link to what is outside of it is not followed.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from http import HTTPStatus
from pathlib import Path

from fastapi import APIRouter, Response

from customer_activity import shown
from customer_activity.errors import ActivityError
from customer_activity.portal.access import DATA_DOCS
from customer_activity.portal.looks import Looks
from customer_activity.portal.serving import Portal
from customer_activity.storage.filesystem import read_whole

INDEX, REPORT = "index.html", "report.html"
PAGE = re.compile(r"(index|report)\.html|runs/\w[\w-]{0,99}/\w[\w.-]{0,99}\.html", re.ASCII)
MISSING = {
    INDEX: "Nothing has been judged yet: `activity quality` does, and writes these pages.",
    REPORT: "No report has been written yet: `activity report` does.",
}
GONE = "There is no such page. Those of the newest hundred runs are kept: go back to the index."

log = logging.getLogger("customer_activity")


def router(portal: Portal) -> APIRouter:
    """Return the routes of the pages."""
    routes = APIRouter(include_in_schema=False)
    looks = Looks()

    @routes.get(DATA_DOCS.rstrip("/"))
    async def folder() -> Response:
        """Lead to the folder, whose links are relative to it."""
        return Response(status_code=HTTPStatus.TEMPORARY_REDIRECT, headers={"Location": DATA_DOCS})

    @routes.get(DATA_DOCS + "{path:path}")
    async def page(path: str) -> Response:
        """Return a page."""
        name = path or INDEX
        if PAGE.fullmatch(name) is None:
            return _said(HTTPStatus.NOT_FOUND, GONE)
        try:
            content = await looks.take("page", read, portal.settings.quality_docs, name)
        except (ActivityError, OSError) as error:
            words = error.what if isinstance(error, ActivityError) else type(error).__name__
            log.warning("the portal cannot read Data Docs: %s", shown.in_a_line(words))
            return _said(HTTPStatus.SERVICE_UNAVAILABLE, f"Data Docs cannot be read: {words}")
        if content is None:
            return _said(HTTPStatus.NOT_FOUND, MISSING.get(name, GONE))
        return Response(content, media_type="text/html")

    return routes


def read(docs: str, name: str) -> bytes | None:
    """Return a page of a folder or a bucket; None when there is none."""
    if "://" in docs:
        return read_whole(f"{docs}/{name}")
    root = Path(docs).resolve()
    try:
        path = (root / name).resolve(strict=True)
        if not path.is_relative_to(root):
            return None
        with open(path, "rb", opener=_without_waiting) as file:
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except RuntimeError:  # links that lead to each other
        return None


def _without_waiting(path: str, flags: int) -> int:
    """Open what may be a pipe that nobody writes to, or a link that was put there meanwhile."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _said(status: HTTPStatus, words: str) -> Response:
    return Response(words + "\n", status, media_type="text/plain")
