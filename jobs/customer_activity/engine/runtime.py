"""What rows depend on besides input and settings: the release, versions of libraries, and the time-zone database.

Executors have libraries of their own, Arrow takes time zones from the operating system of each machine, and the code is
that of an image where the driver does not send its own. Where these differ from the driver's, the same purchase may be
another row by where it is processed.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath, PurePosixPath
from zipfile import ZipFile
from zipimport import zipimporter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity import topology
from customer_activity.errors import EnvironmentFault, OtherRuntime

Runtime = dict[str, str]  # a digest of the release, each library's version, by a time zone's name one of its offsets
Told = Iterator[Mapping[str, object]]

LIBRARIES = ("msgspec", "numpy", "pyarrow")  # they judge records, and compute and write rows
PACKAGE = Path(__file__).resolve().parents[1]  # as in the settings, which executors do not import
RELEASE = "release"
CODE = (".py", ".json")  # modules and contracts
MISSING = "missing"
VARIABLE = "CUSTOMER_ACTIVITY_RUNTIME"  # in the environment of executors' workers: the driver's
DAY = 86_400
# Offsets are compared from 1970 on, where event time begins, to 2099. Event time may go on to the year 9999, but no
# zone has other rules then: the last ones begin in 2087, in Morocco.
DAYS = 130 * 365
REMEDY = (
    "have the driver's versions of msgspec, numpy and pyarrow in the executors' Python, which ACTIVITY_EXECUTOR_PYTHON "
    "names, the driver's version of tzdata on their machines, and, with ACTIVITY_SHIP_RELEASE=false, the driver's "
    "release: the same image"
)


def time_zone(name: str, queries: Iterable[str]) -> str | None:
    """Return the time zone that is set where one of the streams goes by it."""
    return name if any(topology.spec(query).uses_time_zone for query in queries) else None


def require_time_zone(zone: str | None) -> None:
    """Make sure that Arrow finds a time zone on this machine.

    Raises:
        EnvironmentFault: it does not.
    """
    if zone is not None and offsets(zone) == MISSING:
        raise EnvironmentFault(
            f"Arrow does not find the time zone {zone} on this machine, which ACTIVITY_TIME_ZONE names",
            remedy="install the operating system's time-zone database (tzdata): Arrow looks in /usr/share/zoneinfo",
        )


def found(zone: str | None) -> Runtime:
    """Return what is found in this process; of a time zone where one is needed."""
    versions = {RELEASE: release(), **{library: _version(library) for library in LIBRARIES}}
    return versions if zone is None else {**versions, zone: offsets(zone)}


def _version(library: str) -> str:
    try:
        return str(import_module(library).__version__)
    except ModuleNotFoundError:
        return MISSING


@cache
def release() -> str:
    """Return a digest of the code that runs here, which is in a folder or in the zip that the driver has sent."""
    digest = hashlib.blake2b(digest_size=8)
    for of_file in sorted(_code()):
        digest.update(f"{of_file}\n".encode())
    return digest.hexdigest()


def _code() -> Iterator[tuple[str, int, int]]:
    """Yield each file's name, size and CRC-32: a zip's directory has them, and nothing has to be unpacked."""
    spec = find_spec(PACKAGE.name)
    if spec is not None and isinstance(spec.loader, zipimporter):
        with ZipFile(spec.loader.archive) as archive:
            for info in archive.infolist():
                if _is_code(PurePosixPath(info.filename)):
                    yield info.filename, info.file_size, info.CRC
        return
    for file in PACKAGE.rglob("*"):
        name = file.relative_to(PACKAGE.parent)
        if _is_code(name) and file.is_file():
            content = file.read_bytes()
            yield name.as_posix(), len(content), zlib.crc32(content)


def _is_code(name: PurePath) -> bool:
    """Whether a file is of the release; hidden ones are of editors and other tools."""
    return name.parts[0] == PACKAGE.name and name.suffix in CODE and not any(part[0] == "." for part in name.parts)


def offsets(zone: str) -> str:
    """Return a digest of when a time zone changes its offset from UTC, and to which, as Arrow has it here."""
    days = np.arange(DAYS, dtype=np.int64) * DAY
    try:
        of_days = _offsets(days, zone)
    except pa.ArrowInvalid:
        return MISSING
    changed = np.flatnonzero(np.diff(of_days))
    before, after = days[changed], days[changed + 1]
    while (after - before > 1).any():
        between = (before + after) // 2
        is_changed = _offsets(between, zone) != of_days[changed]
        before, after = np.where(is_changed, before, between), np.where(is_changed, between, after)
    told = np.concatenate([of_days[:1], after, of_days[changed + 1]])
    return hashlib.blake2b(told.astype("<i8").tobytes(), digest_size=8).hexdigest()


def _offsets(seconds: npt.NDArray[np.int64], zone: str) -> npt.NDArray[np.int64]:
    local = pc.local_timestamp(pa.array(seconds).cast(pa.timestamp("s", zone)))
    return np.asarray(local.cast(pa.int64())) - seconds


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Say in what an executor's runtime differs from the driver's, as far as the driver's goes."""
    return [
        _difference(name, wanted, of_executor)
        for name, wanted in here.items()
        if (of_executor := there.get(name, MISSING)) != wanted
    ]


def _difference(name: str, wanted: str, of_executor: str) -> str:
    if name == RELEASE:
        return "another release of the pipeline"
    if name in LIBRARIES:
        return f"no {name}" if of_executor == MISSING else f"{name} {of_executor} instead of {wanted}"
    return f"no time zone {name}" if of_executor == MISSING else f"other offsets of the time zone {name}"


def other(by_host: Mapping[str, Iterable[str]]) -> OtherRuntime:
    """Return the error that says how executors differ, by their host."""
    said = "; ".join(f"on {host} {', '.join(of_host)}" for host, of_host in sorted(by_host.items()))
    return OtherRuntime(
        f"executors have another release, other libraries or another time-zone database than the driver, so rows "
        f"could differ by where they are made: {said}",
        remedy=REMEDY,
    )


def other_in(words: str) -> OtherRuntime | None:
    """Return that error where a task ended with it; None where the words are of something else."""
    said = re.search(rf"{OtherRuntime.__name__}: (.+)", words)
    return None if said is None else OtherRuntime(said[1], remedy=REMEDY)


def telling(task: Callable[[Iterable[int]], Told], zone: str | None) -> Callable[[Iterable[int]], Told]:
    """Have a task tell what is found in its process, too."""

    def told(numbers: Iterable[int]) -> Told:
        for report in task(numbers):
            yield {**report, "runtime": found(zone)}

    return told


def as_text(runtime: Mapping[str, str]) -> str:
    """Write a runtime as the value of a variable."""
    return ",".join(f"{name}={value}" for name, value in runtime.items())


def of_text(text: str) -> Runtime:
    """Read what `as_text` has written."""
    return dict(part.split("=", 1) for part in text.split(","))


@cache  # a worker does it before its first task
def require_alike() -> None:
    """Make sure that the driver's runtime, where this process was told of it, is this process's.

    Raises:
        OtherRuntime: it is not.
    """
    if (text := os.environ.get(VARIABLE)) is None:
        return
    here = of_text(text)
    zone = next((name for name in here if name not in {RELEASE, *LIBRARIES}), None)
    if differs := differences(here, found(zone)):
        raise other({socket.gethostname(): differs})
