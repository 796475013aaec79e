"""`activity run | stop`: everything up with real traffic, watched live; and everything down."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from customer_activity import shown
from customer_activity.demo.run import live, local_airflow, parts, queries
from customer_activity.errors import EXIT_CHECK_FAILED, EXIT_OK
from customer_activity.settings import Settings
from customer_activity.storage import filesystem
from customer_activity.terminal import console


def run(
    ctx: typer.Context,
    *,
    lines: Annotated[int | None, typer.Option(min=1, help="Lines of the data set to send; all when not given.")] = None,
    keep: Annotated[
        bool | None,
        typer.Option(
            "--keep/--once",
            help="Leave everything up at the end, or stop it; in CI the default is to stop.",
        ),
    ] = None,
    airflow: Annotated[
        bool, typer.Option(help="Let Airflow start and supervise the streams, as in a deployment.")
    ] = True,
) -> None:
    """Run everything: broker, Airflow, streams and 1.47 million real purchases, live; then verify, and query gold."""
    settings = console.settings_of(ctx)
    filesystem.require(settings.lake)  # before anything is started
    stays = keep if keep is not None else not _is_ci()
    outcome = live.run(settings, console.out, lines=lines, stays=stays, airflow=airflow)
    if outcome.exit_code in (EXIT_OK, EXIT_CHECK_FAILED):  # the proof ran to its end: there is a gold table to look at
        _print_queries(settings)
        pages = _pages(settings, airflow=airflow)
        _print_what_next(outcome.customer_id, pages, stays=stays)
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def stop(ctx: typer.Context) -> None:
    """Stop traffic, portal, Airflow, streams and broker; leaves no process behind, and succeeds when nothing runs."""
    ended = parts.stop(console.settings_of(ctx))
    console.out.print(f"stopped: {', '.join(ended)}" if ended else "nothing was running")


def _is_ci() -> bool:
    """Whether this runs where nobody looks on: CI services set this variable."""
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def _pages(settings: Settings, *, airflow: bool) -> dict[str, str]:
    """Return the pages of what stays up, and what each is for."""
    portal = {settings.portal_page: "the portal: find a customer, see the row change"}
    return (portal if parts.is_portal_up(settings) else {}) | (
        {local_airflow.url(settings): "Airflow: the streams' runs and logs; pause, clear, rebuild"} if airflow else {}
    )


def _print_queries(settings: Settings) -> None:
    """Print how to query gold; a command is not wrapped, so that it can be copied as it is."""
    console.out.print("\nGold is a Delta table. Query it with what you like:")
    for query in queries.one_liners(settings, Path.cwd()):
        console.out.print(f"\n# {query.engine}", style="dim")
        console.say(query.command)


def _print_what_next(customer_id: str | None, pages: dict[str, str], *, stays: bool) -> None:
    activity = queries.near(str(Path(sys.executable).with_name("activity")), Path.cwd())
    if stays:
        console.out.print("\nEverything stays up. Go on with:")
    else:
        console.out.print("\nEverything is stopped, and the data stays. Go on with:")
    steps = {
        f"{activity} status{' --watch' if stays else ''}": "each stream: state, lag, freshness",
        f"{activity} show {_argument(customer_id)}": "one customer: gold row, profile, last purchases",
        "make run": "run it again, with new purchases",
        **(pages if stays else {}),
        **({"make stop": "stop everything"} if stays else {}),
    }
    for command, meaning in steps.items():
        console.say(f"  {command:<36} {meaning}")


def _argument(customer_id: str | None) -> str:
    """Return an id as an argument that can be pasted into a shell; a placeholder for one that cannot be shown."""
    is_shown = bool(customer_id) and shown.escaped(customer_id) == customer_id
    return shlex.quote(customer_id) if customer_id and is_shown else "CUSTOMER_ID"
