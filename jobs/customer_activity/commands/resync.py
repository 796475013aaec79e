"""`activity resync`: make the topic that a stream writes equal to the tables that it reads."""

from __future__ import annotations

from typing import Annotated

import typer

from customer_activity.terminal import console


def resync(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="STREAM", help="The stream whose output is resynced.")],
    *,
    reason: Annotated[str, typer.Option(help="Why; for the audit record.")],
    json: console.JsonOption = False,
) -> None:
    """Compare a stream's topic with its source and send only what differs; the stream continues after it."""
    from customer_activity.engine.stream import Resyncable  # noqa: PLC0415 - brings pyspark, which few commands need
    from customer_activity.streams.registry import STREAMS  # noqa: PLC0415

    able = {name: stream for name, stream in STREAMS.items() if isinstance(stream, Resyncable)}
    if query not in able:
        raise typer.BadParameter(f"{query!r} is not one of {', '.join(able)}", param_hint="STREAM")
    done = able[query].resync(console.settings_of(ctx), reason)
    if json:
        console.print_json(done._asdict())
        return
    console.out.print(
        f"sent {done.rows:,} rows and {done.deletes:,} deletes; {done.unchanged:,} were right", highlight=False
    )
    if done.too_large:
        console.out.print(f"{done.too_large:,} rows are still too large for the topic", highlight=False)
    if done.outdated:
        console.out.print(
            f"{done.outdated:,} records stay that the table no longer has so; they are noted", highlight=False
        )
