"""The deployment that the release before left (tests/fixtures/README.md), unpacked to go on from."""

from __future__ import annotations

import os
import tarfile
import time
from pathlib import Path

ARCHIVE = Path(__file__).parents[1] / "fixtures" / "lake-v1.tar.xz"


def unpack(folder: Path, part: str = "") -> None:
    """Unpack it, or a part of it such as `lake`; the last file is of now. Delta tells the age of versions by theirs."""
    with tarfile.open(ARCHIVE) as archive:
        chosen = [member for member in archive.getmembers() if member.name.startswith(part)]
        archive.extractall(folder, chosen, filter="data")
        later = time.time() - max(member.mtime for member in chosen)
        for member in chosen:
            os.utime(folder / member.name, (member.mtime + later, member.mtime + later))
