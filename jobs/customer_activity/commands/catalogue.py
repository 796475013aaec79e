"""`activity catalogue load`: give the pipeline a new version of the catalogue of products, while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from customer_activity.terminal import console

app = typer.Typer(no_args_is_help=True, help="The catalogue of products that purchases are enriched with.")


@app.callback()
def catalogue() -> None:
    """Have `load` be a command of its own, though it is the only one."""


@app.command("load")
def load(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help="The whole catalogue, as .csv or .parquet.")],
    *,
    json: console.JsonOption = False,
) -> None:
    """Make a file the catalogue from now on; what landed before keeps the version that was in force then."""
    from customer_activity.operations import catalogue as operation  # noqa: PLC0415 - brings what few commands need

    done = operation.load(console.settings_of(ctx).lake, file)
    if json:
        console.print_json(done._asdict())
        return
    if not done.changed and not done.gone:
        console.say(f"nothing differs from version {done.version} of the catalogue ({done.products:,} products)")
        return
    console.say(
        f"version {done.version} of the catalogue: {done.products:,} products, {done.changed:,} new or changed, "
        f"{done.gone:,} gone"
    )
