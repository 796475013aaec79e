"""`activity quarantine list | show | replay`: refused records, and bringing them back when the cause is fixed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from customer_activity.catalog import Reason
from customer_activity.quarantine import contents
from customer_activity.quarantine.contents import Selection
from customer_activity.supervision import requests
from customer_activity.terminal import console

app = typer.Typer(no_args_is_help=True, help="Rejected records: count, inspect and replay them.")

TIMES = ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"]

ReasonOption = Annotated[Reason | None, typer.Option("--reason", help="Only records refused for this reason.")]
TopicOption = Annotated[str | None, typer.Option("--topic", help="Only records of this topic.")]
SinceOption = Annotated[
    datetime | None, typer.Option("--since", formats=TIMES, help="Only records sent at this time or later, UTC.")
]
UntilOption = Annotated[
    datetime | None, typer.Option("--until", formats=TIMES, help="Only records sent before this time, UTC.")
]


def selection(reason: Reason | None, topic: str | None, since: datetime | None, until: datetime | None) -> Selection:
    """Put a selection together; times are UTC."""
    return Selection(reason, topic, since and since.replace(tzinfo=UTC), until and until.replace(tzinfo=UTC))


@app.command("list")
def list_groups(
    ctx: typer.Context,
    *,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    json: console.JsonOption = False,
) -> None:
    """Count the records in quarantine by topic and reason."""
    groups = contents.groups(console.settings_of(ctx).lake, selection(reason, topic, since, until))
    if json:
        console.print_json([group._asdict() for group in groups])
        return
    grid = console.grid("topic", "reason", figures=("records", "first sent", "last sent"))
    for group in groups:
        figures = (f"{group.records:,}", _time(group.oldest), _time(group.newest))
        grid.add_row(console.cell(group.topic), console.cell(group.reason), *figures)
    console.out.print(grid if groups else "nothing is in quarantine")


@app.command()
def show(
    ctx: typer.Context,
    *,
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Show only this many, the newest.")] = 20,
    json: console.JsonOption = False,
) -> None:
    """Show records in quarantine: their coordinates and why they were refused. Their bytes are not shown."""
    settings = console.settings_of(ctx)
    records = contents.records(settings.lake, selection(reason, topic, since, until), limit)
    if json:
        console.print_json(records)
        return
    grid = console.grid("record", "sent", "reason", "detail")
    for row in records:
        place = f"{row['topic']}-{row['partition']}@{row['offset']}" if row["offset"] is not None else row["topic"]
        cells = (console.cell(row[name] or "") for name in ("reason", "detail"))
        grid.add_row(console.cell(place), _time(row["kafka_timestamp"]), *cells)
    console.out.print(grid if records else "nothing is in quarantine")


@app.command()
def replay(
    ctx: typer.Context,
    *,
    why: Annotated[str, typer.Option("--why", help="What was fixed; for the audit record.")],
    reason: ReasonOption = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and do nothing.")] = False,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait for the driver to do it.")
    ] = 600.0,
    json: console.JsonOption = False,
) -> None:
    """Validate quarantined records again, and move those that are now valid into bronze.

    A running driver does it between two batches. A record stays when a later one with its key has landed: moving it
    would count a purchase twice or bring back an old profile.
    """
    from customer_activity.maintenance import replays  # noqa: PLC0415 - brings pyspark
    from customer_activity.quarantine import replay as replaying  # noqa: PLC0415 - likewise

    settings, chosen = console.settings_of(ctx), selection(reason, topic, since, until)
    answer = (
        None if dry_run else requests.by_driver(settings, requests.REPLAY, replays.asked(settings, chosen, why), wait)
    )
    done = (
        replaying.replay(settings, chosen, why, dry_run=dry_run)
        if answer is None
        else replaying.Replay(**answer["replay"])
    )
    if json:
        console.print_json({**done._asdict(), "dry_run": dry_run, "by_driver": answer is not None})
        return
    would = "would enter" if dry_run else "entered"
    for name, records in done.accepted.items():
        console.out.print(f"{records:,} records of {name} {would} bronze", highlight=False)
    for name, records in done.refused.items():
        console.out.print(f"{records:,} are still refused: {name}", highlight=False)
    if done.overtaken:
        console.out.print(f"{done.overtaken:,} stay: a later record with their key has landed", highlight=False)
    for name, records in done.elsewhere.items():
        why = f"{records:,} stay: no stream that is on lands {name}"
        console.out.print(console.cell(f"{why}: another topic is set by now, or ACTIVITY_STREAMS leaves it out"))
    if not any(done):
        console.out.print("nothing to replay")


def _time(moment: datetime | None) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}" if moment else "-"
