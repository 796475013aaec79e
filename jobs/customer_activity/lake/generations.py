"""Generations of silver and gold: those that were kept when another took their place, and a swap that is at work.

    <lake>/_generations/<name>/          one that was kept: its parts, as they were below the lake, and
        generation.json                  when it was taken out, and how far it had read bronze
        conflicts.parquet                partition and offset of the purchases that it had refused
    <lake>/_generations/next/            the one that comes in
    <lake>/_generations/swap.json        the swap, until it is through: the lake's parts may be of either generation

A lake is a folder here: on an object store nothing can be moved, so no generation is kept there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from customer_activity import topology
from customer_activity.catalog import Table, checkpoint_path, history_path
from customer_activity.errors import SettingsError, SwapUnfinished
from customer_activity.storage.filesystem import read_whole, write_whole

NEXT = "next"
CONFLICTS = "conflicts.parquet"
DROPPED = ".dropped"
TIME = "%Y%m%dT%H%M%SZ"

REBUILT = tuple(table for table in Table if not table.value.startswith("bronze/"))


def parts() -> list[str]:
    """Return what changes places, as paths below a lake.

    That is silver's and gold's tables, what their commits said, and the checkpoints of all who read them. Local indexes
    name the tables that they are of, so they are made anew by themselves.
    """
    landing = topology.landing().name
    return [
        *dict.fromkeys(table.value.partition("/")[0] for table in REBUILT),
        *(checkpoint_path("", query)[1:] for query in topology.names() if query != landing),
        *(history_path("", table)[1:] for table in REBUILT),
    ]


class Step(StrEnum):
    """What of a swap is to be done next; each can be done again."""

    OUT = "out"  # the live parts go to where they are kept
    IN = "in"  # the others come to their place
    QUARANTINE = "quarantine"  # it gets what the new generation refused, and loses what only the old one did
    CLEAR = "clear"  # what is left of the work goes


class Swap(NamedTuple):
    """A swap at work.

    Attributes:
        step: what is to be done next.
        kept: the name under which the old generation is kept.
        back: the name of the kept one that comes back; empty when it is a new one.
        reason: why, for the lake's `_audit` folder.
    """

    step: Step
    kept: str
    back: str
    reason: str


class Kept(NamedTuple):
    """A generation that was taken out.

    Attributes:
        name: what it is called.
        taken_out: when.
        reason: why another took its place.
        versions: of bronze's tables of events when it was: all of them is in it.
        landed: by table, the next offset of each partition then.
    """

    name: str
    taken_out: datetime
    reason: str
    versions: dict[str, int]
    landed: dict[str, dict[int, int]]


def folder(lake: str, name: str) -> Path:
    """Where a generation is kept."""
    return Path(lake) / "_generations" / name


def at_work(lake: str) -> Swap | None:
    """Return the swap that has begun and is not through; None when there is none."""
    text = None if "://" in lake else read_whole(str(_swap_path(lake)))
    if text is None:
        return None
    told = json.loads(text)
    return Swap(Step(told.pop("step")), **told)


def set_to_work(lake: str, swap: Swap) -> None:
    """Note what of a swap is to be done next."""
    write_whole(str(_swap_path(lake)), json.dumps(swap._asdict()).encode())


def finish(lake: str) -> None:
    """Note that a swap is through."""
    _swap_path(lake).unlink()


def refuse_unfinished(lake: str) -> None:
    """Make sure that the tables of a lake are of one generation.

    Raises:
        SwapUnfinished: a swap was interrupted.
    """
    if (swap := at_work(lake)) is not None:
        command = f"--back {swap.back}" if swap.back else "--swap if-equal"
        raise SwapUnfinished(
            f"{lake}: a swap of generations was interrupted (next step: {swap.step}); nothing may run before it ends",
            remedy=f"`activity rebuild {command}` finishes it; nothing is built again for that",
        )


def note_kept(lake: str, kept: Kept) -> None:
    """Write down how far a generation had read, before it is taken out."""
    told = {**kept._asdict(), "taken_out": kept.taken_out.isoformat(timespec="seconds")}
    write_whole(str(folder(lake, kept.name) / "generation.json"), json.dumps(told, indent=2).encode())


def new_name(lake: str, now: datetime) -> str:
    """Return a name for a generation that is taken out: the time, so that names are in the order of time."""
    name = f"{now:{TIME}}"
    return name if not folder(lake, name).exists() else f"{name[:-1]}{now:%f}Z"


def kept(lake: str) -> list[Kept]:
    """Return the generations that are kept, the oldest first."""
    if "://" in lake:
        return []
    found = (path.parent.name for path in folder(lake, "").glob(f"*/{parts()[0]}"))
    return [_read(lake, name) for name in sorted(found) if name != NEXT and not name.endswith(DROPPED)]


def find(lake: str, name: str) -> Kept:
    """Return a generation that is kept.

    Raises:
        SettingsError: there is none of that name.
    """
    found = {kept.name: kept for kept in kept(lake)}
    if name not in found:
        listed = ", ".join(found) or "none"
        raise SettingsError(f"no generation {name} is kept at {lake}", remedy=f"there are: {listed}")
    return found[name]


def drop(lake: str, name: str) -> None:
    """Remove a generation that is kept.

    Raises:
        SettingsError: there is none of that name.
        SwapUnfinished: parts of it may be on their way.
    """
    refuse_unfinished(lake)
    place = folder(lake, find(lake, name).name)
    place.rename(place.with_name(name + DROPPED))  # it is kept no more, whatever an interruption leaves of it
    for gone in folder(lake, "").glob(f"*{DROPPED}"):
        shutil.rmtree(gone)


def size(lake: str, name: str) -> int:
    """Return the bytes that a generation takes."""
    return sum(path.stat().st_size for path in folder(lake, name).rglob("*") if path.is_file())


def _read(lake: str, name: str) -> Kept:
    told = json.loads((folder(lake, name) / "generation.json").read_text(encoding="utf-8"))
    landed: Mapping[str, Mapping[str, int]] = told["landed"]
    told["landed"] = {table: {int(at): end for at, end in ends.items()} for table, ends in landed.items()}
    told["taken_out"] = datetime.fromisoformat(told["taken_out"]).astimezone(UTC)
    return Kept(**told)


def _swap_path(lake: str) -> Path:
    return folder(lake, "swap.json")
