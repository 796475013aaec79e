"""A folder with a hundred thousand files, a log's or a table's: list their names, remove some of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise

from pyarrow import fs

from customer_activity.storage.filesystem import requests

THINNED_COMMITS = 1_000  # of which an older log has one checkpoint: who opens such a version reads so many entries


def names(files: fs.FileSystem, folder: str) -> list[str]:
    """Return the names of a folder's files; on this disk without asking what each of them is."""
    if isinstance(files, fs.LocalFileSystem):
        return os.listdir(folder)  # noqa: PTH208 - 170,000 names, and nothing is asked of their files
    return [entry.base_name for entry in files.get_file_info(fs.FileSelector(folder)) if entry.is_file]


def delete(files: fs.FileSystem, paths: Sequence[str]) -> None:
    """Remove files in their order; where each takes a request, some at once, which may leave a gap after a crash."""
    if isinstance(files, fs.LocalFileSystem):
        for path in paths:
            files.delete_file(path)
        return
    with requests() as pool:
        list(pool.map(files.delete_file, paths))


def superfluous(checkpoints: Sequence[int]) -> list[int]:
    """Return the checkpoints of a log that nobody needs: all but the newest two and one in THINNED_COMMITS.

    Each has the files that were removed in a week: some megabytes, every hundred commits.
    """
    older = sorted(checkpoints)[:-2]
    return [at for before, at in pairwise(older) if at // THINNED_COMMITS == before // THINNED_COMMITS]
