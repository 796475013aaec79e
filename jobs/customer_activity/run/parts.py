"""The parts of a live run, each a process: start it or find it running, tell when it ended, end it."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import ExitStack
from typing import NamedTuple

from rich.console import Console
from tenacity import retry, retry_if_result, stop_after_delay, wait_fixed

from customer_activity.broker import process as broker
from customer_activity.broker import topics as declared
from customer_activity.catalog import PURCHASES_ROLE
from customer_activity.errors import ActivityError, TerminalError, TransientError
from customer_activity.inspection import status, topics
from customer_activity.inspection.status import Report
from customer_activity.run import local_airflow, processes
from customer_activity.settings import Settings
from customer_activity.traffic import dataset

STREAM, TRAFFIC = "stream", "produce"  # the commands, and the names of their logs and pid files

DATASET = "completejourney"
PROFILE_CHANGES = 300  # enough to see customers change who buy nothing
BURST_PURCHASES = 20_000
BURST = ["--customers", "500", "--purchases", str(BURST_PURCHASES), "--profile-changes", "100"]

# One batch of the whole data set would be the fastest way through it, and nothing would be seen to move meanwhile.
WATCHED_BATCH_RECORDS = 250_000

STREAM_STOP_SECONDS = 30.0  # promised: a batch in progress is finished, then the session closes
TRAFFIC_STOP_SECONDS = 5.0
START_SECONDS = 300.0
LOOK_SECONDS = 0.5
ASK_SECONDS = 3.0  # Airflow's pages are slow while it starts something
TOPICS_SECONDS = 10.0  # until every client sees a topic that was just made
LIVE_STATES = ("starting", "running", "held", "silent")


class Traffic(NamedTuple):
    """What is being sent.

    Attributes:
        process: who sends it; None when an earlier run started it.
        words: what it is, for the screen.
        expected: purchases on the topic when it is all there; None when that is not known.
    """

    process: subprocess.Popen[bytes] | None
    words: str
    expected: int | None


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
    names = list(settings.topics.values())
    return len(topics.topics(settings, names)) == len(names)


def start_stream(settings: Settings, console: Console, started: ExitStack) -> subprocess.Popen[bytes] | None:
    """Start the streams; None when they run already."""
    if stream_pids(settings):
        console.print("streams: running already")
        return None
    child = processes.start(watched(settings), STREAM, ["stream"])
    started.callback(end, child, STREAM_STOP_SECONDS)
    console.print(f"streams: starting; log in {processes.log_path(settings, STREAM)}")
    return child


def start_airflow(settings: Settings, console: Console, started: ExitStack) -> None:
    """Start Airflow and have it start the streams.

    Raises:
        ActivityError: Airflow or the streams do not start; says why.
    """
    console.print("Airflow: starting (half a minute)")
    found = local_airflow.start(watched(settings))
    if found.is_new:
        started.callback(end_streams, settings)
        started.callback(local_airflow.stop, settings)
    console.print(
        f"Airflow: {found.url}, user {local_airflow.PEOPLE}, password {found.password}", highlight=False, markup=False
    )
    local_airflow.switch_on(settings)
    console.print(f"streams: starting, by Airflow; log in {processes.log_path(settings, STREAM)}")
    wait_for_streams(settings)


def wait_for_streams(settings: Settings) -> None:
    """Wait until all queries run of a driver that Airflow starts.

    Raises:
        TerminalError: Airflow tries no more; carries the driver's last words.
        TransientError: they do not in time.
    """
    began = asked = time.monotonic()
    remedy = f"look at the task's log in Airflow, and at {processes.log_path(settings, STREAM)}"
    while not any(all_run(settings, pid) for pid in stream_pids(settings)):
        if time.monotonic() > asked + ASK_SECONDS:
            asked = time.monotonic()
            if not stream_pids(settings) and local_airflow.has_given_up(settings):
                raise TerminalError(
                    f"the streams do not start, and Airflow tries no more:\n{processes.last_lines(settings, STREAM)}",
                    remedy=remedy,
                )
        if time.monotonic() > began + START_SECONDS:
            raise TransientError(f"the streams have not started within {START_SECONDS:.0f} s", remedy=remedy)
        time.sleep(LOOK_SECONDS)


def end_streams(settings: Settings) -> list[bool]:
    """End the drivers that run, or what is left of one; return of each whether it ended by itself."""
    return [processes.stop(pid, seconds=STREAM_STOP_SECONDS) for pid in stream_pids(settings, left_overs=True)]


def watched(settings: Settings) -> Settings:
    """Return settings with batches small enough for somebody who looks on."""
    records = min(settings.max_offsets_per_trigger, WATCHED_BATCH_RECORDS)
    return settings.model_copy(update={"max_offsets_per_trigger": records})


def start_traffic(settings: Settings, before: Report, lines: int | None, started: ExitStack) -> Traffic:
    """Send the data set, or fresh purchases when the topic has it already: sent twice it would change nothing."""
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
    started.callback(end, child, TRAFFIC_STOP_SECONDS)
    return Traffic(child, words, expected)


def is_sent(settings: Settings, traffic: Traffic) -> bool:
    """Whether all traffic is on Kafka.

    Raises:
        ActivityError: the sender failed.
    """
    if traffic.process is None:
        return processes.running(settings, TRAFFIC) is None
    code = traffic.process.poll()
    if code:
        raise _ended(settings, TRAFFIC, code)
    return code == 0


def is_up(settings: Settings, child: subprocess.Popen[bytes] | None) -> bool:
    """Whether the streams wait for input: all of a driver that this run started, whatever runs of another's."""
    return child is None or all_run(settings, child.pid)


def all_run(settings: Settings, driver: int) -> bool:
    """Whether all queries run, and the driver with this number runs them."""
    return all(state.state in ("running", "held") and state.pid == driver for state in status.states(settings))


def check_stream(settings: Settings, child: subprocess.Popen[bytes] | None) -> None:
    """Make sure that the streams run.

    A child runs until it is reaped; in its first moments it has no command line yet, by which others are known.

    Raises:
        ActivityError: they ended; carries their exit code and last lines.
    """
    code = child.poll() if child is not None else None
    if code:
        raise _ended(settings, STREAM, code)
    if code == 0 or (child is None and not stream_pids(settings)):
        raise TransientError(
            "the streams were stopped while the run was going on", remedy="`activity run` goes on from there"
        )


def stop(settings: Settings) -> list[str]:
    """End traffic, Airflow, streams and broker, in this order; return what was ended. Fine when nothing runs."""
    ended = []
    if (sender := processes.running(settings, TRAFFIC)) is not None:
        processes.stop(sender.pid, seconds=TRAFFIC_STOP_SECONDS)
        ended.append("traffic")
    if local_airflow.stop(settings):  # it would start the streams again
        ended.append("Airflow")
    killed = "streams (killed: they did not stop in time; nothing is lost by it)"
    ended += ["streams" if is_graceful else killed for is_graceful in end_streams(settings)]
    for name in (TRAFFIC, STREAM):
        processes.pid_path(settings, name).unlink(missing_ok=True)
    return [*ended, "broker"] if broker.stop(settings) else ended


def end(child: subprocess.Popen[bytes], seconds: float) -> None:
    """End a process that this one started, with all that it started."""
    processes.stop(child.pid, seconds=seconds)
    child.wait()


def stream_pids(settings: Settings, *, left_overs: bool = False) -> list[int]:
    """List the drivers that run streams with these settings, whoever started them.

    With `left_overs` also one that is gone while something that it started is not.
    """
    pids = {state.pid for state in status.states(settings) if state.state in LIVE_STATES and state.pid is not None}
    leader = processes.recorded(settings, STREAM)
    if leader is not None and left_overs and processes.family(leader):
        return sorted({leader} | {pid for pid in pids if processes.ours(pid)})
    return sorted(pid for pid in {*pids, *([leader] if leader is not None else [])} if processes.ours(pid))


def _ended(settings: Settings, name: str, code: int) -> ActivityError:
    """Make the error for a part that ended: its last words, and its exit code as ours."""
    how = f"ended with exit code {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
    error = ActivityError(
        f"`activity {name}` {how}:\n{processes.last_lines(settings, name)}",
        remedy=f"the whole log is {processes.log_path(settings, name)}",
    )
    error.exit_code = code if code > 0 else 128 - code  # as a shell says it
    return error
