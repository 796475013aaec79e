"""`activity stream`: run the streams."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer

from customer_activity import topology
from customer_activity.engine.logs import configure_logging
from customer_activity.terminal import console


def _refuse_unknown(stages: list[str]) -> None:
    path = [spec.name for spec in topology.hot_path()]
    optional = [spec.name for spec in topology.optional()]
    if unknown := [name for name in stages if name not in (*path, *optional)]:
        also = f", or of the optional {', '.join(optional)}" if optional else ""
        raise typer.BadParameter(f"{unknown[0]} is not one of {', '.join(path)}{also}")
    topology.switch_on([*topology.switched_on(), *(name for name in stages if name in optional)])


def stream(
    ctx: typer.Context,
    stages: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STAGE",
            help="Streams of the hot path, each with those behind it, or optional streams; default: all.",
        ),
    ] = None,
    *,
    available_now: Annotated[
        bool,
        typer.Option(
            "--available-now", help="Backfill: process all available input through every stream, then exit 0."
        ),
    ] = False,
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="Create topics that are missing, as infra/kafka/topics.yaml says.")
    ] = False,
    attended: Annotated[
        float | None,
        typer.Option(
            min=10, metavar="SECONDS", help="Stop when `driver watch` has not checked the driver for this long."
        ),
    ] = None,
) -> None:
    """Run the streams in one Spark application, until told to stop (Ctrl-C or SIGTERM)."""
    settings = console.settings_of(ctx)
    configure_logging(settings.log_format)
    if stages:  # before a JVM is started for nothing
        _refuse_unknown(stages)
    from customer_activity.engine import session  # noqa: PLC0415 - brings pyspark, which few commands need

    with ThreadPoolExecutor(max_workers=1) as aside:
        aside.submit(session.launch, settings)  # where it fails, so does the session's start, which says why
        from customer_activity import application  # noqa: PLC0415 - takes the half second in which the JVM starts

        wanted = topology.chosen(stages or [])
        application.run(settings, wanted, available_now=available_now, create_topics=create_topics, attended=attended)
