"""`activity driver start | stop | status | watch`: for whoever supervises the streams."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated

import typer

from customer_activity import shown
from customer_activity.errors import EXIT_CHECK_FAILED
from customer_activity.supervision import driver as streams
from customer_activity.supervision.driver import Driver
from customer_activity.terminal import console
from customer_activity.terminal.screens import seconds_ago

app = typer.Typer(no_args_is_help=True, help="The process that runs the streams: start it, watch it, stop it.")


@app.command()
def start(
    ctx: typer.Context,
    *,
    attended: Annotated[
        float | None,
        typer.Option(
            min=10,
            metavar="SECONDS",
            help="Stop the driver when `driver watch` has not checked it for this long (heartbeat).",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait until all streams run.")
    ] = 120.0,
    json: console.JsonOption = False,
) -> None:
    """Start the driver and leave it running; a driver that already runs is left alone."""
    found, process = streams.start(console.settings_of(ctx), attended=attended, wait_seconds=wait)
    if json:
        console.print_json({**found.as_json(), "is_new": process is not None})
    else:
        console.out.print(f"driver {found.pid} {'started' if process else 'runs already'}", highlight=False)


@app.command()
def stop(
    ctx: typer.Context,
    *,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long a batch in progress may take before the driver is killed.")
    ] = 60.0,
    json: console.JsonOption = False,
) -> None:
    """Stop the driver gracefully. If it has to be killed, nothing is lost: an interrupted batch is repeated."""
    is_graceful = streams.stop(console.settings_of(ctx), seconds)
    words = {None: "no driver ran", True: "stopped", False: "killed: it did not stop in time"}[is_graceful]
    if json:
        console.print_json({"ran": is_graceful is not None, "graceful": is_graceful})
    else:
        console.out.print(words)


@app.command()
def status(ctx: typer.Context, *, json: console.JsonOption = False) -> None:
    """Show the driver's state; exit 1 when it is not healthy or does not run."""
    found = streams.observe(console.settings_of(ctx))
    if json:
        console.print_json(found.as_json())
    else:
        console.say(line(found))
    if not found.state.is_well:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def watch(
    ctx: typer.Context,
    *,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="How often to check.")] = 5.0,
    json: console.JsonOption = False,
) -> None:
    """Watch the driver, one line per check, and exit 1 when it is no longer healthy. Ctrl-C leaves it running.

    A driver that was started with --attended runs for as long as somebody watches it.
    """
    try:
        for found in streams.watch(console.settings_of(ctx), every):
            if json:
                typer.echo(jsonlib.dumps(found.as_json()))
            else:
                console.say(line(found))
    except KeyboardInterrupt:  # how a watch ends
        return
    raise typer.Exit(EXIT_CHECK_FAILED)


def line(found: Driver) -> str:
    """Say how the driver is in one line."""
    words = [f"{found.state.value}" if found.pid is None else f"{found.state.value}: driver {found.pid}"]
    if found.seconds is not None:
        words.append(f"up {found.seconds:,.0f} s")
    if found.lag_records is not None:
        words.append(f"{found.lag_records:,} records to land")
    if found.lag_versions is not None:
        words.append(f"{found.lag_versions:,} commits to read")
    words.append(f"last batch {seconds_ago(found.batch_age_seconds)}")
    if found.freshness_seconds is not None:
        words.append(f"view {found.freshness_seconds:,.1f} s behind")
    said = [found.message] if found.message else [f"not ready: {found.not_ready}"] if found.not_ready else []
    return shown.in_a_line("; ".join([", ".join(words), *said, *([found.placed] if found.placed else [])]))
