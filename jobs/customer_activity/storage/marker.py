"""A marker in a lake, by which a process on another machine tells whether it sees the same lake, and may write to it.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from uuid import uuid4

from pyarrow import fs

from customer_activity.storage.filesystem import filesystem, read_whole, write_whole

FOLDER = "_reach"
WRITTEN = "_state"  # where tasks write that not everybody may read: who may write there may write all that they write
STALE_SECONDS = 3_600.0  # a marker that is older was left by a driver that was killed
HOLD_SECONDS = 0.2  # of a task: no executor takes another one's
NOT_LET_IN = "ACCESS_DENIED"  # in what Arrow says of S3
SEES, BLIND, READS = "sees", "blind", "reads"  # the last one: and may not write


def leave(lake: str) -> str:
    """Write a new marker and return its name; remove stale ones, which killed drivers have left."""
    files, folder = filesystem(f"{lake}/{FOLDER}")
    files.create_dir(folder)
    name = uuid4().hex
    write_whole(f"{lake}/{FOLDER}/{name}", name.encode())
    now = files.get_file_info(f"{folder}/{name}").mtime  # by the clock that the others' times are of
    for info in _listed(lake):
        if (now - info.mtime).total_seconds() > STALE_SECONDS:
            _delete(lake, info.path)
    return name


def take_away(lake: str, name: str) -> None:
    """Remove a marker, and the files that executors wrote to test that they may; leave those of other drivers."""
    for info in _listed(lake):
        if info.base_name == name or info.base_name.startswith(f"{FOLDER}-{name}-"):
            _delete(lake, info.path)


def _listed(lake: str) -> list[fs.FileInfo]:
    """List the markers of all drivers, and the files that executors wrote to test that they may."""
    found = []
    for place, begins in ((FOLDER, ""), (WRITTEN, f"{FOLDER}-")):
        files, folder = filesystem(f"{lake}/{place}")
        found += [
            info
            for info in files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
            if info.is_file and info.base_name.startswith(begins)
        ]
    return found


def _delete(lake: str, path: str) -> None:
    with suppress(FileNotFoundError):  # another driver that has just started removes what was left, too
        filesystem(lake)[0].delete_file(path)


def look(lake: str, name: str, numbers: Iterable[int]) -> Iterator[dict[str, str]]:
    """Look for a marker in an executor, and write a file; yield which executor it is, its host, and what it has found.

    That is SEES, BLIND, READS where it may not write, or the error that storage ended with.
    """
    for _ in numbers:
        pass
    found = _tried(BLIND, lambda: read_whole(f"{lake}/{FOLDER}/{name}") == name.encode())
    if found == SEES:
        found = _tried(READS, lambda: _writes(f"{lake}/{WRITTEN}/{FOLDER}-{name}-{uuid4().hex}"))
    time.sleep(HOLD_SECONDS)
    host = socket.gethostname()
    # An executor's Python workers have one parent.
    yield {"executor": f"{host} {os.getppid()}", "host": host, "found": found}


def _writes(location: str) -> bool:
    write_whole(location, b"")
    return True


def _tried(kept_out: str, work: Callable[[], bool]) -> str:
    """Return SEES, what is to be said where storage does not let us, or another error's name."""
    try:
        return SEES if work() else kept_out
    except OSError as error:
        is_kept_out = isinstance(error, PermissionError) or error.errno == errno.EROFS or NOT_LET_IN in str(error)
        return kept_out if is_kept_out else type(error).__name__
