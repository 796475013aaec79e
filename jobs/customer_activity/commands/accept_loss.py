"""`activity accept-loss`: go on without what Kafka has lost."""

from __future__ import annotations

from typing import Annotated

import typer

from customer_activity.streams import registry as _registry  # noqa: F401 - installs the streams
from customer_activity.terminal import console


def accept_loss(
    ctx: typer.Context,
    offsets: Annotated[int, typer.Argument(min=1, help="How many offsets are lost, as bronze says when it stops.")],
    *,
    reason: Annotated[str, typer.Option(help="Why nobody can bring them back; kept in the lake's _audit folder.")],
    json: console.JsonOption = False,
) -> None:
    """Let bronze go on after offsets that Kafka has no longer and that never landed; they stay lost."""
    from customer_activity.engine import loss  # noqa: PLC0415 - brings pyspark, which few commands need

    lost = loss.accept(console.settings_of(ctx), offsets, reason)
    if json:
        console.print_json([part._asdict() for part in lost])
        return
    for part in lost:
        console.out.print(f"bronze goes on after {part}", highlight=False)
