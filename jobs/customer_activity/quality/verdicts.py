"""The newest verdict on each rule, for those who show it: read from the table of results, without judging anything.

Nothing here imports Great Expectations, which takes seconds and a hundred megabytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from customer_activity.engine import gate

KEPT = timedelta(days=1)  # a rule that was not judged for so long before the newest run is not there any more
SHOWN = ("rule", "suite", "severity", "outcome", "found", "observed", "judged_at", "run_id")


class Outcome(StrEnum):
    """What came of a rule."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"


class Verdicts(NamedTuple):
    """What is known of quality.

    Attributes:
        judged_at: when the newest run was; None when there was none.
        rules: of each rule its newest result: rule, suite, severity, outcome, found, observed, judged_at, run_id.
        holding: the rules that hold publishing, by name.
        overridden: the rules that failed and do not hold it, by name, with the reason.
    """

    judged_at: datetime | None
    rules: list[dict[str, Any]]
    holding: dict[str, str]
    overridden: dict[str, str]

    def as_json(self) -> dict[str, Any]:
        """Return them with plain names and values."""
        return {
            "judgedAtEpochMillis": _millis(self.judged_at),
            "rules": [{**rule, "judged_at": _millis(rule["judged_at"])} for rule in self.rules],
            "holding": self.holding,
            "overridden": self.overridden,
        }


def path(lake: str) -> str:
    """Where the table of results is."""
    return f"{lake}/ops/quality_results"


@dataclass
class Newest:
    """The newest verdict on each rule; results are read again only when their table is another, or has grown."""

    _of: tuple[str, int] | None = None
    _judged_at: datetime | None = None
    _rules: list[dict[str, Any]] = field(default_factory=list)

    def read(self, lake: str) -> Verdicts:
        """Return the newest verdict on each rule, and what holds publishing."""
        failures = gate.failures(lake)
        holding = {rule: failure.message for rule, failure in failures.items() if failure.override_reason is None}
        overridden = {rule: failure.override_reason or "" for rule, failure in failures.items() if rule not in holding}
        try:
            table = DeltaTable(path(lake))
        except TableNotFoundError:
            return Verdicts(None, [], holding, overridden)
        version = (str(table.metadata().id), table.version())
        if version != self._of:
            self._judged_at, self._rules = _newest(table)
            self._of = version
        return Verdicts(self._judged_at, self._rules, holding, overridden)


def _newest(table: DeltaTable) -> tuple[datetime | None, list[dict[str, Any]]]:
    """Return when the newest run was, and the last result of each rule."""
    last = _last(table)
    since = None if last is None else pc.field("judged_at") >= pa.scalar(last - KEPT, pa.timestamp("us", "UTC"))
    held = table.to_pyarrow_dataset().to_table(columns=list(SHOWN), filter=since)
    ordered = held.sort_by("judged_at").to_pylist()
    if not ordered:
        return None, []
    judged_at: datetime = ordered[-1]["judged_at"]
    rules = {row["rule"]: row for row in ordered if row["judged_at"] > judged_at - KEPT}
    return judged_at, sorted(rules.values(), key=lambda row: (row["suite"], row["rule"]))


def _last(table: DeltaTable) -> datetime | None:
    """Return when the newest run was, by the statistics in the log, or little before; None where they do not tell."""
    files = pa.table(table.get_add_actions(flatten=True))
    name = "max.judged_at"
    if not files.num_rows or name not in files.column_names or files[name].null_count:
        return None
    last: datetime = pc.max(files[name]).as_py()
    return last.replace(tzinfo=UTC) if last.tzinfo is None else last


def _millis(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
