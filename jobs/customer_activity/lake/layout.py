"""The layout version of a lake: which columns its tables have; each table says its version in its properties.

| version | since    | what is new                                                       |
|---------|----------|-------------------------------------------------------------------|
| 1       | 0.1      | tables have no such property                                      |
| 2       | 0.2      | `landing` in bronze, silver.purchases and both tables of profiles |

A release works on lakes of its own version alone whose tables have all of its columns: a column that a contract has got
needs no other version. `migration` brings older ones up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from deltalake import DeltaTable
from pyarrow import fs

from customer_activity.catalog import Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.errors import LakeOfAnotherRelease, TerminalError
from customer_activity.lake import deltalog
from customer_activity.storage.filesystem import filesystem

PROPERTY = "activity.schema"  # both Spark and delta-rs keep properties whose names are not theirs
FIRST, CURRENT = 1, 2
READER = 1  # Delta's version of readers
ENTRY = re.compile(r"/(\d{20})\.(json|crc)$")


class Layout(NamedTuple):
    """What one table is like."""

    table: Table
    version: int  # that it says
    lacks: tuple[str, ...]  # columns, in the order in which they are added
    reader: int  # the version of Delta's protocol that it asks of readers

    @property
    def is_older(self) -> bool:
        """Whether it is of an older release."""
        return self.version < CURRENT or bool(self.lacks)


def refuse_others(lake: str) -> None:
    """Make sure that every table that is there is of this release's version.

    Raises:
        LakeOfAnotherRelease: one is older or newer; says which and what to do.
        TerminalError: the newest entry of a table's log was cut off by a loss of power.
    """
    if "://" not in lake:
        refuse_cut_off(lake)
    found = list(layouts(lake))
    refuse_newer(lake, found)
    refuse_features(found)
    if older := [one for one in found if one.is_older]:
        named = (one.table.label + (f" (lacks {', '.join(one.lacks)})" if one.lacks else "") for one in older)
        raise LakeOfAnotherRelease(
            f"{lake} was made by an older release: {', '.join(named)}",
            remedy="`activity migrate` upgrades it in place (--dry-run shows what it does); nothing is rewritten",
        )


def refuse_cut_off(lake: str) -> None:
    """Make sure that the newest entry of each log is whole: nothing opens a table whose entry is not.

    Raises:
        TerminalError: one is not; names the file.
    """
    for table in Table:
        log = Path(table_path(lake, table), "_delta_log")
        version = deltalog.newest_version(lake, table) if log.is_dir() else -1
        try:
            deltalog.entry(lake, table, version)
        except ValueError:
            raise TerminalError(
                f"{table.label}: version {version} of its log is cut off",
                remedy="a power loss can do that to a commit that nothing relies on yet: remove "
                f"{log / f'{version:020}.json'}, then start again",
            ) from None


def refuse_newer(lake: str, found: Iterable[Layout]) -> None:
    """Make sure that none of the versions found is of a later release.

    Raises:
        LakeOfAnotherRelease: one is.
    """
    if newer := [one for one in found if one.version > CURRENT]:
        named = ", ".join(f"{one.table.label} (version {one.version})" for one in newer)
        raise LakeOfAnotherRelease(
            f"{lake} is of a newer release: {named}; this one knows version {CURRENT}",
            remedy="run the release that made it, or a later one",
        )


def refuse_features(found: Iterable[Layout]) -> None:
    """Make sure that no table needs readers of more than version 1 of Delta's protocol.

    The pipeline reads the Parquet files that the log names: with deletion vectors it would see deleted rows, and with
    column mapping other names.

    Raises:
        TerminalError: a table does.
    """
    if asking := [one.table.label for one in found if one.reader > READER]:
        raise TerminalError(
            f"{', '.join(asking)}: somebody has switched on a feature, such as deletion vectors or column mapping, "
            f"that needs readers of more than Delta's version {READER}: the pipeline and many others are of that one",
            remedy="restore a backup of the lake, or remove the feature with Spark: `REORG TABLE … APPLY (PURGE)` for "
            "deletion vectors, then `ALTER TABLE … DROP FEATURE … TRUNCATE HISTORY`, which Spark refuses until the "
            "log's history with the feature has expired, a day or more; without TRUNCATE HISTORY it leaves another, "
            "checkpointProtection, that the pipeline cannot write",
        )


def layouts(lake: str) -> Iterator[Layout]:
    """Yield what each table is like that is there.

    One whose version is no number, or that has other columns besides, is of a release that we know nothing of.
    """
    for table in Table:
        metadata = _metadata(table_path(lake, table))
        if metadata is not None:
            said = metadata["configuration"].get(PROPERTY, str(FIRST))
            there = [field["name"] for field in json.loads(metadata["schemaString"])["fields"]]
            is_known = said.isdecimal() and set(there).issubset(arrow_schema(table).names)
            lacks = tuple(name for name in arrow_schema(table).names if name not in there)
            yield Layout(table, int(said) if is_known else CURRENT + 1, lacks, metadata["reader"])


def _metadata(path: str) -> Mapping[str, Any] | None:
    """Return a table's properties, schema and `reader`, the version that readers must be of; None: there is no table.

    Every start asks for them. The newest version's checksum has them, so no log is read in which there is one.
    """
    files, folder = filesystem(f"{path}/_delta_log")
    found = files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    newest: dict[str, int] = {}
    for kind, version in ((name.group(2), int(name.group(1))) for file in found if (name := ENTRY.search(file.path))):
        newest[kind] = max(version, newest.get(kind, version))
    if not newest:
        return None
    if newest.get("crc") == newest.get("json"):
        with files.open_input_stream(f"{folder}/{newest['crc']:020}.crc") as stream, suppress(ValueError, KeyError):
            told = json.loads(stream.read())
            metadata = {name: told["metadata"][name] for name in ("configuration", "schemaString")}
            return metadata | {"reader": told["protocol"]["minReaderVersion"]}
    log = DeltaTable(path)
    metadata = {"configuration": log.metadata().configuration, "schemaString": log.schema().to_json()}
    return metadata | {"reader": log.protocol().min_reader_version}
