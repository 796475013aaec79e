"""A step yields its writes: each is made in turn, and one that fails is the batch's failure whatever the step says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from customer_activity.catalog import Table
from customer_activity.engine.stream import Append, Send, Steps, Writer
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.streams.silver.stream import SPEC


class Recorder(Writer):
    """Makes writes as a list; the one to `fails` fails."""

    def __init__(self, fails: Table | None = None) -> None:
        super().__init__(SPEC, None, "nowhere")  # type: ignore[arg-type]
        self.fails = fails
        self.made: list[Table] = []

    def make(self, write: Any, batch: MicroBatch) -> int | None:
        if write.table is self.fails:
            raise OSError("no space left")
        self.made.append(write.table)
        return len(self.made)


def silver() -> MicroBatch:
    return MicroBatch("silver", "generation", 0)


def careful(told: list[Any]) -> Steps:
    try:
        told.append((yield Append(Table.QUARANTINE)))
        told.append((yield Append(Table.PURCHASES)))
    except OSError:
        told.append("taken back")
        raise


def careless(told: list[Any]) -> Steps:
    with suppress(OSError):
        yield Append(Table.PURCHASES)
    told.append("went on")


def stubborn(told: list[Any]) -> Steps:
    with suppress(OSError):
        yield Append(Table.PURCHASES)
    told.append("went on")
    yield Append(Table.PROFILE_CHANGES)


def test_a_step_is_told_which_version_came_of_each_write() -> None:
    told: list[Any] = []
    writer = Recorder()
    writer.make_all(careful(told), silver())
    assert (writer.made, told) == ([Table.QUARANTINE, Table.PURCHASES], [1, 2])


@pytest.mark.parametrize(
    ("step", "made", "said"),
    [
        pytest.param(careful, [Table.QUARANTINE], [1, "taken back"], id="takes back"),
        pytest.param(careless, [], ["went on"], id="lets it pass"),
        pytest.param(stubborn, [], ["went on"], id="goes on writing"),
    ],
)
def test_a_write_that_fails_ends_the_batch(
    step: Callable[[list[Any]], Steps], made: list[Table], said: list[Any]
) -> None:
    told: list[Any] = []
    writer = Recorder(fails=Table.PURCHASES)
    with pytest.raises(OSError, match="no space left"):
        writer.make_all(step(told), silver())
    assert (writer.made, told) == (made, said)


def test_only_a_stream_with_a_publisher_sends() -> None:
    with pytest.raises(TypeError, match="silver has no publisher"):
        Writer(SPEC, None, "nowhere").make(Send([], None), silver())  # type: ignore[arg-type]
