"""Land a large batch by Spark's tasks: each fetches a share of its offsets from Kafka, parses it and writes files.

A task has a client of its own, and takes its records as the driver takes those of a small batch: a few megabytes at a
time, whatever their size. So no record passes through the JVM, which would convert each of them twice, and every record
comes as Kafka has it. Spark has planned the offsets and noted them before; its own plan to read them is never run.

A task that ends has landed its share, or as much of it as half a minute allows (the rest is another task's), or tells
why it cannot. The files that it has written are in no table until the driver commits them.

Executors import this module, and with it the Kafka client and the settings.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_before_delay, wait_fixed

from customer_activity import errors
from customer_activity.engine.executors import OnProgress
from customer_activity.errors import (
    EXIT_TRY_AGAIN,
    ActivityError,
    BrokerUnavailable,
    KafkaRefused,
    TerminalError,
    TransientError,
)
from customer_activity.kafka import clients
from customer_activity.kafka.client_properties import Clients
from customer_activity.settings import Settings
from customer_activity.streams.bronze.fetching import Fetcher, Place, Ranges
from customer_activity.streams.bronze.landing import Landed, Landing, land

if TYPE_CHECKING:
    from customer_activity.engine.workers import Workers

MOST_RECORDS = 250_000  # of a share: a task that is lost repeats no more
LEAST_RECORDS = 10_000  # fewer are no work for another task and its client
TURNS = 4  # of tasks in a job: where one cannot land its share, the others of its job are all that is done besides
# What a task may take together is less than the two minutes for which supervision waits for a sign of life. A broker
# that was restarted answers while a client is opened; one that is about to end may turn a client away.
OPENING_SECONDS, AGAIN_SECONDS = 20.0, 1.0
LANDING_SECONDS = 30.0  # then a task leaves the rest of its share to another one
SILENCE_SECONDS = 40.0
FETCH_BYTES = 512 << 10  # at a time, and mostly of one partition

Opens = Callable[[Sequence[str]], Fetcher]  # a client for some topics


def opener(settings: Settings) -> Opens:
    """Return what opens a client in a task, with the properties that the driver has read: no executor needs the file.

    Raises:
        SettingsError: the file of client properties cannot be read.
    """
    return partial(_open, settings, Clients({}, clients.security(settings).librdkafka))


def land_shares(ranges: Ranges, landing: Landing, workers: Workers, opens: Opens, progress: OnProgress) -> Landed:
    """Land a batch by tasks; return what all of them have landed.

    Args:
        ranges: the batch: first offset and end (exclusive) by topic and partition.
        landing: how to land.
        workers: who does the tasks.
        opens: as `opener` returns it.
        progress: told, in words, when tasks are through.

    Raises:
        ActivityError: of the kind that a task has met that could not land its share; nothing of the batch stays. One
            that trying again does not help goes first. Of a job that ends by anything else VACUUM removes the files.
        InputGone: an executor does not see the lake.
    """
    left = deque(cut(ranges, workers.at_once()))
    landed = Landed({}, {})
    while left:
        shares = [left.popleft() for _ in range(min(len(left), TURNS * workers.at_once()))]
        try:
            reports = workers.run(len(shares), partial(_land, shares=shares, landing=landing, opens=opens), progress)
        except BaseException:
            landed.discard(landing.lake)
            raise
        landed = Landed.together([landed, *(Landed.of_report(told["landed"]) for told in reports if "landed" in told)])
        if failed := [told for told in reports if "error" in told]:
            landed.discard(landing.lake)
            raise _error(min(failed, key=itemgetter("is_passing")))
        left.extendleft(filter(None, (_ranges(told["left"]) for told in reports)))
    return landed


def cut(ranges: Ranges, at_once: int) -> list[Ranges]:
    """Cut a batch into shares of as many offsets each, so that each of so many tasks at once has as many shares.

    A share is of one partition or of a few that follow each other; of a batch without offsets there is none.
    """
    places = [(topic, partition, *of) for topic, parts in ranges.items() for partition, of in sorted(parts.items())]
    total = sum(high - low for *_, low, high in places)
    turns = max(1, -(-total // (MOST_RECORDS * at_once)))
    count = max(1, min(turns * at_once, -(-total // LEAST_RECORDS)))
    ends = [total * number // count for number in range(1, count + 1)]
    shares: list[dict[str, dict[int, tuple[int, int]]]] = [{} for _ in ends]
    passed = number = 0
    for topic, partition, low, high in places:
        at = low
        while at < high:
            upto = min(high, at + ends[number] - passed)
            shares[number].setdefault(topic, {})[partition] = at, upto
            passed, at = passed + upto - at, upto
            number += passed == ends[number]
    return [share for share in shares if share]


def _land(
    numbers: Iterable[int], *, shares: Sequence[Ranges], landing: Landing, opens: Opens
) -> Iterator[dict[str, Any]]:
    """Land the shares of a task, which is given their numbers; report each."""
    for number in numbers:
        yield _landed(shares[number], landing, opens)


def _landed(share: Ranges, landing: Landing, opens: Opens) -> dict[str, Any]:
    """Land a share, or as much of it as there is time for; report that and what is left, or why it cannot."""
    left = {(topic, partition): place for topic, of in share.items() for partition, place in of.items()}
    try:
        with closing(opens(list(share))) as client:
            landed = land(_in_time(client.fetch(share), left), landing)
    except ActivityError as error:  # Spark would hand on its text alone, after three more attempts
        told = {"what": error.what, "remedy": error.remedy, "is_passing": error.exit_code == EXIT_TRY_AGAIN}
        return {"error": type(error).__name__, "host": socket.gethostname(), **told}
    return {"landed": landed.report(), "left": [(*place, *offsets) for place, offsets in left.items()]}


def _in_time(parts: Iterable[pa.RecordBatch], left: dict[Place, tuple[int, int]]) -> Iterator[pa.RecordBatch]:
    """Pass parts on until there is no more time; `left` has then what did not come, and nothing where all did."""
    until = time.monotonic() + LANDING_SECONDS
    for part in parts:
        yield part
        ends = pa.table(part).group_by(["topic", "partition"]).aggregate([("offset", "max")])
        for row in ends.to_pylist():
            place = row["topic"], row["partition"]
            left[place] = row["offset_max"] + 1, left[place][1]
        if time.monotonic() > until:
            return
    left.clear()


def _ranges(left: Iterable[tuple[str, int, int, int]]) -> Ranges:
    """Return what a task has left as ranges; of what has come to its end there is none."""
    found: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partition, low, high in left:
        if low < high:
            found.setdefault(topic, {})[partition] = low, high
    return found


def _error(report: dict[str, Any]) -> ActivityError:
    """Return what a task met, as an error of the same kind."""
    fallback = TransientError if report["is_passing"] else TerminalError
    kind = getattr(errors, report["error"], fallback)
    error: ActivityError = kind(f"{report['what']} (an executor on {report['host']})", remedy=report["remedy"])
    return error


def _open(settings: Settings, security: Clients, topics: Sequence[str]) -> Fetcher:
    clients.bring(settings, security)
    attempts = Retrying(
        retry=retry_if_exception_type((BrokerUnavailable, KafkaRefused)),
        stop=stop_before_delay(OPENING_SECONDS),
        wait=wait_fixed(AGAIN_SECONDS),
        reraise=True,
    )
    return attempts(Fetcher, settings, topics, silence_seconds=SILENCE_SECONDS, fetch_bytes=FETCH_BYTES)
