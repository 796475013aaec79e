"""`activity report`: what the pipeline did over some hours, as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from customer_activity.report import figures
from customer_activity.report.page import render
from customer_activity.storage.filesystem import write_whole
from customer_activity.terminal import console

PAGE = "report.html"
HTML = "text/html"


def report(
    ctx: typer.Context,
    *,
    hours: Annotated[float, typer.Option(min=0.1, max=24 * 366, help="How far back, from the newest commit.")] = 24.0,
    out: Annotated[
        Path | None, typer.Option(help="Where the page is written; beside the Data Docs when not given.")
    ] = None,
    json: console.JsonOption = False,
) -> None:
    """Write a page with freshness, throughput, match rate, quality, quarantine and sizes, from the lake alone.

    The page is one file that needs nothing else. With --json the figures are printed, and a page is written only with
    --out.
    """
    settings = console.settings_of(ctx)
    with console.err.status("reading the lake"):
        found = figures.collect(settings, hours)
    place = f"{settings.quality_docs.rstrip('/')}/{PAGE}" if out is None else str(out.expanduser().resolve())
    if out is not None or not json:
        write_whole(place, render(found).encode(), HTML)
    if json:
        console.print_json(figures.as_data(found))
    else:
        served = f"{settings.quality_url}/{PAGE}" if settings.quality_url and out is None else place
        console.say(f"report: {served}")
