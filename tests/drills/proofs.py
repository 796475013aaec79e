"""What drivers have left behind after a drill, which `activity verify` does not look at: batches' cuts, and logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from customer_activity.lake.microbatch import metadata_of
from drills.faults import FaultMissed

PERSONAL = ("Orchard Street", "Old Street", "@example.com")  # in profiles of everybody, and to be in no log


def leaks(folder: Path) -> list[str]:
    """Name the logs below a folder that tell of a person."""
    return [
        log.name
        for log in sorted(folder.rglob("*.log"))
        if any(word in log.read_text(encoding="utf-8", errors="replace") for word in PERSONAL)
    ]


def seams(lake: str) -> list[str]:
    """Name the batches that do not begin where the one before ended, or were not cut the same each time.

    Each commit tells which offsets its batch read. A batch that wrote nothing made no commit, and is not looked at.
    """
    cuts: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    wrong = []
    for entry in sorted(Path(lake).glob("*/*/_delta_log/*.json")):
        for told in (json.loads(line).get("commitInfo") for line in entry.read_text(encoding="utf-8").splitlines()):
            batch = metadata_of((told or {}).get("userMetadata"))
            if "cut" in batch:
                of_query = cuts.setdefault((batch["query"], batch["generation"]), {})
                if of_query.setdefault(batch["batch_id"], batch["cut"]) != batch["cut"]:
                    wrong.append(f"{batch['query']} {batch['batch_id']}: cut anew in {entry}")
    if not cuts:
        raise FaultMissed(f"no commit below {lake} tells what it read")
    for (query, _), batches in cuts.items():
        wrong += [
            f"{query} {number}: begins at {batches[number]['begin']}, and the one before ended at {before['end']}"
            for number in batches
            if (before := batches.get(number - 1)) is not None and batches[number]["begin"] != before["end"]
        ]
    return wrong
