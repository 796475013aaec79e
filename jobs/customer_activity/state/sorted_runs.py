"""Keyed state in the lake: sorted runs of fingerprints, each of one bucket, as in a log-structured merge tree.

A key is known by its fingerprint, 16 bytes of BLAKE2b; of two keys among a billion the odds that they share one are
below 10^-20. Its bucket is the highest bits of the fingerprint or, where rows are brought together by keys that need
none before, of the key's CRC-32, which takes a fifth of the time. A run is an immutable Arrow file of a bucket's rows,
sorted by fingerprint, with values beside: what is looked up by binary search costs the pages that it touches, and a run
on this machine's disk is mapped, not read. Who adds to a bucket writes one more run, and takes the newest ones that are
no longer much larger than it into it, so that a bucket has as many as its size has binary digits, at most. Runs are
merged piece by piece, and written so: each record batch of a file has the fingerprints after those of the one before.

Spark's executors import this module and need little for it; `catalogue.py` is the driver's part.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import fs

from customer_activity.storage.filesystem import PRIVATE, filesystem, settle

BUCKETS = 64
BUCKET_SHIFT = 64 - 6
CRC_SHIFT = 32 - 6
FINGERPRINT_BYTES = 16
GROWTH = 2  # a run is taken into the next one unless it is more than so many times as large
PIECE_BYTES = 32 << 20  # of all runs in a merge together: a piece of each is held at a time
SUFFIX = ".arrow"

Longs = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]  # of rows, and of buckets


class Run(NamedTuple):
    """A run's file.

    Attributes:
        path: below the folder of the state.
        rows: in it.
        size: bytes.
    """

    path: str
    rows: int
    size: int


class StateGone(Exception):
    """Raised where a run is gone or cannot be read: it is made again, with all others of the state."""


def digests(texts: Iterable[bytes]) -> tuple[Longs, Longs]:
    """Return 16 bytes of BLAKE2b of each text, as two numbers of 64 bits."""
    joined = b"".join(blake2b(text, digest_size=FINGERPRINT_BYTES).digest() for text in texts)
    pairs = np.frombuffer(joined, ">i8").astype(np.int64).reshape(-1, 2)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def fingerprints(keys: pa.Array | pa.ChunkedArray) -> tuple[Longs, Longs]:
    """Return the fingerprints of some keys, texts without a null."""
    return digests(keys.cast(pa.binary()).to_pylist())


def buckets(high: Longs) -> Numbers:
    """Return the bucket of each fingerprint, by its first half."""
    return (high >> BUCKET_SHIFT) & (BUCKETS - 1)


def buckets_by_crc(keys: pa.Array | pa.ChunkedArray) -> Numbers:
    """Return the bucket of each key, a text, by the key's CRC-32."""
    texts = keys.cast(pa.binary()).to_pylist()
    return np.fromiter(map(zlib.crc32, texts), np.int64, len(texts)) >> CRC_SHIFT


def write(folder: str, rows: pa.Table) -> Run:
    """Write rows as a file with a name of its own; nobody knows it yet."""
    return _write(folder, rows.schema, [rows])


def _write(folder: str, schema: pa.Schema, pieces: Iterable[pa.Table]) -> Run:
    files, place = filesystem(folder)
    path, rows = f"{uuid.uuid4().hex}{SUFFIX}", 0
    if is_here := isinstance(files, fs.LocalFileSystem):
        Path(place).mkdir(parents=True, exist_ok=True, mode=PRIVATE)
    with files.open_output_stream(f"{place}/{path}") as sink, pa.ipc.new_file(sink, schema) as writer:
        for piece in pieces:
            writer.write_table(piece.combine_chunks())
            rows += piece.num_rows
    if is_here:
        settle(f"{place}/{path}")
    return Run(path, rows, files.get_file_info(f"{place}/{path}").size)


def read(folder: str, path: str) -> pa.Table:
    """Open a file of rows; on this machine's disk nothing of it is read yet.

    Raises:
        StateGone: it is gone, or is none.
    """
    files, place = filesystem(folder)
    is_here = isinstance(files, fs.LocalFileSystem)
    try:
        source = pa.memory_map(f"{place}/{path}") if is_here else files.open_input_file(f"{place}/{path}")
        return pa.ipc.open_file(source).read_all()
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise StateGone(path) from error
    except OSError as error:  # Arrow's word for some damages, too; elsewhere it may be the network's
        if is_here:
            raise StateGone(path) from error
        raise


def halves(rows: pa.Table | pa.RecordBatch) -> tuple[Longs, Longs]:
    """Return the fingerprints of rows."""
    return rows.column("hi").to_numpy(), rows.column("lo").to_numpy()


def find(piece: pa.RecordBatch, high: Longs, low: Longs) -> Numbers:
    """Return where a piece of a run has each of these fingerprints, as numbers of its rows; -1 where it has not."""
    held_high, held_low = halves(piece)
    found = np.full(len(high), -1, np.int64)
    at = np.searchsorted(held_high, high)
    asked = np.arange(len(high))
    while len(asked):  # a second time only where two fingerprints share their first half
        asked = asked[at[asked] < len(held_high)]
        asked = asked[held_high[at[asked]] == high[asked]]
        is_it = held_low[at[asked]] == low[asked]
        found[asked[is_it]] = at[asked[is_it]]
        asked = asked[~is_it]
        at[asked] += 1
    return found


def look_up(folder: str, runs: Sequence[Run], high: Longs, low: Longs) -> Iterator[tuple[Numbers, pa.Table]]:
    """Yield rows of a bucket's runs and which of these fingerprints they are of; of each the newest row alone."""
    asked = np.arange(len(high))
    for run in reversed(runs):
        for piece in read(folder, run.path).to_batches():
            at = find(piece, high[asked], low[asked])
            if (at >= 0).any():
                yield asked[at >= 0], pa.Table.from_batches([piece.take(pa.array(at[at >= 0]))])
            asked = asked[at < 0]


def added(folder: str, runs: Sequence[Run], rows: pa.Table) -> list[Run]:
    """Write rows as one more run of their bucket; return the bucket's runs since, oldest first.

    Args:
        folder: of the state.
        runs: of the bucket, oldest first.
        rows: in no order, a fingerprint once; they take the place of older ones.
    """
    if not rows.num_rows:
        return list(runs)
    number = taken_in(runs, rows.num_rows)
    left, taken = runs[: len(runs) - number], runs[len(runs) - number :]
    runs_taken = (read(folder, run.path) for run in reversed(taken))
    return [*left, _write(folder, rows.schema, _merged([_in_order([rows]), *runs_taken]))]


def taken_in(runs: Sequence[Run], rows: int) -> int:
    """Return how many of a bucket's runs, the newest ones, one with so many new rows takes in."""
    number, together = 0, rows
    while number < len(runs) and runs[-1 - number].rows <= GROWTH * together:
        together += runs[-1 - number].rows
        number += 1
    return number


def _merged(runs: Sequence[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of sorted runs, the newest first, in the order of fingerprints, each once; piece by piece."""
    highs = [halves(run)[0] for run in runs]
    longest = max(highs, key=len)
    step = max(len(longest) * PIECE_BYTES // max(sum(run.nbytes for run in runs), 1), 1)
    bounds = longest[step::step]  # rows that share a first half are in the same piece
    cuts = [[0, *np.searchsorted(high, bounds).tolist(), len(high)] for high in highs]
    for number in range(len(bounds) + 1):
        yield _in_order(
            [run.slice(cut[number], cut[number + 1] - cut[number]) for run, cut in zip(runs, cuts, strict=True)]
        )


def _in_order(parts: Sequence[pa.Table]) -> pa.Table:
    """Bring rows of several parts, the newest first, into the order of fingerprints, each once."""
    rows = pa.concat_tables(parts)
    age = np.repeat(np.arange(len(parts)), [part.num_rows for part in parts])
    high, low = halves(rows)
    order = np.lexsort((age, low, high))
    return rows.take(pa.array(order[first_of_each(high[order], low[order])]))


def made_by(*what: object) -> str:
    """Return what tells runs from those that other code or another contract has made."""
    told = "\n".join(map(str, (BUCKETS, *digests([b"a text"]), *buckets_by_crc(pa.array(["a text"])), *what)))
    return blake2b(told.encode(), digest_size=FINGERPRINT_BYTES).hexdigest()


def first_of_each(high: Longs, low: Longs) -> Numbers:
    """Return the numbers of the rows with which another fingerprint begins; equal ones are side by side."""
    begins = np.append(True, (np.diff(high) != 0) | (np.diff(low) != 0))[: len(high)]
    return np.flatnonzero(begins)
