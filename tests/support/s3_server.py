"""moto's server as a process of its own, and who we are there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from tenacity import Retrying, stop_after_delay, wait_fixed

KEYS = {
    "AWS_ACCESS_KEY_ID": "the-key-id",
    "AWS_SECRET_ACCESS_KEY": "not-for-anybodys-eyes",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@contextmanager
def serve(address: str, *, calls_of_anybody: int | None = None) -> Iterator[str]:
    """Start the server; yield its URL once it answers; end it.

    After so many `calls_of_anybody` it asks who calls, and keeps to policies; with None it never does.
    """
    asks = {} if calls_of_anybody is None else {"INITIAL_NO_AUTH_ACTION_COUNT": str(calls_of_anybody)}
    host, _, port = address.rpartition(":")
    program = Path(sys.executable).with_name("moto_server")
    with subprocess.Popen(
        [program, "-H", host, "-p", port],
        env={**os.environ, **asks},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            for attempt in Retrying(stop=stop_after_delay(30), wait=wait_fixed(0.1), reraise=True):
                with attempt:
                    httpx.get(f"http://{address}/moto-api/").raise_for_status()
            yield f"http://{address}"
        finally:
            server.terminate()
