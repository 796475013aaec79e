"""moto's server as a process of its own, and who we are there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

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
    with subprocess.Popen(
        [sys.executable, __file__, "-H", host, "-p", port],
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


def remember() -> None:
    """Have moto ask once what it asks at each request: it takes longer to ask than to answer.

    For each it looks through its own package for a service of the host's name, and for each object in a list it parses
    the time that it has written itself.
    """
    from moto import backends  # noqa: PLC0415 - slow, and few need it
    from moto.core import serialize  # noqa: PLC0415 - likewise

    parse = serialize.parse_to_aware_datetime  # type: ignore[attr-defined]  # botocore's
    services = tuple(backends.list_of_moto_modules())
    backends.list_of_moto_modules = lambda: services
    serialize.parse_to_aware_datetime = cache(parse)  # type: ignore[attr-defined]


if __name__ == "__main__":
    from moto import server

    remember()
    server.main()
