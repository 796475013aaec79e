"""`activity airflow start | stop`: a local Airflow, for laptops and tests."""

from __future__ import annotations

import typer

from customer_activity.demo.run import local_airflow
from customer_activity.terminal import console

app = typer.Typer(no_args_is_help=True, help="A local Airflow with this project's DAGs, on loopback.")


@app.command()
def start(ctx: typer.Context, *, json: console.JsonOption = False) -> None:
    """Start Airflow, wait until it is healthy, and print its URL, user and password."""
    found = local_airflow.start(console.settings_of(ctx))
    if json:
        console.print_json({"url": found.url, "is_new": found.is_new})
        return
    console.out.print(f"Airflow {'is up' if found.is_new else 'runs already'}: {found.url}", highlight=False)
    console.out.print(f"sign in as {local_airflow.PEOPLE}, password {found.password}", highlight=False)


@app.command()
def stop(ctx: typer.Context) -> None:
    """Stop Airflow. The driver keeps running until nobody has watched it for two minutes."""
    console.out.print("stopped" if local_airflow.stop(console.settings_of(ctx)) else "Airflow was not running")
