"""`activity lake create | check`: the bucket of a lake on S3."""

from __future__ import annotations

import typer

from customer_activity.errors import EXIT_CHECK_FAILED
from customer_activity.lake import bucket
from customer_activity.lake.bucket import TO_CREATE
from customer_activity.terminal import console

app = typer.Typer(no_args_is_help=True, help="The bucket of a lake on S3: create it, check it.")


@app.command()
def create(ctx: typer.Context, *, json: console.JsonOption = False) -> None:
    """Create the bucket or correct its settings: versioned, not public, noncurrent versions expire after a week."""
    settings = console.settings_of(ctx)
    done = bucket.create(settings)
    if json:
        console.print_json({"lake": settings.lake, "done": done})
    else:
        console.out.print(f"set: {', '.join(done)}" if done else "everything is as it should be", highlight=False)


@app.command()
def check(ctx: typer.Context, *, json: console.JsonOption = False) -> None:
    """Check the bucket's settings; exit 1 with what differs."""
    traits = bucket.check(console.settings_of(ctx))
    is_right = all(trait.ok for trait in traits)
    if json:
        console.print_json({"ok": is_right, "traits": [trait._asdict() for trait in traits]})
    else:
        for trait in traits:
            remedy = "" if trait.ok else f"  → {TO_CREATE}"
            mark = "ok   " if trait.ok else "wrong"
            console.say(f"{mark}  {trait.trait:<14} {trait.found}{remedy}")
    if not is_right:
        raise typer.Exit(EXIT_CHECK_FAILED)
