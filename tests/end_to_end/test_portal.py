"""The portal on a whole pipeline: an address that changes at its source is seen to change on the page."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest

from customer_activity.inspection import status
from support import addresses, browser
from support.airflow import Deployment
from support.broker import send
from support.portal import running as running_portal
from support.records import profile, purchase

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def test_an_address_that_changes_is_seen_to_change(
    running: Deployment, record_property: Callable[[str, object], None]
) -> None:
    own = running.settings.model_copy(update={"portal_port": addresses.free_port()})
    now = int(time.time() * 1000)
    send(own, profile("C-portal", now - 60_000, address="1 Old Street"), purchase("P-portal", "C-portal", at=now))
    with running_portal(own), browser.opened() as page:
        page.get(f"{own.portal_page}/#customer=C-portal")
        browser.says(page, "1 Old Street", seconds=120)
        sent = time.monotonic()
        send(own, profile("C-portal", now - 30_000, address="38 New Street"))
        browser.says(page, "38 New Street", "in the view")
        record_property("from a profile's update to the page", round(time.monotonic() - sent, 1))
        flow = {stream["name"]: stream for stream in running_flow(own.portal_port)}
        known = {query.query: query.state for query in status.report(own).queries}
        assert {name: stream["state"] for name, stream in flow.items()} == known


def running_flow(port: int) -> list[dict[str, str]]:

    streams: list[dict[str, str]] = httpx.get(f"http://127.0.0.1:{port}/flow", timeout=30).json()["flow"]["streams"]
    return streams
