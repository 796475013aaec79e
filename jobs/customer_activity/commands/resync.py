"""`activity resync`: the view topic made equal to gold."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from customer_activity.streams import registry as _registry  # noqa: F401 - installs the streams
from customer_activity.terminal import console


class Resyncable(StrEnum):
    """What can be made equal to the tables it reads, as they are."""

    PUBLISH = "publish"


def resync(
    ctx: typer.Context,
    query: Annotated[Resyncable, typer.Argument(help="Whose output.")],  # noqa: ARG001 - one by now; named, so that nobody guesses
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the lake's _audit folder.")],
    json: console.JsonOption = False,
) -> None:
    """Send what the view topic lacks or has otherwise than gold, and nothing else; publish goes on after it."""
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
