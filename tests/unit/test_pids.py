"""A process is told from another one that has its number."""

from __future__ import annotations

import os

import psutil
import pytest

from customer_activity.engine import pids

PID = os.getpid()
START = pids.start_time(PID)
NO_PROCESS = 2**22 + 1  # above the greatest process number that Linux gives out


def test_a_start_is_of_one_process_and_does_not_change() -> None:
    assert START is not None
    assert pids.start_time(PID) == START
    since_boot = psutil.Process(PID).create_time() - psutil.boot_time()
    assert START / os.sysconf("SC_CLK_TCK") == pytest.approx(since_boot, abs=2)
    assert pids.start_time(NO_PROCESS) is None


@pytest.mark.parametrize(
    ("pid", "start", "is_same", "is_reused"),
    [
        pytest.param(PID, START, True, False, id="the process itself"),
        pytest.param(PID, (START or 0.0) - 1, False, True, id="another one had the number before"),
        pytest.param(PID, None, False, False, id="an older release did not note the start"),
        pytest.param(NO_PROCESS, START, False, False, id="no process has the number"),
    ],
)
def test_a_number_goes_to_another_process(pid: int, start: float | None, is_same: bool, is_reused: bool) -> None:
    assert (pids.is_same(pid, start), pids.is_reused(pid, start)) == (is_same, is_reused)
