"""What every command shares: the terminal, `--json`, and the settings that the command line loaded."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from customer_activity import shown
from customer_activity.settings import Settings

UNBOUNDED = 1_000_000  # columns: more than any row of a report has


class Terminal(Console):
    """A console that takes no orders from data.

    A string is never markup, and no name of an emoji: a style is a `Text`'s. What a caller forgot to escape is escaped
    when it is drawn, too, but for line breaks, which tables and messages have of their own: data goes through `cell` or
    `shown.escaped`.

    A pipe or a file has no width: whoever greps or keeps a report gets every word whole, and each row in one line.
    """

    def __init__(self, **options: Any) -> None:
        """Take rich's own options; a `width` counts wherever it is written to."""
        super().__init__(markup=False, emoji=False, **options)
        # Not `is_terminal`: FORCE_COLOR, which CI services set, makes that true of a pipe.
        is_screen = options.get("force_terminal") or self.file.isatty()
        if "width" not in options and not is_screen:
            self.width = UNBOUNDED

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Draw something; what moves the cursor or has a style is rich's own."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown.lines(segment.text), segment.style)


out = Terminal()
err = Terminal(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def settings_of(ctx: typer.Context) -> Settings:
    """Return the settings that the command line loaded once, at its start."""
    settings = ctx.obj
    if not isinstance(settings, Settings):  # a command called without the main callback
        raise TypeError("the command line did not load its settings")
    return settings


def cell(value: object, style: str = "") -> Text:
    """Return a value of the data as text in one line, for a table or to print."""
    return Text(shown.escaped(value), style=style)


def say(words: str | Text, style: str = "") -> None:
    """Print a line in one style: nothing in it is coloured for its own sake, and however long it is not wrapped."""
    out.print(words, style=style, highlight=False, soft_wrap=True)


def grid(*columns: str | Column, figures: Iterable[str] = (), **options: Any) -> Table:
    """Return an empty table without a frame: columns of text, then columns of figures, which stand on the right."""
    right = (Column(figure, justify="right") for figure in figures)
    return Table(*columns, *right, box=None, pad_edge=False, **options)


def print_json(report: Any) -> None:
    """Print a report for machines: plain JSON, no colours, no wrapping; the data as they are, safe to look at."""
    typer.echo(shown.json_text(json.dumps(report, default=str, ensure_ascii=False, indent=2)))
