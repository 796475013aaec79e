"""The command line: one subcommand a verb, wired here and written in `commands/`."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer
from rich.markup import escape

from customer_activity import console, settings
from customer_activity.commands import broker, inspection, recover, run, stream, traffic, verify
from customer_activity.errors import EXIT_OK, ActivityError

app = typer.Typer(
    name="activity",
    help="One current row per customer, in Delta tables and on a Kafka topic, that changes when either side changes.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # locals may hold records or secrets
)


@app.callback()
def load_settings(ctx: typer.Context) -> None:
    """Read the settings once; every command gets this one object."""
    ctx.obj = settings.load()


app.add_typer(broker.app, name="broker")
app.command("stream")(stream.stream)
app.command("produce")(traffic.produce)
app.command("status")(inspection.status)
app.command("show")(inspection.show)
app.command("describe")(inspection.describe)
app.command("doctor")(inspection.doctor)
app.command("verify")(verify.verify)
app.command("recover")(recover.recover)
app.command("run")(run.run)
app.command("stop")(run.stop)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run a command; errors of ours become one clear message and the exit code they carry."""
    try:
        code = app(arguments, standalone_mode=False)
    except ActivityError as error:
        console.err.print(f"[red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(130)
    except Exception as error:
        # Usage errors (wrong option, wrong value) render themselves and carry their exit code.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            error.show()
            sys.exit(error.exit_code)
        raise
    sys.exit(code if isinstance(code, int) else EXIT_OK)
