"""`activity stream`: run the queries."""

from __future__ import annotations

from typing import Annotated

import typer

from customer_activity import console, observability
from customer_activity.catalog import Query, Stage


def stream(
    ctx: typer.Context,
    stages: Annotated[
        list[Stage] | None, typer.Argument(help="Which parts to run; all four when none is named.")
    ] = None,
    *,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Drain what is there through every hop, then exit 0.")
    ] = False,
    create_topics: Annotated[
        bool, typer.Option("--create-topics", help="Create topics that are missing, as infra/kafka/topics.yaml says.")
    ] = False,
) -> None:
    """Run the streaming queries in one Spark application, until told to stop (Ctrl-C or SIGTERM)."""
    from customer_activity import application  # noqa: PLC0415 - brings pyspark, which no other command needs

    observability.configure_logging()
    wanted = [query for query in Query if any(query in stage.queries for stage in stages or list(Stage))]
    application.run(console.settings_of(ctx), wanted, available_now=available_now, create_topics=create_topics)
