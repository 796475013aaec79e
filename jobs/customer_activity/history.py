"""What the commits of a table said, kept when its log is shortened: `<lake>/_history/<table>/<first>-<last>.jsonl`.

Each line is a commit's `commitInfo` with its version: who wrote, when, which batch, its counts and offsets.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyarrow import fs

from customer_activity.catalog import Table, history_path
from customer_activity.storage import filesystem


def keep(lake: str, table: Table, entries: Sequence[tuple[int, str]]) -> None:
    """Keep what some commits said.

    Args:
        lake: where the table is.
        table: which one.
        entries: version and path of each commit's entry in the log, in order.
    """
    if not entries:
        return
    files, folder = filesystem(history_path(lake, table))
    lines = [json.dumps({"version": version, **_said(files, path)}) for version, path in entries]
    files.create_dir(folder, recursive=True)
    with files.open_output_stream(f"{folder}/{entries[0][0]:020}-{entries[-1][0]:020}.jsonl") as stream:
        stream.write("\n".join(lines).encode())


def _said(files: fs.FileSystem, path: str) -> dict[str, object]:
    with files.open_input_stream(path) as stream:
        actions = (json.loads(line) for line in stream.read().splitlines())
        return next((dict(action["commitInfo"]) for action in actions if "commitInfo" in action), {})
