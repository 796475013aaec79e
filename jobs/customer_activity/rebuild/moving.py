"""Put one generation in the place of another, step by step: whatever interrupts it, to do it again finishes it.

Until a swap is through nothing else begins on the lake (`generations.refuse_unfinished`). First all live parts go out,
then all new ones come in, so that each part that is found in its place tells what is left to do.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, write_deltalake

from customer_activity.catalog import Reason, Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.lake import audit, deltalog, footers, generations
from customer_activity.lake.checksums import write_checksum
from customer_activity.lake.generations import CONFLICTS, NEXT, Kept, Step, Swap, folder, parts
from customer_activity.lake.microbatch import QUARANTINED, REMOVED
from customer_activity.rebuild.candidate import PLACE, conflicts
from customer_activity.settings import Settings
from customer_activity.streams.silver.index import NAME as SILVER
from customer_activity.streams.silver.stream import conflicting

AFTER = {Step.OUT: Step.IN, Step.IN: Step.QUARANTINE, Step.QUARANTINE: Step.CLEAR}
WHAT = "rebuild"  # what commits and audit entries call themselves


def begin(lake: str, candidate: Path, kept: Kept, back: str = "") -> None:
    """Begin a swap: from here on it is finished, and nothing else runs before.

    Args:
        lake: whose silver and gold.
        candidate: the folder with the parts that come in; it is moved.
        kept: what is to be known of the generation that goes out.
        back: the name of the kept one that comes back, if it is one.
    """
    place = folder(lake, NEXT)
    if place.exists():  # of a swap that never began
        shutil.rmtree(place)
    place.parent.mkdir(exist_ok=True)
    candidate.rename(place)
    generations.note_kept(lake, kept)
    pq.write_table(conflicts(lake), folder(lake, kept.name) / CONFLICTS)
    generations.set_to_work(lake, Swap(Step.OUT, kept.name, back, kept.reason))


def finish(settings: Settings, reach: Callable[[str], None] = lambda _: None) -> str:
    """Do what is left of the swap that is at work; return the name under which the old generation is kept.

    Args:
        settings: whose lake; no driver may run on it.
        reach: called after each thing that was done.
    """
    lake = settings.lake
    while (swap := generations.at_work(lake)) is not None:
        if swap.step is Step.OUT:
            _move(Path(lake), folder(lake, swap.kept), reach)
        elif swap.step is Step.IN:
            _move(folder(lake, NEXT), Path(lake), reach)
        elif swap.step is Step.QUARANTINE:
            settle(settings, pq.read_table(folder(lake, NEXT) / CONFLICTS), swap.kept, reach)
        else:
            _clear(lake, swap, reach)
            return swap.kept
        generations.set_to_work(lake, swap._replace(step=AFTER[swap.step]))
        reach(f"after {swap.step}")
    raise RuntimeError(f"{lake}: no swap is at work")


def _move(source: Path, target: Path, reach: Callable[[str], None]) -> None:
    """Move each part that is still there."""
    for part in parts():
        if (source / part).exists():
            (target / part).parent.mkdir(parents=True, exist_ok=True)
            (source / part).rename(target / part)
            reach(f"moved {part} to {target.name}")


def settle(settings: Settings, wanted: pa.Table, run: str, reach: Callable[[str], None] = lambda _: None) -> None:
    """Make quarantine's conflicting repeats those that a generation of silver has refused.

    Args:
        settings: whose lake.
        wanted: their partitions and offsets.
        run: the name under which the commits are counted.
        reach: called after each commit.
    """
    held = conflicts(settings.lake)
    missing, surplus = _without(wanted, held), _without(held, wanted)
    path, topic = table_path(settings.lake, Table.QUARANTINE), settings.purchase_topic
    if missing.num_rows:
        schema = arrow_schema(Table.QUARANTINE)
        found = [rows.select(schema.names).cast(schema) for rows in conflicting(settings.lake, missing)]
        rows = pa.concat_tables([schema.empty_table(), *found])
        note = _note(run, topic, {QUARANTINED: rows.num_rows})
        write_deltalake(path, rows, mode="append", commit_properties=note)
        _finish(settings.lake)
        reach("conflicts added")
    if surplus.num_rows:
        on = " AND ".join(f't."{name}" = s."{name}"' for name in PLACE)
        DeltaTable(path).merge(
            surplus,
            f"{on} AND t.reason = '{Reason.CONFLICTING_DUPLICATE}'",
            source_alias="s",
            target_alias="t",
            commit_properties=_note(run, topic, {REMOVED: surplus.num_rows}),
        ).when_matched_delete().execute()
        footers.mend(settings.lake, Table.QUARANTINE)
        _finish(settings.lake)
        reach("conflicts removed")


def _finish(lake: str) -> None:
    """Write the checksum of quarantine's newest version, and have the commit outlast a loss of power."""
    path = table_path(lake, Table.QUARANTINE)
    version = DeltaTable(path).version()
    write_checksum(path, version)
    deltalog.settle(lake, Table.QUARANTINE, version)


def _without(places: pa.Table, others: pa.Table) -> pa.Table:
    return places.join(others, PLACE, join_type="left anti")


def _note(run: str, topic: str, counts: dict[str, int]) -> CommitProperties:
    note = {"query": WHAT, "generation": run, "batch_id": 0, "counts": {topic: counts}}
    return CommitProperties(custom_metadata={"userMetadata": json.dumps(note, sort_keys=True)})


def _clear(lake: str, swap: Swap, reach: Callable[[str], None]) -> None:
    """Remove what is no longer needed, and note who did it."""
    for name in filter(None, (NEXT, swap.back)):  # what has come back is the live one now
        shutil.rmtree(folder(lake, name), ignore_errors=True)
        reach(f"removed {name}")
    audit.append(lake, datetime.now(UTC), WHAT, SILVER, swap.reason, kept=swap.kept, back=swap.back)
    generations.finish(lake)
