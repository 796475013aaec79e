"""`make pictures`: what the README shows of the terminal, taken from a `make run` that stays up.

.venv/bin/python tests/end_to_end/terminal.py docs/images [--customer 608]

Writes `terminal.svg`, the live view under a load, and prints a customer's record on the view topic before and
after a change of the address, with the time between.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from customer_activity import settings as configuration
from customer_activity.catalog import PURCHASES_ROLE
from customer_activity.demo.run import live, view
from customer_activity.demo.run.changes import Tail
from customer_activity.inspection import show, status
from customer_activity.kafka import clients
from customer_activity.settings import Settings
from customer_activity.supervision import processes
from customer_activity.terminal.console import Terminal

WIDTH = 100
PURCHASES = 10_000
LOAD = ("--rate", "520", "--profile-updates-per-second", "20", "--customers", "800", "--purchases", str(PURCHASES))
SHOWN_AFTER = 1_500  # records of the load on the view: some three seconds
SECONDS = 60.0
FONTS = re.compile(r"@font-face {.*?}", re.DOTALL)  # from a public host; a picture is to be whole without it


def main(
    folder: Annotated[Path, typer.Argument(help="Where the picture goes.")],
    *,
    customer: Annotated[str, typer.Option(help="Whose address changes.")] = "608",
) -> None:
    """Take the picture, and print the record before and after."""
    settings = configuration.load()
    live_view(settings, folder / "terminal.svg")
    before, after, seconds = moved(settings, customer)
    print(f"| | before | {seconds:.1f} s after the update |\n|---|---|---|")  # noqa: T201 - for the README
    for field, value in after.items():
        mark = "**" if before[field] != value else ""
        print(f"| `{field}` | {before[field]} | {mark}{value}{mark} |")  # noqa: T201


def live_view(settings: Settings, picture: Path) -> None:
    """Draw what `activity run` draws, in the middle of a load, and let the load end."""
    began, before = time.monotonic(), status.report(settings)
    command = processes.command("produce", *LOAD, "--seed", str(int(time.time())), "--json")
    with Tail(settings) as tail:
        sender = subprocess.Popen(command, env=processes.environment(settings), stdout=subprocess.DEVNULL)
        while tail.seen < SHOWN_AFTER and time.monotonic() < began + SECONDS:
            tail.look()
        report, seconds = status.report(settings), time.monotonic() - began
        frame = view.Frame(
            seconds,
            report,
            f"{PURCHASES:,} purchases, 500 a second, and 20 profile updates a second",
            before.topics[PURCHASES_ROLE].records + PURCHASES,
            live.sentence_about_gold(before, report, seconds),
            tail.seen,
            tuple(tail.newest),
        )
        if sender.wait():
            raise RuntimeError("the load was not sent")
    drawn = Terminal(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    drawn.print(view.screen(frame))
    picture.write_text(FONTS.sub("", drawn.export_svg(title="activity run")), encoding="utf-8")


def moved(settings: Settings, customer: str) -> tuple[dict[str, Any], dict[str, Any], float]:
    """Change a customer's address; return the records before and after, and the seconds between update and record."""
    profile, before = show.customer(settings.lake, customer).profile, _newest(settings, customer)
    if profile is None:
        raise RuntimeError(f"{customer} has no profile")
    update = {
        "customerId": customer,
        "name": profile["name"],
        "email": profile["email"],
        "address": f"{1 + int(time.time()) % 99} New Street, 20095 Hamburg",
        "loyaltyStatus": profile["loyalty_status"],
        "updatedAtEpochMillis": int(time.time() * 1000),
    }
    with Tail(settings) as tail:
        producer, began = clients.producer(settings), time.monotonic()
        producer.produce(settings.profile_topic, json.dumps(update).encode(), customer.encode())
        producer.flush(SECONDS)
        while not any(change.customer_id == customer for change in tail.newest):
            if time.monotonic() > began + SECONDS:
                raise RuntimeError("the view did not follow")
            tail.look()
        seconds = time.monotonic() - began
    return before, _newest(settings, customer), seconds


def _newest(settings: Settings, customer: str) -> dict[str, Any]:
    """Return the customer's last record on the view topic."""
    value = clients.last_values(settings, settings.view_topic)[customer.encode()]
    found: dict[str, Any] = json.loads(value or b"null")
    return found


if __name__ == "__main__":
    typer.run(main)
