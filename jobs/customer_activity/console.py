"""What every command shares: the terminal, `--json`, and the settings that the command line loaded."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console

from customer_activity.settings import Settings

out = Console()
err = Console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings that the command line loaded once, at its start."""
    settings = ctx.obj
    if not isinstance(settings, Settings):  # a command called without the main callback
        raise TypeError("the command line did not load its settings")
    return settings


def print_json(report: Any) -> None:
    """Print a report for machines: plain JSON, no colours, no wrapping."""
    typer.echo(json.dumps(report, default=str, ensure_ascii=False, indent=2))
