"""Processor time of the driver's processes is a counter: what a process has used stays when it ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from customer_activity.metrics.usage import Usage, Usages


class Process:
    """A process, as a test says."""

    def __init__(self, pid: int, name: str, cpu: float, *, since: float = 1.0) -> None:
        self.pid, self.called, self.cpu, self.since = pid, name, cpu, since
        self.below: list[Process] = []
        self.is_ending = False

    def children(self, *, recursive: bool) -> list[Process]:
        assert recursive
        return list(self.below)

    def create_time(self) -> float:
        return self.since

    def name(self) -> str:
        return self.called

    def cpu_times(self) -> Any:
        if self.is_ending:
            raise psutil.ZombieProcess(self.pid)
        return SimpleNamespace(user=self.cpu, system=0.5)

    def memory_info(self) -> Any:
        return SimpleNamespace(rss=100)


@pytest.fixture
def driver() -> Process:
    """Return a driver with a JVM and two workers."""
    found = Process(1, "python", 7.0)
    found.below = [Process(2, "java", 20.0), Process(3, "python", 3.0), Process(4, "python", 4.0)]
    return found


def workers(usages: Usages, driver: Any) -> Usage:
    return usages.read(driver)["workers"]


def test_each_kind_is_added_up(driver: Any) -> None:
    assert Usages().read(driver) == {
        "python": Usage(7.5, 100),
        "jvm": Usage(20.5, 100),
        "workers": Usage(8.0, 200),
    }


def test_what_one_has_used_that_ended_stays(driver: Any) -> None:
    usages = Usages()
    assert workers(usages, driver) == Usage(8.0, 200)
    ended = driver.below.pop()
    assert workers(usages, driver) == Usage(8.0, 100)
    driver.below.append(Process(ended.pid, "python", 1.0, since=9.0))  # another one with its number
    assert workers(usages, driver) == Usage(9.5, 200)
    driver.below = driver.below[:1]
    assert workers(usages, driver) == Usage(9.5, 0)


def test_one_that_is_ending_counts_once(driver: Any) -> None:
    usages = Usages()
    before = workers(usages, driver)
    driver.below[-1].is_ending = True
    assert workers(usages, driver) == Usage(before.cpu_seconds, 100)
    driver.below.pop()
    assert workers(usages, driver) == Usage(before.cpu_seconds, 100)
