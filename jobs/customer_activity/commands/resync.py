"""`activity resync`: make the view topic equal to gold."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from customer_activity.terminal import console


class Resyncable(StrEnum):
    """What can be made equal to the tables that it reads."""

    PUBLISH = "publish"


def resync(
    ctx: typer.Context,
    query: Annotated[Resyncable, typer.Argument(help="The stream whose output is made equal.")],  # noqa: ARG001 - one by now; named, so that nobody guesses
    *,
    reason: Annotated[str, typer.Option(help="Why; for the audit record.")],
    json: console.JsonOption = False,
) -> None:
    """Send what differs between the view topic and gold, and nothing else; publish continues after it."""
    from customer_activity.streams.publish.resync import resync as run  # noqa: PLC0415 - brings pyspark, which few commands need

    done = run(console.settings_of(ctx), reason)
    if json:
        console.print_json(done._asdict())
        return
    console.out.print(
        f"sent {done.rows:,} rows and {done.deletes:,} deletes; {done.unchanged:,} were right", highlight=False
    )
    if done.too_large:
        console.out.print(f"{done.too_large:,} rows are still too large for the topic", highlight=False)
