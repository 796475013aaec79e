"""What the driver's processes use of the machine."""

from __future__ import annotations

from typing import NamedTuple

import psutil


class Usage(NamedTuple):
    """What some of the driver's processes have used: seconds of processor time, and bytes of memory now."""

    cpu_seconds: float
    memory_bytes: int


class Usages:
    """What a process and those that it started use. Processor time of those that have ended stays: it is a counter."""

    def __init__(self) -> None:
        """Begin with no process seen."""
        self.seen: dict[tuple[int, float], tuple[str, float]] = {}  # kind and seconds, by number and when it started
        self.ended: dict[str, float] = {}  # seconds of those that have ended, by kind

    def read(self, process: psutil.Process) -> dict[str, Usage]:
        """Return what is used by kind: `python` is the process itself, `jvm` and `workers` are below it."""
        memory: dict[str, int] = {}
        running = set()
        for child in [process, *process.children(recursive=True)]:
            try:
                number = (child.pid, child.create_time())
                running.add(number)
                kind = "python" if child == process else "jvm" if child.name() == "java" else "workers"
                times, used = child.cpu_times(), child.memory_info().rss
            except psutil.Error:  # it is ending: what it had used is known from before
                continue
            self.seen[number] = kind, times.user + times.system
            memory[kind] = memory.get(kind, 0) + used
        for number in self.seen.keys() - running:
            kind, seconds = self.seen.pop(number)
            self.ended[kind] = self.ended.get(kind, 0.0) + seconds
        cpu = dict(self.ended)
        for kind, seconds in self.seen.values():
            cpu[kind] = cpu.get(kind, 0.0) + seconds
        return {kind: Usage(seconds, memory.get(kind, 0)) for kind, seconds in cpu.items()}
