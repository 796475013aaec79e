"""`activity broker topics | acls`: the topics and rights on whichever brokers there are."""

from __future__ import annotations

from typing import Annotated

import typer

from customer_activity.kafka import acls, topics
from customer_activity.terminal import console

app = typer.Typer(help="Kafka topics (infra/kafka/topics.yaml) and ACLs (infra/kafka/acls.yaml).", no_args_is_help=True)


@app.command("topics")
def create_topics(ctx: typer.Context) -> None:
    """Create missing topics on the configured brokers, and check the others."""
    settings = console.settings_of(ctx)
    created = topics.check(settings, create=True)
    console.out.print(f"created: {', '.join(created)}" if created else "nothing to create", highlight=False)


@app.command("acls")
def grant_rights(
    ctx: typer.Context,
    role: Annotated[str, typer.Argument(help=f"A role of {acls.FILE_NAME}: {', '.join(acls.ROLES)}.")],
    user: Annotated[str, typer.Argument(help="The user, without Kafka's prefix `User:`.")],
    *,
    lines: Annotated[
        bool, typer.Option("--lines", help="Print kafka-acls.sh commands instead of granting them.")
    ] = False,
) -> None:
    """Grant a user the ACLs of a role on the configured brokers; needs an administrator's credentials."""
    settings = console.settings_of(ctx)
    rights = acls.declared(settings, role, user)
    if lines:
        for line in acls.lines(settings, rights, user):
            typer.echo(line)
        return
    acls.grant(settings, rights, user)
    for right in rights:
        console.out.print(f"{user} may {right.operation} {right.kind} {right.name}", highlight=False)
