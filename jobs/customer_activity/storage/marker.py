"""A marker in a lake, by which a process on another machine tells whether it sees the same lake.

Spark's executors import this module and need little for it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from uuid import uuid4

import pyarrow as pa
from pyarrow import fs

from customer_activity.storage.filesystem import filesystem, read_whole, write_whole

FOLDER = "_reach"
HOLD_SECONDS = 0.2  # of a task: no executor takes another one's
NOT_LET_IN = "ACCESS_DENIED"  # in what Arrow says of S3
SEES, BLIND = "sees", "blind"
ANSWER = pa.schema([("executor", pa.string()), ("host", pa.string()), ("found", pa.string())])
ANSWER_DDL = "executor string, host string, found string"


def leave(lake: str) -> str:
    """Write a marker and return its name; one that a killed process has left goes."""
    take_away(lake)
    files, folder = filesystem(f"{lake}/{FOLDER}")
    files.create_dir(folder)
    name = uuid4().hex
    write_whole(f"{lake}/{FOLDER}/{name}", name.encode())
    return name


def take_away(lake: str) -> None:
    """Remove whatever marker there is."""
    files, folder = filesystem(f"{lake}/{FOLDER}")
    if files.get_file_info(folder).type != fs.FileType.NotFound:
        files.delete_dir(folder)


def look(lake: str, name: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Look for a marker in an executor; yield one row of ANSWER: SEES, BLIND, or the error that storage ended with."""
    for _ in batches:
        pass
    try:
        found = SEES if read_whole(f"{lake}/{FOLDER}/{name}") == name.encode() else BLIND
    except OSError as error:
        is_kept_out = isinstance(error, PermissionError) or NOT_LET_IN in str(error)
        found = BLIND if is_kept_out else type(error).__name__
    time.sleep(HOLD_SECONDS)
    host = socket.gethostname()
    # An executor's Python workers have one parent.
    yield pa.RecordBatch.from_pylist([{"executor": f"{host} {os.getppid()}", "host": host, "found": found}], ANSWER)
