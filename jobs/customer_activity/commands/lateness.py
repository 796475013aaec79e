"""`activity lateness | reprocess`: choose the grace of windows, and take late purchases in afterwards."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from customer_activity.inspection import lateness as measured
from customer_activity.terminal import console


def lateness(
    ctx: typer.Context,
    *,
    grace: Annotated[list[float] | None, typer.Option(min=0, metavar="HOURS", help="Show this grace, too.")] = None,
    json: console.JsonOption = False,
) -> None:
    """Show how late purchases were, and how many of them each grace period would have left out of the windows."""
    settings = console.settings_of(ctx)
    found = measured.lateness(settings.lake, settings.grace_hours, grace or ())
    if json:
        console.print_json({**found._asdict(), "graces": [each._asdict() for each in found.graces]})
        return
    share = found.late / found.purchases if found.purchases else 0.0
    console.say(
        f"{found.purchases:,} purchases; {found.late:,} ({share:.2%}) are older than the latest before them in their "
        "Kafka partition"
    )
    if found.percentiles:
        at_most = ", ".join(
            f"{percentage} % by at most {measured.said(seconds / 3600)}"
            for percentage, seconds in found.percentiles.items()
        )
        console.say(f"of those: {at_most}")
    grid = console.grid("grace", figures=("later than it", "of all"))
    for each in found.graces:
        is_configured = each.hours == settings.grace_hours
        name = measured.said(each.hours) + (" (configured)" if is_configured else "")
        grid.add_row(name, f"{each.purchases:,}", f"{each.share:.4%}", style="bold" if is_configured else None)
    console.out.print(grid)


def reprocess(
    ctx: typer.Context,
    *,
    day: Annotated[
        datetime, typer.Option(formats=["%Y-%m-%d"], help="The day of the purchases, in the configured time zone.")
    ],
    reason: Annotated[str, typer.Option(help="Why; for the audit record.")],
    json: console.JsonOption = False,
) -> None:
    """Have late purchases of a day count in all windows; the streams of windows must be stopped."""
    from customer_activity.operations import recomputing  # noqa: PLC0415 - brings pyspark, which few commands need

    done = recomputing.reprocess(console.settings_of(ctx), day.date(), reason)
    if json:
        console.print_json(done._asdict())
        return
    console.say(
        f"{done.purchases:,} late purchases of {day:%Y-%m-%d} count from now on; recomputed: {', '.join(done.streams)}"
    )
