"""The parts of a live run, each a process: start it or find it running, notice when it ends, stop it."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import ExitStack
from typing import NamedTuple

from rich.console import Console
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from customer_activity import topology
from customer_activity.catalog import PURCHASES_ROLE, Table
from customer_activity.demo.broker import process as broker
from customer_activity.demo.run import local_airflow
from customer_activity.demo.traffic import dataset
from customer_activity.errors import TerminalError, TransientError
from customer_activity.inspection import topics
from customer_activity.inspection.status import Report
from customer_activity.kafka import topics as declared
from customer_activity.masking import key
from customer_activity.operations import catalogue
from customer_activity.settings import OWN_KEY, Settings
from customer_activity.storage.filesystem import PRIVATE
from customer_activity.supervision import processes, running

TRAFFIC = "produce"  # the command, and the name of its log and pid file
PORTAL = "portal"  # likewise

DATASET = "completejourney"
PROFILE_CHANGES = 300  # enough to see customers change who buy nothing
BURST_PURCHASES = 20_000
BURST = ["--customers", "500", "--purchases", str(BURST_PURCHASES), "--profile-changes", "100"]

# One batch of the whole data set would be the fastest way through it, and nothing would be seen to move meanwhile.
WATCHED_BATCH_RECORDS = 250_000

TRAFFIC_STOP_SECONDS = 5.0
PORTAL_STOP_SECONDS = 5.0
START_SECONDS = 300.0
LOOK_SECONDS = 0.5
ASK_SECONDS = 3.0  # Airflow's pages are slow while it starts something
TOPICS_SECONDS = 10.0  # until every client sees a topic that was just made


class Traffic(NamedTuple):
    """What is being sent, in words for the screen."""

    process: subprocess.Popen[bytes] | None  # None: an earlier run started it
    words: str
    expected: int | None  # purchases on the topic when it is all there; None when that is not known


def make_mask_key(settings: Settings) -> None:
    """Make a key for the masked table, unless there is one; this process and those that follow find it."""
    if settings.mask_key is None:
        settings.run_dir.mkdir(parents=True, exist_ok=True, mode=PRIVATE)
        key.make(settings.run_dir / OWN_KEY)
    topology.switch_on(topology.switched_on(), settings.present)
    key.use(settings.mask_key)


def start_broker(settings: Settings, console: Console, started: ExitStack) -> None:
    """Start the embedded broker with its topics, or use what answers: on somebody else's broker nothing is made.

    Raises:
        ActivityError: it does not start, or its topics are not as declared; says why.
    """
    was_up = broker.status(settings).is_running
    if not was_up and topics.answers(settings):
        declared.check(settings, create=False)
        console.print(f"broker: the one at {settings.kafka_bootstrap_servers}", highlight=False)
        return
    if not was_up:
        started.callback(broker.stop, settings)
    broker.start(settings)  # says so when something else has the port
    declared.check(settings, create=True)
    wait_for_topics(settings)
    console.print(f"broker: up{' already' if was_up else ''} at {settings.kafka_bootstrap_servers}", highlight=False)


@retry(
    retry=retry_if_result(lambda is_there: not is_there),
    stop=stop_after_delay(TOPICS_SECONDS),
    wait=wait_fixed(0.1),
    retry_error_callback=lambda state: bool(state.outcome and state.outcome.result()),
)
def wait_for_topics(settings: Settings) -> bool:
    """Wait until every topic shows; a topic just made takes a moment. Return whether they all do."""
    names = [topic.name for topic in declared.declared(settings).values()]
    return len(topics.topics(settings, names)) == len(names)


def start_stream(settings: Settings, console: Console, started: ExitStack) -> subprocess.Popen[bytes] | None:
    """Start the streams; None when they run already."""
    if running.stream_pids(settings):
        console.print("streams: running already")
        return None
    child = processes.start(watched(settings), running.STREAM, ["stream"])
    started.callback(running.end, child, running.STOP_SECONDS)
    console.print(f"streams: starting; log in {processes.log_path(settings, running.STREAM)}")
    return child


def start_airflow(settings: Settings, console: Console, started: ExitStack) -> None:
    """Start Airflow and have it start the streams.

    Raises:
        ActivityError: Airflow or the streams do not start; says why.
    """
    console.print("Airflow: starting (half a minute)")
    found = local_airflow.start(watched(settings))
    if found.is_new:
        started.callback(running.end_streams, settings)
        started.callback(local_airflow.stop, settings)
    console.print(
        f"Airflow: {found.url}, user {local_airflow.PEOPLE}, password {found.password}", highlight=False, markup=False
    )
    local_airflow.switch_on(settings)
    console.print(f"streams: starting, by Airflow; log in {processes.log_path(settings, running.STREAM)}")
    wait_for_streams(settings)


def wait_for_streams(settings: Settings) -> None:
    """Wait until all queries run of a driver that Airflow starts.

    Raises:
        TerminalError: Airflow tries no more; carries the driver's last words.
        TransientError: they do not in time.
    """
    began = asked = time.monotonic()
    remedy = f"look at the task's log in Airflow, and at {processes.log_path(settings, running.STREAM)}"
    while not any(running.all_run(settings, pid) for pid in running.stream_pids(settings)):
        if time.monotonic() > asked + ASK_SECONDS:
            asked = time.monotonic()
            if not running.stream_pids(settings) and local_airflow.has_given_up(settings):
                words = processes.last_lines(settings, running.STREAM)
                raise TerminalError(
                    f"the streams do not start, and Airflow has stopped trying:\n{words}", remedy=remedy
                )
        if time.monotonic() > began + START_SECONDS:
            raise TransientError(f"the streams have not started within {START_SECONDS:.0f} s", remedy=remedy)
        time.sleep(LOOK_SECONDS)


def watched(settings: Settings) -> Settings:
    """Return settings with batches small enough for somebody who looks on."""
    records = min(settings.max_offsets_per_trigger, WATCHED_BATCH_RECORDS)
    return settings.model_copy(update={"max_offsets_per_trigger": records})


def start_traffic(settings: Settings, before: Report, lines: int | None, started: ExitStack) -> Traffic:
    """Send the data set, or fresh purchases when the topic has it already: sent twice it would change nothing.

    Where purchases are enriched, the products come first.
    """
    if Table.PRODUCTS in topology.tables():
        catalogue.load(settings.lake, dataset.catalogue())
    topic = before.topics.get(PURCHASES_ROLE)
    present = topic.records if topic else 0
    wanted = dataset.count_lines(lines)
    if processes.running(settings, TRAFFIC):
        return Traffic(None, "traffic of an earlier run goes on", None)
    if present >= wanted:
        # The seed is part of the purchases' ids: those of an earlier burst would only be repeats.
        arguments = [TRAFFIC, *BURST, "--seed", str(int(time.time())), "--json"]
        words, expected = (
            f"the data set is there already; {BURST_PURCHASES:,} fresh purchases",
            present + BURST_PURCHASES,
        )
    else:
        limit = ["--lines", str(lines)] if lines else []
        arguments = [TRAFFIC, "--dataset", DATASET, *limit, "--profile-changes", str(PROFILE_CHANGES), "--json"]
        words, expected = f"{wanted:,} real purchases ({DATASET})", present + wanted
    child = processes.start(settings, TRAFFIC, arguments)
    started.callback(running.end, child, TRAFFIC_STOP_SECONDS)
    return Traffic(child, words, expected)


def start_portal(settings: Settings, console: Console, started: ExitStack) -> None:
    """Start the portal, and wait for nothing: it is ready some seconds later, and a run does not depend on it."""
    if not is_portal_up(settings):
        with socket.socket() as probe:
            if probe.connect_ex((settings.portal_host, settings.portal_port)) == 0:
                taken = f"something else listens on port {settings.portal_port}; ACTIVITY_PORTAL_PORT names another"
                console.print(f"portal: not started: {taken}", highlight=False)
                return
        child = processes.start(settings, PORTAL, [PORTAL])
        started.callback(running.end, child, PORTAL_STOP_SECONDS)
    console.print(f"portal: {settings.portal_page}", highlight=False)


def is_portal_up(settings: Settings) -> bool:
    """Whether the portal of these settings runs."""
    return processes.running(settings, PORTAL) is not None


def is_sent(settings: Settings, traffic: Traffic) -> bool:
    """Whether all traffic is on Kafka.

    Raises:
        ActivityError: the sender failed.
    """
    if traffic.process is None:
        return processes.running(settings, TRAFFIC) is None
    code = traffic.process.poll()
    if code:
        raise running.ended(settings, TRAFFIC, code)
    return code == 0


def stop(settings: Settings) -> list[str]:
    """End traffic, portal, Airflow, streams and broker, in this order; return what was ended, if anything ran."""
    ended = []
    if (sender := processes.running(settings, TRAFFIC)) is not None:
        processes.stop(sender.pid, seconds=TRAFFIC_STOP_SECONDS)
        ended.append("traffic")
    if (portal := processes.running(settings, PORTAL)) is not None:
        processes.stop(portal.pid, seconds=PORTAL_STOP_SECONDS)
        ended.append("portal")
    if local_airflow.stop(settings):  # it would start the streams again
        ended.append("Airflow")
    killed = "streams (killed: they did not stop in time; nothing is lost by it)"
    ended += ["streams" if is_graceful else killed for is_graceful in running.end_streams(settings)]
    for name in (TRAFFIC, PORTAL, running.STREAM):
        processes.pid_path(settings, name).unlink(missing_ok=True)
    return [*ended, "broker"] if broker.stop(settings) else ended
