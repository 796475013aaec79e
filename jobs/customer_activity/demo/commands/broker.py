"""`activity broker start | stop | status`: a Kafka broker without Docker."""

from __future__ import annotations

from typing import Annotated

import typer

from customer_activity.demo.broker import process
from customer_activity.errors import EXIT_CHECK_FAILED
from customer_activity.kafka import topics
from customer_activity.terminal import console

app = typer.Typer(no_args_is_help=True)


@app.command()
def start(
    ctx: typer.Context,
    *,
    create_topics: Annotated[bool, typer.Option(help="Create topics that are missing.")] = True,
) -> None:
    """Start the broker, wait until it answers, and check the topics."""
    settings = console.settings_of(ctx)
    is_new = process.start(settings)
    created = topics.check(settings, create=create_topics)
    console.out.print(f"broker {'started' if is_new else 'runs already'} on {settings.kafka_bootstrap_servers}")
    if created:
        console.out.print(f"created: {', '.join(created)}")


@app.command()
def stop(ctx: typer.Context) -> None:
    """Stop the broker; its data stays."""
    stopped = process.stop(console.settings_of(ctx))
    console.out.print("broker stopped" if stopped else "no broker was running")


@app.command()
def status(ctx: typer.Context, *, json: console.JsonOption = False) -> None:
    """Show whether and where the broker runs and answers; exit 1 when it does not."""
    found = process.status(console.settings_of(ctx))
    if json:
        console.print_json(found._asdict())
    elif found.is_running:
        answers = "answers" if found.is_answering else "does not answer"
        console.out.print(
            f"broker runs on {found.address} (pid {found.pid}) and {answers}; log: {found.log}", soft_wrap=True
        )
    else:
        console.out.print("broker does not run; `activity broker start` starts it")
    if not found.is_answering:
        raise typer.Exit(EXIT_CHECK_FAILED)
