"""`activity accept-loss`: after data loss in Kafka, continue without exactly what is lost."""

from __future__ import annotations

from typing import Annotated

import typer

from customer_activity.terminal import console


def accept_loss(
    ctx: typer.Context,
    offsets: Annotated[
        int, typer.Argument(min=1, help="How many offsets are lost, as reported by the stream when it stops.")
    ],
    *,
    reason: Annotated[str, typer.Option(help="Why the records cannot be recovered; for the audit record.")],
    json: console.JsonOption = False,
) -> None:
    """Accept data loss: let the stream continue after offsets that Kafka no longer has and that never landed."""
    from customer_activity.engine import loss  # noqa: PLC0415 - brings pyspark, which few commands need

    lost = loss.accept(console.settings_of(ctx), offsets, reason)
    if json:
        console.print_json([part._asdict() for part in lost])
        return
    for part in lost:
        console.out.print(f"goes on after {part}", highlight=False)
