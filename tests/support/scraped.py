"""What a driver's `/metrics` says, as Prometheus's own parser reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from customer_activity.metrics.metric import PIPELINE
from customer_activity.settings import Settings
from customer_activity.supervision import endpoint

Scraped = dict[str, dict[frozenset[tuple[str, str]], float]]  # by sample's name, value by labels


def get(settings: Settings, path: str) -> tuple[int, str]:
    """Ask the driver of these settings; return the status and the body."""
    address = endpoint.url(settings)
    assert address is not None, "no driver tells where it is"
    connection = HTTPConnection(urlsplit(address).netloc, timeout=30)
    connection.request("GET", path)
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, body


def ask(settings: Settings, path: str) -> tuple[int, dict[str, Any]]:
    """Ask for what is JSON."""
    status, body = get(settings, path)
    return status, json.loads(body)


def families(settings: Settings) -> dict[str, str]:
    """Return the kind of each metric that is exported, by its name in the text format."""
    status, body = get(settings, "/metrics")
    assert status == 200
    return {family.name: family.type for family in text_string_to_metric_families(body)}


def scrape(settings: Settings) -> Scraped:
    """Return all samples."""
    status, body = get(settings, "/metrics")
    assert status == 200
    found: Scraped = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            own = {label: value for label, value in sample.labels.items() if label != PIPELINE}
            assert sample.labels[PIPELINE] == settings.pipeline
            found.setdefault(sample.name, {})[frozenset(own.items())] = sample.value
    return found


def value(scraped: Scraped, name: str, labels: Mapping[str, str]) -> float | None:
    """Return a sample's value; None where there is no such sample."""
    return scraped.get(name, {}).get(frozenset(labels.items()))
