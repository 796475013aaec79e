"""Where a driver serves its metrics and its health, and what it answers.

`metrics.json` in the driver's run folder names its address, in the form in which Prometheus discovers targets
(`file_sd_configs`): one pipeline's driver, or all of a machine, are scraped by naming these files. The port of one that
died may be another's by now, so the target has a label that names whose it is to be; `pipeline`, which each sample has,
says whose it is.
"""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from customer_activity.settings import Settings
from customer_activity.storage.filesystem import read_whole, write_whole

FILE = "metrics.json"
EXPECTED = "expected_pipeline"
ANSWER_SECONDS = 3.0  # a driver that takes longer is looked at from outside


def tell(settings: Settings, host: str, port: int) -> None:
    """Say where the driver is to be scraped."""
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    targets = [{"targets": [target], "labels": {EXPECTED: settings.pipeline}}]
    write_whole(str(_path(settings)), json.dumps(targets).encode())


def url(settings: Settings) -> str | None:
    """Return where the driver of this machine answers; None where it does not tell."""
    try:
        (target,) = json.loads(read_whole(str(_path(settings))) or b"")[0]["targets"]
        port = int(str(target).rpartition(":")[2])
    except (ValueError, TypeError, LookupError):  # no such file, or another release's
        return None
    address = ip_address(settings.metrics_address)
    host = ("::1" if address.version == 6 else "127.0.0.1") if address.is_unspecified else str(address)  # noqa: PLR2004 - IPv6
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def ask(settings: Settings, path: str) -> dict[str, Any] | None:
    """Return what the driver answers, ready or not; None where it does not answer, or not in JSON."""
    if (place := url(settings)) is None:
        return None
    # No proxy of the environment has a say in it, as with urllib.
    connection = HTTPConnection(urlsplit(place).netloc, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        with connection.getresponse() as response:  # which has the socket by now
            body = response.read()
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None


def _path(settings: Settings) -> Path:
    return settings.run_dir / FILE
