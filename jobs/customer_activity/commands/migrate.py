"""`activity migrate`: upgrade a lake of an older release in place."""

from __future__ import annotations

from typing import Annotated

import typer

from customer_activity.lake.layout import Layout
from customer_activity.operations.migration import Migrated
from customer_activity.operations.migration import migrate as bring_up
from customer_activity.terminal import console

# Processor seconds for a million purchases and a tenth as many customers, in silver and gold together: 7.6 and 7.9 with
# 100 million (`benchmarks/held.py` at e56bfe3 and dd1c5cc).
SORTED_SECONDS = 8.0


def migrate(
    ctx: typer.Context,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    json: console.JsonOption = False,
) -> None:
    """Upgrade the tables of an older release in place, with the streams stopped; nothing is rewritten.

    It can be interrupted at any point and run again.
    """
    done = bring_up(console.settings_of(ctx).lake, dry_run=dry_run)
    if json:
        steps = [{"table": step.table, "version": step.version, "columns": step.lacks} for step in done.steps]
        console.print_json({**done._asdict(), "steps": steps})
        return
    for line in lines(done):
        console.say(line)


def lines(done: Migrated) -> list[str]:
    """Say what was done, or is to be done, and how long it takes."""
    if not done.steps:
        return [f"{done.lake} is of this release (layout version {done.version}): nothing to do", *_runs_to_come(done)]
    said = [_said(step, done.version) for step in done.steps]
    ending = (
        f"done in {done.seconds:.1f} s; the streams may start"
        if done.is_done
        else f"nothing was done: this was a dry run; each of these {len(said)} tables takes a second or two"
    )
    return [f"{done.lake}: layout version {done.version}", *said, ending, *_runs_to_come(done)]


def _runs_to_come(done: Migrated) -> list[str]:
    """Say how long the first large batch on executors takes to make the state that it needs from the tables."""
    if not done.unsorted:
        return []
    seconds = max(done.unsorted / 1e6 * SORTED_SECONDS, 1.0)
    what = f"the first large batch on executors sorts what the lake has ({done.unsorted:,} purchases)"
    return [f"{what}, once: about {seconds:,.0f} processor seconds"]


def _said(step: Layout, version: int) -> str:
    needs = [f"add {', '.join(step.lacks)} (null in earlier rows)"] if step.lacks else []
    needs += [f"note version {version}"] if step.version < version else []
    return f"  {step.table.label}: {', then '.join(needs)}"
