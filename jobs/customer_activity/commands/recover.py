"""`activity recover`: write a checkpoint again from what the tables say."""

from __future__ import annotations

from typing import Annotated

import typer

from customer_activity import topology
from customer_activity.terminal import console


def _known(name: str) -> str:
    """Take a stream's name.

    Raises:
        typer.BadParameter: there is no such stream.
    """
    if name not in topology.names():
        raise typer.BadParameter(f"{name} is not one of {', '.join(topology.names())}")
    return name


def recover(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="STREAM", help="The stream whose checkpoint it is.", parser=_known)],
    *,
    reason: Annotated[str, typer.Option(help="Why; for the audit record.")],
    json: console.JsonOption = False,
) -> None:
    """Restore a lost, damaged or stale checkpoint from the tables; the old one is kept, and nothing counts twice."""
    from customer_activity.operations import recovery  # noqa: PLC0415 - brings pyspark, which few commands need

    done = recovery.recover(console.settings_of(ctx).lake, query, reason)
    if json:
        console.print_json(done._asdict())
        return
    begins = (
        "at the beginning"
        if done.batch_id is None
        else f"with batch {done.batch_id}, {'which it had planned' if done.is_planned else 'the newest in its tables'}"
    )
    if done.rebuilt is not None:
        begins = f"after all that it follows: {done.rebuilt.label} was rebuilt"
    if topology.spec(query).is_publisher:
        begins = "after what the topic's progress marker says is out"
    console.out.print(f"{query} starts {begins}", highlight=False)
    if done.set_aside:
        console.say(f"the old checkpoint is at {done.set_aside}")
