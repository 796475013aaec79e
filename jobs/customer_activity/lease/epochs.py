"""Where a lease's epochs are kept: as files in a folder, or as objects in a bucket.

An epoch is `_locks/<query>.<number>`: created once, by whoever is first, and written again as long as its driver lives.
A folder has locks besides, which tell a dead driver from a silent one. S3 has none: there an epoch says itself when its
driver has given the query back, and a driver that was killed is known by its silence alone.

Ages are told by the clock of the storage, never by comparing two machines' clocks.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Protocol

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from customer_activity import topology
from customer_activity.catalog import lease_id, lock_path, table_path
from customer_activity.storage import s3

TABLES_AT_A_TIME = 4  # opening one is mostly waiting for its storage
LOCKED, FROZEN, GIVEN_BACK = "", "its predecessor was frozen and holds the lock", "given back"


class Lock(Protocol):
    """A lock on a file, held until it is closed or the process is gone that has it."""

    def take(self) -> bool:
        """Take it; say whether it is held here now."""

    def close(self) -> None:
        """Give it back."""


class ProcessLock:
    """A lock that this process has; a driver's is its JVM's (`session.JvmLock`). Each sees the other's."""

    def __init__(self, path: Path) -> None:
        """Open the file."""
        self.file = path.open("ab+")

    def take(self) -> bool:
        """Take it; say whether it is held here now."""
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Give it back."""
        self.file.close()


class Files:
    """Epochs in a folder of this machine."""

    is_near = True  # looking costs nothing, so a driver may do it all the time

    def __init__(self, lake: str, open_lock: Callable[[Path], Lock]) -> None:
        """Have `open_lock` open the locks: they live as long as what commits here."""
        self.lake = lake
        self.open_lock = open_lock

    def newest(self) -> dict[str, int]:
        """Return the newest epoch of each stream that ever had a driver."""
        folder = Path(lock_path(self.lake, "any")).parent
        return _newest(path.name for path in folder.glob("*.*"))

    def create(self, query: str, epoch: int, text: str) -> None:
        """Begin an epoch; FileExistsError when another driver was first: the file system lets one create the file."""
        with self._file(query, epoch).open("x", encoding="utf-8") as file:
            file.write(text)

    def renew(self, query: str, epoch: int, text: str) -> None:
        """Touch the file, for its driver is at work, and change what it says where that is something else."""
        file = self._file(query, epoch)
        if file.read_text(encoding="utf-8") == text:
            os.utime(file)
        else:
            file.write_text(text, encoding="utf-8")

    def read(self, query: str, epoch: int) -> tuple[str, float]:
        """Return what an epoch says, and how many seconds ago it was written."""
        file = self._file(query, epoch)
        return file.read_text(encoding="utf-8"), time.time() - file.stat().st_mtime

    def give_back(self, query: str, epoch: int) -> None:
        """Do nothing: the lock is free once the epoch's driver is at work no more."""

    def remove(self, query: str, epochs: Iterable[int]) -> None:
        """Remove epochs that are over, as far as they are there."""
        for epoch in epochs:
            self._file(query, epoch).unlink(missing_ok=True)

    def lock(self, query: str) -> Lock:
        """Open the lock that a stream's driver holds as long as it lives."""
        path = Path(lock_path(self.lake, query))
        path.parent.mkdir(parents=True, exist_ok=True)
        return self.open_lock(path)

    def _file(self, query: str, epoch: int) -> Path:
        return Path(lock_path(self.lake, query)).with_name(f"{query}.{epoch}")


class Objects:
    """The same in a bucket. Each method raises StorageUnavailable or SettingsError when S3 does not do as asked."""

    is_near = False

    def __init__(self, lake: str) -> None:
        """Open nothing yet."""
        self.bucket, prefix = s3.place(lake)
        self.folder = f"{prefix}/_locks/".lstrip("/")
        self.s3 = s3.client()

    def newest(self) -> dict[str, int]:
        """List the folder: one page of it, since few epochs are there."""
        with s3.explained(self.bucket):
            found = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=self.folder).get("Contents", [])
        return _newest(entry["Key"].removeprefix(self.folder) for entry in found)

    def create(self, query: str, epoch: int, text: str) -> None:
        """Write the object on condition that there is none, which S3 grants one driver."""
        key = self._key(query, epoch)
        with s3.explained(self.bucket):
            if not s3.created(self.s3, self.bucket, key, text.encode()):
                raise FileExistsError(key)

    def renew(self, query: str, epoch: int, text: str) -> None:
        """Write the object."""
        with s3.explained(self.bucket):
            self.s3.put_object(Bucket=self.bucket, Key=self._key(query, epoch), Body=text.encode())

    def read(self, query: str, epoch: int) -> tuple[str, float]:
        """Read the object, and compare its time with that of the answer: both are S3's."""
        key = self._key(query, epoch)
        with s3.explained(self.bucket):
            try:
                found = self.s3.get_object(Bucket=self.bucket, Key=key)
            except self.s3.exceptions.NoSuchKey:
                raise FileNotFoundError(key) from None  # as of a file: another driver has just taken it over
            text = found["Body"].read().decode()
        now = parsedate_to_datetime(found["ResponseMetadata"]["HTTPHeaders"]["date"])
        return text, (now - found["LastModified"]).total_seconds()

    def give_back(self, query: str, epoch: int) -> None:
        """Have the object say so."""
        self.renew(query, epoch, GIVEN_BACK)

    def remove(self, query: str, epochs: Iterable[int]) -> None:
        """Remove the objects."""
        with s3.explained(self.bucket):
            for epoch in epochs:
                self.s3.delete_object(Bucket=self.bucket, Key=self._key(query, epoch))

    def lock(self, query: str) -> None:
        """There is none."""

    def _key(self, query: str, epoch: int) -> str:
        return f"{self.folder}{query}.{epoch}"


Epochs = Files | Objects


def of(lake: str, open_lock: Callable[[Path], Lock]) -> Epochs:
    """Return a lake's epochs; `open_lock` opens the locks of one that is a folder."""
    return Objects(lake) if s3.is_on(lake) else Files(lake, open_lock)


def in_tables(lake: str, queries: Sequence[str]) -> dict[str, int]:
    """Return the greatest epoch that commits of some queries carry, 0 where there is none.

    It is greater than the newest of the lake's epochs where `_locks` was lost, or restored from a backup: a driver that
    began below it could commit nothing, and neither could its next successors.
    """
    written = {query: topology.spec(query).tables for query in queries}
    tables = sorted({table for query in queries for table in written[query]})
    with ThreadPoolExecutor(TABLES_AT_A_TIME, thread_name_prefix="epochs") as pool:
        opened = dict(zip(tables, pool.map(lambda table: _opened(table_path(lake, table)), tables), strict=True))
    return {
        query: max(
            (log.transaction_version(lease_id(query)) or 0 for table in written[query] if (log := opened[table])),
            default=0,
        )
        for query in queries
    }


def _opened(path: str) -> DeltaTable | None:
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def _newest(names: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    known = {*topology.names(), *(each.name for each in topology.off())}  # another driver may have them on
    for name in names:
        query, _, number = name.rpartition(".")
        if number.isdigit() and query in known:
            found[query] = max(int(number), found.get(query, 0))
    return found
