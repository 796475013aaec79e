"""`activity run`: broker, streams and real traffic, shown live until everything is processed, and then verified.

1. The broker, unless one answers already with all topics there.
2. The streams, unless they run already: by Airflow, or without it as a process of this one.
3. The traffic, once the streams wait for it: the data set, or a short burst when the topic has it already. Beside it
   the portal, on which it can be watched.
4. Watch until the traffic is sent and every stream has read everything.
5. `activity verify`.

What was started here is ended when something fails or Ctrl-C comes. At the normal end it stays up when asked to.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

from rich.console import Console
from rich.live import Live

from customer_activity.catalog import Table
from customer_activity.demo.run import parts, view
from customer_activity.demo.run.changes import Tail
from customer_activity.errors import TransientError
from customer_activity.inspection import status
from customer_activity.inspection.status import Report
from customer_activity.settings import Settings
from customer_activity.supervision import processes, running

LOOK_SECONDS = 1.0
LINE_SECONDS = 5.0  # between two lines when there is no terminal to draw on
STALL_SECONDS = 300.0  # when nothing moves anywhere for so long, somebody has to look

Show = Callable[[view.Frame], None]


class Run(NamedTuple):
    """A run under way."""

    began: float  # on the monotonic clock
    before: Report  # of any traffic of this run
    stream: subprocess.Popen[bytes] | None  # the driver, when this run started it
    send: Callable[[], parts.Traffic]
    tail: Tail


class Outcome(NamedTuple):
    """How a run ended: the exit code of `verify`, and a customer whose row changed, to look at."""

    exit_code: int
    customer_id: str | None


def run(settings: Settings, console: Console, *, lines: int | None, stays: bool, airflow: bool) -> Outcome:
    """Run the whole of it once, drawn on a terminal, else told in a line every few seconds.

    Sends so many `lines` of the data set, all when None. What runs stays up at the normal end if `stays`.
    With `airflow`, Airflow starts the streams and looks after them.

    Raises:
        ActivityError: a part did not start or ended early; carries that part's exit code and last lines.
        KeyboardInterrupt: somebody ended the run; what it had started is ended.
    """
    began = time.monotonic()
    parts.make_mask_key(settings)
    with _terminated_as_interrupted(), ExitStack() as started:
        try:
            parts.start_broker(settings, console, started)
            if airflow:
                parts.start_airflow(settings, console, started)
            stream = None if airflow else parts.start_stream(settings, console, started)
            before = status.report(settings)
            with Tail(settings) as tail:
                send = partial(_begin, settings, console, before, lines, started)
                watch(settings, console, Run(began, before, stream, send, tail))
                changed = tail.newest[-1].customer_id if tail.newest else None
            seconds = time.monotonic() - began
            console.print(
                f"everything is through after {seconds:,.0f} s; now the proof (activity verify):", highlight=False
            )
            verified = subprocess.run(  # noqa: S603 - our own interpreter; it prints for itself
                processes.command("verify"), env=processes.environment(settings), check=False
            )
        except BaseException:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # an impatient second Ctrl-C must not leave a process behind
            console.print("stopping what was started")
            raise
        if stays:
            started.pop_all()
        else:
            parts.stop(settings)
    return Outcome(verified.returncode, changed)


def _begin(
    settings: Settings, console: Console, before: Report, lines: int | None, started: ExitStack
) -> parts.Traffic:
    """Send the traffic, and have a page to watch what comes of it: the streams wait for it, and for no page."""
    traffic = parts.start_traffic(settings, before, lines, started)
    parts.start_portal(settings, console, started)
    return traffic


def watch(settings: Settings, console: Console, under_way: Run) -> None:
    """Show the run until all traffic is sent and every stream has read everything.

    Raises:
        ActivityError: the streams or the traffic ended early.
        TransientError: nothing moved for five minutes.
    """
    traffic, first_gold = None, ""
    state, moved_at = None, time.monotonic()
    with shown(console) as show:
        while True:
            # The first batches are small then, and the first gold row comes soon.
            if traffic is None and running.is_up(settings, under_way.stream):
                traffic = under_way.send()
            is_sent = traffic is not None and parts.is_sent(settings, traffic)  # by now: the look below sees all of it
            report = status.report(settings)
            under_way.tail.look()
            seconds = time.monotonic() - under_way.began
            first_gold = first_gold or sentence_about_gold(under_way.before, report, seconds)
            show(_frame(report, traffic, under_way.tail, seconds, first_gold))
            running.check_stream(settings, under_way.stream)  # what a stream says that has failed does not count
            if is_sent and report.is_caught_up:
                return
            if (seen := _state(report)) != state:
                state, moved_at = seen, time.monotonic()
            elif time.monotonic() - moved_at > STALL_SECONDS:
                raise TransientError(
                    f"nothing has moved for {STALL_SECONDS:.0f} s; the last lines of their log:\n"
                    + processes.last_lines(settings, running.STREAM),
                    remedy="`activity status` shows which stream is stuck, `activity doctor` what is wrong",
                )
            time.sleep(LOOK_SECONDS)


def sentence_about_gold(before: Report, report: Report, seconds: float) -> str:
    """Say when gold first moved in this run; nothing as long as it has not."""
    if not report.rows(Table.ACTIVITY):
        return ""
    if not before.rows(Table.ACTIVITY):
        return f"first gold row after {seconds:,.0f} s"
    has_moved = report.version(Table.ACTIVITY) > before.version(Table.ACTIVITY)
    return f"first change of gold after {seconds:,.0f} s" if has_moved else ""


def _frame(report: Report, traffic: parts.Traffic | None, tail: Tail, seconds: float, first_gold: str) -> view.Frame:
    words, expected = (traffic.words, traffic.expected) if traffic else ("the streams are starting", None)
    return view.Frame(seconds, report, words, expected, first_gold, tail.seen, tuple(tail.newest))


def _state(report: Report) -> tuple[Any, ...]:
    """Everything that changes while anything moves."""
    return (
        *(topic.records for topic in report.topics.values()),
        *(held.version for held in report.tables),
        *(query.batch["id"] if query.batch else None for query in report.queries),
    )


@contextmanager
def shown(console: Console) -> Iterator[Show]:
    """Yield how to show a frame: drawn over the last one on a terminal, else as a line when one is due."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda frame: live.update(view.screen(frame), refresh=True)
        return
    due, unshown, is_gold_told = 0.0, None, False

    def show(frame: view.Frame) -> None:
        nonlocal due, unshown, is_gold_told
        unshown = frame
        if frame.seconds >= due:
            due, unshown = frame.seconds + LINE_SECONDS, None
            _print(console, view.line(frame))
        if frame.first_gold and not is_gold_told:
            is_gold_told = True
            _print(console, frame.first_gold)

    yield show
    if unshown is not None:  # how it ended
        _print(console, view.line(unshown))


def _print(console: Console, words: str) -> None:
    console.print(words, soft_wrap=True, highlight=False, markup=False)


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Make SIGTERM and a closed terminal end the run as Ctrl-C does: with everything it started."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
