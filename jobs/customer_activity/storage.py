"""Where a lake is, as a file system that Arrow reads and writes."""

from __future__ import annotations

from pyarrow import fs


def filesystem(location: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a location and the path within it; `s3a` is Hadoop's name for `s3`."""
    if "://" not in location:
        return fs.LocalFileSystem(), location
    files, path = fs.FileSystem.from_uri(location.replace("s3a://", "s3://", 1))
    return files, path
