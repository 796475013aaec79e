"""The command line: one subcommand a verb, wired here and written in `commands/`; `extras` finds what is optional."""

from __future__ import annotations

import logging
import sys
from functools import cache
from pkgutil import resolve_name
from typing import Any, NoReturn

import typer
from rich.text import Text
from typer.core import TyperGroup

from customer_activity import settings, shown, topology, unforeseen
from customer_activity.commands import extras
from customer_activity.engine import logs
from customer_activity.errors import EXIT_CHECK_FAILED, EXIT_OK, ActivityError
from customer_activity.masking import key
from customer_activity.storage import filesystem, s3
from customer_activity.terminal import console

COMMANDS = {  # name: where it is written
    "broker": "broker:app",
    "lake": "lake:app",
    "stream": "stream:stream",
    "status": "inspection:status",
    "show": "inspection:show",
    "describe": "inspection:describe",
    "lateness": "lateness:lateness",
    "doctor": "inspection:doctor",
    "verify": "verify:verify",
    "migrate": "migrate:migrate",
    "recover": "recover:recover",
    "accept-loss": "accept_loss:accept_loss",
    "resync": "resync:resync",
    "maintain": "maintain:maintain",
    "rebuild": "rebuild:rebuild",
    "reprocess": "lateness:reprocess",
    "catalogue": "catalogue:app",
    "quality": "quality:quality",
    "portal": "portal:portal",
    "report": "report:report",
    "quarantine": "quarantine:app",
    "driver": "driver:app",
}


class Commands(TyperGroup):
    """The commands, each imported when it is asked for: a driver starts sooner without what the others need."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override] # noqa: ARG002
        """Return the names in the order of the help."""
        return list(_written())

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """Import a command; all of them for a name that none has, so that the error can suggest one."""
        for name in [cmd_name] if cmd_name in _written() else _written():
            if name not in self.commands:
                self.add_command(_imported(name), name)
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the command; where a library fails on S3 and S3 itself does not answer as it should, that is why.

        Raises:
            ActivityError: no bucket, no credentials, no answer; or what the command itself found.
        """
        try:
            return super().invoke(ctx)
        except Exception as error:
            is_told = isinstance(error, typer.Abort) or hasattr(error, "exit_code")
            if not is_told and ctx.obj is not None:
                filesystem.require(ctx.obj.lake)
            raise


@cache
def _written() -> dict[str, list[str]]:
    """Return where each command is written; for a group that something optional adds to, where that is, too."""
    written = {name: [f"customer_activity.commands.{place}"] for name, place in COMMANDS.items()}
    for name, place in extras.commands().items():
        written.setdefault(name, []).append(place)
    return written


def _imported(name: str) -> Any:
    found, *added = (resolve_name(place) for place in _written()[name])
    holder = typer.Typer(add_completion=False)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name)(found)
    command: Any = typer.main.get_group(holder).commands[name]
    for group in added:
        command.commands.update(typer.main.get_group(group).commands)
    return command


app = typer.Typer(
    name="activity",
    cls=Commands,
    help="One current row per customer, in Delta tables and on a Kafka topic, that changes when either side changes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # `main` reports unexpected errors; locals may hold records or secrets
)


@app.callback()
def load_settings(ctx: typer.Context) -> None:
    """Read the settings once; every command gets this one object."""
    ctx.obj = settings.load()
    logs.configure_logging(ctx.obj.log_format, logging.WARNING)  # a command that runs for long tells more
    topology.switch_on(ctx.obj.optional_streams, ctx.obj.present)
    key.use(ctx.obj.mask_key)
    s3.connect(ctx.obj.s3_environment())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; errors of ours become one clear message and the exit code they carry."""
    try:
        code = app(arguments, standalone_mode=False)
    except ActivityError as error:
        if logs.is_json():
            logs.tell_end(error, error.exit_code)
            sys.exit(error.exit_code)
        words = f" {shown.message(error.what, error.remedy)}"
        console.err.print(Text.assemble(("error:", "red"), words), highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - told without its words, which may hold a record
        # Usage errors (wrong option, wrong value) render themselves and carry their exit code.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            sys.exit(error.exit_code)
        if logs.is_json():
            logs.tell_end(error, EXIT_CHECK_FAILED)
        else:
            console.err.print(unforeseen.stack(error), highlight=False, soft_wrap=True)
        sys.exit(EXIT_CHECK_FAILED)
    sys.exit(code if isinstance(code, int) else EXIT_OK)
