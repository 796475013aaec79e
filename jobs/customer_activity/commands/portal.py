"""`activity portal`: the view as a service and a page."""

from __future__ import annotations

from importlib.util import find_spec

import typer

from customer_activity.engine.logs import configure_logging
from customer_activity.errors import EnvironmentFault
from customer_activity.terminal import console

NEEDED = ("fastapi", "uvicorn")  # of the extra `portal`


def portal(ctx: typer.Context) -> None:
    """Serve the view: a page and an API to find customers and see them change, the pipeline's flow, and quality."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise EnvironmentFault(
            f"the portal needs {' and '.join(missing)}, which the extra `portal` installs",
            remedy="pip install 'customer-activity[portal]'",
        )
    from customer_activity.portal import server  # noqa: PLC0415 - only this command needs a web framework

    settings = console.settings_of(ctx)
    configure_logging(settings.log_format)
    server.serve(settings)
