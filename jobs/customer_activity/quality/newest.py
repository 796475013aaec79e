"""What each rule came to last, for who watches: the figure, and whether it failed. Without Great Expectations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from customer_activity.quality.rules import Rule, load
from customer_activity.quality.verdicts import Outcome, path

READ_DAYS = 7  # of results that `newest` looks through: a rule that was not judged for so long tells nothing of today
SHARES = "shares"  # the frame whose columns are shares of what is matched


class Result(NamedTuple):
    """What a rule came to last.

    Attributes:
        rule, suite, severity: which rule it is.
        judged_at: when.
        failed: whether it failed, or could not be judged.
        observed: the figure that was found; None where it is none.
        share: what it is a share of, where the rule is about what is matched; else empty.
    """

    rule: str
    suite: str
    severity: str
    judged_at: datetime
    failed: bool
    observed: float | None
    share: str


@dataclass
class Newest:
    """What each rule came to last; read again only when the table has another version."""

    version: int = -1
    found: tuple[Result, ...] = ()

    def read(self, lake: str) -> tuple[Result, ...]:
        """Return the newest result of each rule that there is today; empty where none was judged.

        Raises:
            SettingsError: a rule is not as it should be.
        """
        try:
            table = DeltaTable(path(lake))
        except TableNotFoundError:
            return ()
        if table.version() != self.version:
            self.version, self.found = table.version(), newest(table, datetime.now(UTC))
        return self.found


def newest(table: DeltaTable, now: datetime) -> tuple[Result, ...]:
    """Return the newest result of each rule that there is, as far as it is of the last days.

    Raises:
        SettingsError: a rule is not as it should be.
    """
    since = pa.scalar(now - timedelta(days=READ_DAYS), pa.timestamp("us", "UTC"))
    columns = ["rule", "suite", "severity", "judged_at", "outcome", "observed"]
    rows = table.to_pyarrow_dataset().to_table(columns=columns, filter=pc.field("judged_at") >= since)
    rules = {rule.rule: rule for suite in load() for rule in suite.rules}
    found = {row["rule"]: row for row in rows.sort_by("judged_at").to_pylist()}
    return tuple(_result(rules[name], row) for name, row in sorted(found.items()) if name in rules)


def _result(rule: Rule, row: Mapping[str, Any]) -> Result:
    return Result(
        rule.rule,
        row["suite"],
        row["severity"],
        row["judged_at"],
        row["outcome"] != Outcome.PASSED.value,
        row["observed"],
        next(iter(rule.columns), "") if rule.frame == SHARES else "",
    )
