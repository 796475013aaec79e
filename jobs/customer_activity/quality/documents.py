"""Data Docs: what came of each run of quality as HTML pages, in a folder or below an S3 prefix.

`index.html` shows the newest run and lists the others, `runs/<run>/index.html` shows one, and beside it is a page for
each suite that Great Expectations has rendered (`rendering`). A page is one file, without a script and without anything
from another host, so it is the same from a disk, from a bucket and behind the portal's sign-in. Each is written whole,
and the index last: who reads meanwhile sees the former run or the new one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import NamedTuple

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from pyarrow import fs

from customer_activity.quality import rendering
from customer_activity.quality.judging import Judged
from customer_activity.quality.rules import Rule, Severity, Suite
from customer_activity.quality.verdicts import Outcome
from customer_activity.storage.filesystem import filesystem, read_whole, write_whole

KEPT_RUNS = 100
INDEX = "index.html"
RUNS = "runs"
LISTED = "runs.json"  # what the index says of each run that is kept
RUN = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")  # a run's name: of other folders none is removed
FORMER, STATIC = "validations", "static"  # Great Expectations' own folders, of former releases: <suite>/<run>/… in one
HTML = "text/html"

log = logging.getLogger("customer_activity")


class Told(msgspec.Struct):
    """What the index says of a run."""

    run: str  # its name; begins with its time
    at: datetime
    rules: int
    passed: int
    holds: int  # rules that did not pass and are of severity `hold`


class Part(NamedTuple):
    """A suite of a run: its page, and the rules that did not pass."""

    name: str
    page: str
    rules: int
    failing: Mapping[Rule, Judged]

    @property
    def holds(self) -> int:
        """How many of those are of severity `hold`."""
        return sum(rule.severity is Severity.HOLD for rule in self.failing)


def write(target: str, run_id: str, at: datetime, suites: Mapping[Suite, Mapping[Rule, Judged]]) -> str:
    """Write a run's pages to a folder or `s3://bucket/prefix`; return where the index is."""
    target = target.rstrip("/")
    parts = []
    for suite, judged in suites.items():
        name = suite.name.replace("/", ".")
        failing = {rule: one for rule, one in judged.items() if one.outcome is not Outcome.PASSED}
        parts.append(Part(name, f"{name}.html", len(judged), failing))
        _put(f"{target}/{RUNS}/{run_id}/{name}.html", rendering.page(name, run_id, at, judged))
    rules, failed = sum(part.rules for part in parts), sum(len(part.failing) for part in parts)
    told = Told(run_id, at, rules, rules - failed, sum(part.holds for part in parts))
    others = [other for other in _listed(target) if other.run != run_id][: KEPT_RUNS - 1]
    _put(f"{target}/{RUNS}/{run_id}/{INDEX}", _index(told, parts, [], ""))
    write_whole(f"{target}/{LISTED}", msgspec.json.encode([told, *others]))
    _put(f"{target}/{INDEX}", _index(told, parts, others, f"{RUNS}/{run_id}/"))
    try:
        _prune(target)
    except OSError as error:  # who may write objects may not be allowed to remove any
        log.warning("old pages of quality cannot be removed: %s", type(error).__name__)
    return f"{target}/{INDEX}"


def _index(told: Told, parts: list[Part], others: list[Told], folder: str) -> str:
    """Make the page of a run, whose suites' pages are in a folder; with the others it is the index of all."""
    return _template().render(told=told, parts=parts, others=others, folder=folder)


@cache
def _template() -> Template:
    """Return the index's template, compiled once."""
    environment = Environment(
        loader=FileSystemLoader(rendering.TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("run.html.j2")


def _listed(target: str) -> list[Told]:
    """Return what the index says of former runs, the newest first; nothing where that cannot be read."""
    try:
        return msgspec.json.decode(read_whole(f"{target}/{LISTED}") or b"[]", type=list[Told])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def _put(location: str, page: str) -> None:
    write_whole(location, page.encode(), HTML)


def _prune(target: str) -> None:
    """Remove the pages of all but the newest runs, a run's name begins with its time; and what former releases made."""
    files, root = filesystem(target)
    for old in sorted(info.path for info in _runs(files.get_file_info(fs.FileSelector(f"{root}/{RUNS}"))))[:-KEPT_RUNS]:
        files.delete_dir(old)
    former = f"{root}/{FORMER}"
    found = files.get_file_info(fs.FileSelector(former, recursive=True, allow_not_found=True))
    ours = [info.path for info in _runs(found) if info.path.count("/") == former.count("/") + 2]
    for run in ours:
        files.delete_dir(run)
    others = [
        info
        for info in found
        if info.type is fs.FileType.File and not info.path.startswith(tuple(f"{run}/" for run in ours))
    ]
    if ours and not others:  # nobody else has pages there that would need what lies in `static`
        for folder in (former, f"{root}/{STATIC}"):
            if files.get_file_info(folder).type is fs.FileType.Directory:
                files.delete_dir(folder)


def _runs(found: list[fs.FileInfo]) -> list[fs.FileInfo]:
    return [info for info in found if info.type is fs.FileType.Directory and RUN.fullmatch(info.base_name)]
