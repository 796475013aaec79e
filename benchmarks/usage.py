"""What a pipeline uses: memory, processor time and disk of its processes, once a second or oftener from /proc."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import psutil

INTERVAL_SECONDS = 1.0
MEGABYTE = 1_000_000
JVM, PYTHON = "java", "python"


class Sample(NamedTuple):
    """The process tree at one moment.

    Attributes:
        at_ms: epoch milliseconds.
        jvm_memory: resident bytes of the Java processes.
        python_memory: resident bytes of the others, shared pages counted in each.
        mapped: of both, bytes of files (programs, archives, sorted runs): the system takes them back as it needs them.
        jvm_seconds: processor seconds since the start, of Java.
        python_seconds: processor seconds since the start, of the others.
        written_bytes: bytes sent to disk since the start.
    """

    at_ms: float
    jvm_memory: int
    python_memory: int
    mapped: int
    jvm_seconds: float
    python_seconds: float
    written_bytes: int


class Sampler:
    """Watches a process and its descendants until it ends or is stopped; what has ended keeps counting."""

    def __init__(self, pid: int, every: float = INTERVAL_SECONDS) -> None:
        """Start watching, with so many seconds between two samples."""
        self.pid = pid
        self.every = every
        self.samples = [Sample(time.time() * 1000, 0, 0, 0, 0.0, 0.0, 0)]  # so that a start's own work is counted
        self._cpu: dict[tuple[int, str], float] = {}
        self._written: dict[int, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"usage of {pid}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and stop watching."""
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            is_last = self._stopping.wait(self.every)
            try:
                root = psutil.Process(self.pid)
                self._sample([root, *root.children(recursive=True)])
            except psutil.NoSuchProcess:
                return
            if is_last:
                return

    def _sample(self, processes: list[psutil.Process]) -> None:
        memory, mapped = {JVM: 0, PYTHON: 0}, 0
        for process in processes:
            try:
                with process.oneshot():
                    kind = JVM if process.name() == JVM else PYTHON
                    held = process.memory_info()
                    memory[kind] += held.rss
                    mapped += held.shared
                    times = process.cpu_times()
                    self._cpu[process.pid, kind] = times.user + times.system
                    self._written[process.pid] = process.io_counters().write_bytes
            except (psutil.NoSuchProcess, psutil.AccessDenied, FileNotFoundError):
                continue  # it has just ended; what it had used so far stays counted
        seconds = {kind: sum(used for (_, k), used in self._cpu.items() if k == kind) for kind in (JVM, PYTHON)}
        written = sum(self._written.values())
        now_ms = time.time() * 1000
        used = seconds[JVM], seconds[PYTHON]
        self.samples.append(Sample(now_ms, memory[JVM], memory[PYTHON], mapped, *used, written))

    def between(self, start_ms: float, end_ms: float) -> dict[str, float]:
        """Return processor seconds and bytes written in a window; zeros where there are fewer than two samples."""
        seen = [sample for sample in self.samples if start_ms <= sample.at_ms <= end_ms]
        if len(seen) < 2:
            return {"seconds": 0.0, "jvm_cpu_seconds": 0.0, "python_cpu_seconds": 0.0, "written_bytes": 0}
        first, last = seen[0], seen[-1]
        return {
            "seconds": round((last.at_ms - first.at_ms) / 1000, 1),
            "jvm_cpu_seconds": round(last.jvm_seconds - first.jvm_seconds, 2),
            "python_cpu_seconds": round(last.python_seconds - first.python_seconds, 2),
            "written_bytes": last.written_bytes - first.written_bytes,
        }

    def peaks(self) -> dict[str, float]:
        """Return the highest resident memory in megabytes: of Java, of the rest, of both at one moment.

        `own_megabytes` is that of both without pages of files.
        """
        return {
            "jvm_megabytes": round(max(s.jvm_memory for s in self.samples) / MEGABYTE),
            "python_megabytes": round(max(s.python_memory for s in self.samples) / MEGABYTE),
            "total_megabytes": round(max(s.jvm_memory + s.python_memory for s in self.samples) / MEGABYTE),
            "own_megabytes": round(max(s.jvm_memory + s.python_memory - s.mapped for s in self.samples) / MEGABYTE),
        }

    def series(self, every: int = 10) -> list[dict[str, Any]]:
        """Return the memory over time, one sample in `every`."""
        return [
            {
                "at_ms": round(s.at_ms),
                "jvm_megabytes": round(s.jvm_memory / MEGABYTE),
                "python_megabytes": round(s.python_memory / MEGABYTE),
            }
            for s in self.samples[::every]
        ]


def per_million(used: dict[str, float], purchases_per_second: float) -> dict[str, float]:
    """Scale what was used in a window of that rate to a million purchases."""
    if not used["seconds"] or not purchases_per_second:
        return {}
    scale = 1_000_000 / (used["seconds"] * purchases_per_second)
    return {
        "cpu_seconds": round((used["jvm_cpu_seconds"] + used["python_cpu_seconds"]) * scale, 1),
        "written_megabytes": round(used["written_bytes"] * scale / MEGABYTE, 1),
    }
