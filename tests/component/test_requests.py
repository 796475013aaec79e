"""What a command asks of a driver: asked once, answered to whoever waits, and gone when nobody does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.engine.queries import RunningQuery
from customer_activity.errors import TerminalError, TransientError
from customer_activity.maintenance import replays
from customer_activity.maintenance.replays import Replays
from customer_activity.quarantine import replay
from customer_activity.quarantine.contents import Selection
from customer_activity.quarantine.replay import Replay
from customer_activity.settings import Settings
from customer_activity.supervision import requests, running
from customer_activity.supervision.requests import REPLAY, Request
from support.asked_driver import asked_driver
from support.waiting import until

ASKED = {"reason": "mended"}


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(running, "stream_pids", lambda _: [4_711])


def waits_until(monkeypatch: pytest.MonkeyPatch, is_so: Callable[[], object]) -> None:
    """Have whoever asks wait until something is so and no longer, however slow the machine is."""
    clock = SimpleNamespace(
        time=time.time, sleep=time.sleep, monotonic=lambda: time.monotonic() + (3_600 if is_so() else 0)
    )
    monkeypatch.setattr(requests, "time", clock)


def pending(settings: Settings) -> Request | None:
    return requests.pending(settings, REPLAY)


def test_what_is_asked_for_reaches_the_driver_and_its_answer_comes_back(settings: Settings) -> None:
    found: list[Request] = []

    def does(request: Request) -> None:
        found.append(request)
        requests.answer(settings.run_dir, REPLAY, request.id, {"replay": 3})

    with asked_driver(settings, REPLAY, does):
        answer = requests.by_driver(settings, REPLAY, ASKED, 30)
    assert answer is not None
    assert answer["replay"] == 3
    assert [request.asked for request in found] == [ASKED]
    assert pending(settings) is None


@pytest.mark.parametrize(
    ("fault", "raised"),
    [
        (TransientError("the lease is lost", remedy="ask again"), TransientError),
        (TerminalError("a batch is half landed", remedy="ask again"), TerminalError),
    ],
    ids=["it may be tried again", "it may not"],
)
def test_why_the_driver_could_not_is_told_to_whoever_asked(
    settings: Settings, fault: TransientError | TerminalError, raised: type[Exception]
) -> None:
    with (
        asked_driver(settings, REPLAY, lambda request: requests.refuse(settings.run_dir, REPLAY, request.id, fault)),
        pytest.raises(raised, match=f"{fault.what}\n  → ask again"),
    ):
        requests.by_driver(settings, REPLAY, ASKED, 30)


def test_without_a_driver_nothing_is_asked_for(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "stream_pids", lambda _: [])
    assert requests.by_driver(settings, REPLAY, ASKED, 30) is None
    assert pending(settings) is None


@pytest.mark.parametrize("is_late", [False, True], ids=["it is still at work", "its answer comes at the last moment"])
def test_what_the_driver_has_begun_is_not_said_to_be_left(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    begun: list[bool] = []

    def does(request: Request) -> None:
        begun.append(requests.begin(settings.run_dir, REPLAY, request.id))

    withdraw = requests.withdraw

    def answered_before(run_dir: Path, kind: str, request: str) -> None:
        withdraw(run_dir, kind, request)
        if is_late and begun:
            monkeypatch.setattr(requests, "withdraw", withdraw)
            requests.answer(run_dir, kind, request, {"replay": 3})

    waits_until(monkeypatch, lambda: begun)
    with asked_driver(settings, REPLAY, does):
        monkeypatch.setattr(requests, "withdraw", answered_before)
        if is_late:
            assert (requests.by_driver(settings, REPLAY, ASKED, 60) or {})["replay"] == 3
        else:
            with pytest.raises(TransientError, match=r"has begun it, and not ended it within 60 s.*\n.*completes it"):
                requests.by_driver(settings, REPLAY, ASKED, 60)
    assert begun == [True]


def test_what_nobody_waits_for_any_more_is_not_begun(settings: Settings) -> None:
    request = requests.ask(settings, REPLAY, ASKED, 60)
    requests.withdraw(settings.run_dir, REPLAY, request)
    assert not requests.begin(settings.run_dir, REPLAY, request)
    assert not requests.begin(settings.run_dir, REPLAY, requests.ask(settings, REPLAY, ASKED, -1))


def test_what_was_left_until_later_is_not_said_to_be_begun(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[bool] = []

    def does(request: Request) -> None:
        assert requests.begin(settings.run_dir, REPLAY, request.id)
        requests.leave(settings.run_dir, REPLAY)
        left.append(True)

    waits_until(monkeypatch, lambda: left)
    with asked_driver(settings, REPLAY, does), pytest.raises(TransientError, match="has not done it"):
        requests.by_driver(settings, REPLAY, ASKED, 60)


@pytest.fixture
def replaying(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Replays]:
    """Return what does a driver's replays; each is at work until the end of the test."""
    over = threading.Event()

    def bring_back(*_: object) -> Replay:
        assert over.wait(60)
        return Replay({}, {}, 0)

    monkeypatch.setattr(replay, "bring_back", bring_back)
    writers = [
        RunningQuery(query, lambda: pytest.fail("nothing starts here"), settings, threading.Event())
        for query in topology.writers(Table.QUARANTINE)
    ]
    replaying = Replays(settings, writers)
    yield replaying
    over.set()
    replaying.close()


def test_a_replay_that_is_at_work_when_the_wait_ends_is_said_to_be(
    settings: Settings, lake: str, replaying: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = replays.asked(settings, Selection(), "mended")
    waits_until(monkeypatch, lambda: replaying.at_work is not None)
    with (
        asked_driver(settings, REPLAY, lambda _: replaying.serve()),
        pytest.raises(TransientError, match="has begun it"),
    ):
        requests.by_driver(settings, REPLAY, asked, 60)
    assert replaying.at_work is not None


def test_a_replay_that_nobody_waits_for_any_more_is_not_begun(
    settings: Settings, lake: str, replaying: Replays, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "pending", lambda *_: Request("taken back meanwhile", {}))
    assert replaying.serve()
    assert replaying.at_work is None
    assert not any(query.at_work.locked() for query in replaying.writers)


def test_an_answer_to_somebody_else_is_none(settings: Settings) -> None:
    requests.answer(settings.run_dir, REPLAY, "of-before", {"replay": 9})
    with pytest.raises(TransientError, match="has not done it within 0 s"):
        requests.by_driver(settings, REPLAY, ASKED, 0)


def test_whoever_is_interrupted_asks_no_more(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: float) -> None:
        assert pending(settings) is not None
        raise KeyboardInterrupt

    monkeypatch.setattr(requests.time, "sleep", interrupted)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        requests.by_driver(settings, REPLAY, ASKED, 30)
    assert pending(settings) is None


def test_a_request_that_nobody_waits_for_any_more_has_expired(settings: Settings) -> None:
    requests.ask(settings, REPLAY, ASKED, wait_seconds=-1)
    assert pending(settings) is None


def test_another_waits_until_the_driver_has_done_the_first(settings: Settings) -> None:
    first = requests.ask(settings, REPLAY, ASKED, 60)
    with pytest.raises(TransientError, match="another replay"):
        requests.by_driver(settings, REPLAY, ASKED, 60)
    assert pending(settings) == (first, ASKED), "it is left to whoever asked for it"


def test_a_driver_on_another_lake_refuses(settings: Settings) -> None:
    elsewhere = settings.model_copy(update={"lake": f"{settings.lake}-2"})
    told: list[str] = []
    asking = threading.Thread(target=lambda: told.append(_fault(elsewhere)))
    asking.start()
    until(lambda: requests.pending(settings, REPLAY) is None and bool(told))
    asking.join()
    assert "works on another lake" in told[0]


def _fault(settings: Settings) -> str:
    try:
        requests.by_driver(settings, REPLAY, ASKED, 30)
    except TerminalError as fault:
        return fault.what
    return ""


@pytest.mark.parametrize(
    "content", [b'{"request": "of-an-older-release"}', b"", b"[]", b"{"], ids=["older", "empty", "a list", "cut off"]
)
def test_what_is_no_request_of_this_release_is_none_and_goes(settings: Settings, content: bytes) -> None:
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    path = settings.run_dir / f"{REPLAY}.asked.json"
    path.write_bytes(content)
    assert pending(settings) is None
    assert not path.exists()


def test_the_answer_of_a_driver_that_ended_right_after_it_is_heard(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = [True]
    monkeypatch.setattr(running, "stream_pids", lambda _: [4_711] if alive else [])

    def does(request: Request) -> None:
        alive.clear()
        requests.answer(settings.run_dir, REPLAY, request.id, {"replay": 3})

    monkeypatch.setattr(requests, "LOOK_SECONDS", 0.3)
    with asked_driver(settings, REPLAY, does):
        answer = requests.by_driver(settings, REPLAY, ASKED, 30)
    assert answer is not None
    assert answer["replay"] == 3
