"""`activity status | show | describe | doctor`: look, change nothing."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.text import Text

from customer_activity import shown
from customer_activity.commands import extras
from customer_activity.errors import EXIT_CHECK_FAILED, EnvironmentFault
from customer_activity.inspection import describe as topology
from customer_activity.inspection import keys as distribution
from customer_activity.inspection import show as customers
from customer_activity.inspection import status as current
from customer_activity.inspection.doctor import diagnose
from customer_activity.settings import PREFIX, Settings
from customer_activity.storage import filesystem
from customer_activity.terminal import console, screens

WATCH_SECONDS = 2.0  # slow enough to leave the processor to the streams


class Format(StrEnum):
    """How `describe` prints the topology."""

    TEXT = "text"
    MERMAID = "mermaid"
    JSON = "json"


def status(
    ctx: typer.Context,
    *,
    json: console.JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh every two seconds, until Ctrl-C.")] = False,
    phases: Annotated[
        bool, typer.Option("--phases", help="Show where each stream's last batch spent its time.")
    ] = False,
) -> None:
    """Show each stream's state, last batch, rows/s, lag and freshness, and the tables' sizes."""
    settings = console.settings_of(ctx)
    filesystem.require(settings.lake)  # table by table it would take most of a minute to say that nobody answers
    if watch:
        _watch(settings, json=json, phases=phases)
    elif json:
        console.print_json(current.report(settings).as_json())
    else:
        console.out.print(screens.status(current.report(settings), phases=phases))


def _watch(settings: Settings, *, json: bool, phases: bool) -> None:
    """Show the status again and again, until Ctrl-C ends it."""
    try:
        if json:
            while True:
                console.print_json(current.report(settings).as_json())
                time.sleep(WATCH_SECONDS)
        with Live(
            screens.status(current.report(settings), phases=phases), console=console.out, auto_refresh=False
        ) as live:
            while True:
                time.sleep(WATCH_SECONDS)
                live.update(screens.status(current.report(settings), phases=phases), refresh=True)
    except KeyboardInterrupt:  # how a watch ends
        return


def show(
    ctx: typer.Context,
    customer_id: Annotated[str, typer.Argument(metavar="CUSTOMER_ID", help="The customer's id.")],
    *,
    json: console.JsonOption = False,
) -> None:
    """Show a customer's gold row, profile and latest purchases; exit 1 when the customer is unknown."""
    found = customers.customer(console.settings_of(ctx).lake, customer_id)
    if json:
        console.print_json(found._asdict())
    else:
        console.out.print(screens.customer(found))
    if not found.is_known:
        raise typer.Exit(EXIT_CHECK_FAILED)


def describe(
    ctx: typer.Context,
    *,
    output: Annotated[Format, typer.Option("--format", help="Output format.")] = Format.TEXT,
    keys: Annotated[
        bool, typer.Option("--keys", help="Show how purchases are distributed over customers instead.")
    ] = False,
    hottest: Annotated[int, typer.Option(min=0, help="With --keys: how many of the hottest customers.")] = 10,
    json: console.JsonOption = False,
) -> None:
    """Show the topology: what each stream reads and writes, where, and what it promises."""
    settings = console.settings_of(ctx)
    if keys:
        if output is Format.MERMAID:
            raise typer.BadParameter("--keys has no chart: it is text or json", param_hint="--format")
        _describe_keys(settings, hottest, json=json or output is Format.JSON)
    elif json or output is Format.JSON:
        console.print_json(topology.as_values(settings))
    elif output is Format.MERMAID:
        typer.echo(shown.lines(topology.mermaid(settings)))
    else:
        typer.echo(shown.lines("\n".join(topology.lines(settings))))


def _describe_keys(settings: Settings, hottest: int, *, json: bool) -> None:
    filesystem.require(settings.lake)
    found = distribution.keys(settings.lake, hottest)
    if json:
        console.print_json({**found._asdict(), "hottest": [customer._asdict() for customer in found.hottest]})
    else:
        console.out.print(screens.keys(found))


def doctor(
    ctx: typer.Context,
    *,
    json: console.JsonOption = False,
    list_settings: Annotated[
        bool, typer.Option("--settings", help="List every setting instead: value, default, meaning.")
    ] = False,
) -> None:
    """Check Java, versions, jars, ports, broker, topics and lake; exit 2 with what to fix when a check fails."""
    settings = console.settings_of(ctx)
    if list_settings:
        listed = _settings(settings)
        if json:
            console.print_json(listed)
        else:
            console.out.print(_settings_text(listed), soft_wrap=True)
        return
    findings = diagnose(settings, extras.checks())
    wrong = [finding for finding in findings if not finding.ok]
    if json:
        console.print_json({"ok": not wrong, "findings": [finding._asdict() for finding in findings]})
    else:
        console.out.print(screens.findings(findings))
    if wrong:
        checks = ", ".join(finding.check for finding in wrong)
        raise EnvironmentFault(
            f"{len(wrong)} of {len(findings)} checks found something wrong: {checks}", remedy=wrong[0].remedy
        )


def _settings(settings: Settings) -> list[dict[str, Any]]:
    """List the settings; of the Kafka security settings only the file's path is one."""
    named = {"pipeline": settings.pipeline}
    defaults = {
        name: field.get_default(call_default_factory=True, validated_data=named)
        for name, field in Settings.model_fields.items()
    }
    return [
        {
            "variable": f"{PREFIX}{name.upper()}",
            "value": getattr(settings, name),
            "default": defaults[name],
            "is_default": name not in settings.model_fields_set or getattr(settings, name) == defaults[name],
            "description": field.description,
        }
        for name, field in Settings.model_fields.items()
    ]


def _settings_text(listed: list[dict[str, Any]]) -> Text:
    """Show each setting on a line of its own, one that was set in bold, and below it what it is."""
    text = Text()
    for setting in listed:
        text.append(
            f"{setting['variable']}={setting['value'] if setting['value'] is not None else ''}",
            "bold" * (not setting["is_default"]),
        )
        if not setting["is_default"]:
            text.append(f"  (default {setting['default'] if setting['default'] is not None else 'none'})", "dim")
        text.append(f"\n    {setting['description']}\n", "dim")
    return text
