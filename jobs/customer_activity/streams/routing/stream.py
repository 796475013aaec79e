"""Routing: which route each enriched purchase takes, by rules that are data.

Reads      silver.enriched_purchases, change data feed
Writes     ops.routing_rules (append), gold.routed_purchases (append): an outbox, which `topics.py` publishes
Grain      one row per purchase that counts; one row per decision on the rules that are in force
On restart what the newest commit notes as read is left out; rules that are stored are not decided again

Rules of another file are for what lands from then on: what is routed stays, so that table and topics never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.columns import ROUTED_FIELDS, names
from customer_activity.engine import decided_tasks
from customer_activity.engine.decided import Decided
from customer_activity.engine.executors import OnProgress, Reports
from customer_activity.engine.workers import Workers
from customer_activity.errors import SettingsError
from customer_activity.lake.feeds import Added
from customer_activity.settings import Settings
from customer_activity.state.keyed import State
from customer_activity.streams.enrichment.stream import EXPECTED as ENRICHED
from customer_activity.streams.routing import choosing, rules
from customer_activity.streams.routing.choosing import COLUMNS, DEFAULT, NUMBERS, TEXTS
from customer_activity.topology import How, Made, Reads, Spec, Writes


def _cases(columns: Iterable[str]) -> str:
    return " ".join(f"""WHEN '{name}' THEN enriched."{name}" """ for name in columns)


# The same, over all purchases and the stored rules at once: `activity verify` holds the table against it.
EXPECTED = f"""
WITH enriched AS ({ENRICHED}),
documents AS (
    SELECT rules_version, from_json(any_value(rules), '{{"default": "VARCHAR", "rules": [{{"rule": "VARCHAR",
        "route": "VARCHAR", "when": [{{"column": "VARCHAR", "is": "VARCHAR", "values": ["VARCHAR"]}}]}}]}}') AS said
    FROM routing_rules GROUP BY rules_version
),
judged AS (
    SELECT enriched.*, decided.rules_version, said, list_filter(said.rules, lambda rule: len(list_filter(
        rule."when", lambda condition: NOT coalesce(CASE
            WHEN condition."column" IN ({", ".join(f"'{name}'" for name in TEXTS)}) THEN
                list_contains(condition."values", CASE condition."column" {_cases(TEXTS)} END)
                    = (condition."is" <> '!=')
            ELSE CASE condition."is"
                WHEN '<' THEN CASE condition."column" {_cases(NUMBERS)} END < condition."values"[1]::DECIMAL(38, 2)
                WHEN '<=' THEN CASE condition."column" {_cases(NUMBERS)} END <= condition."values"[1]::DECIMAL(38, 2)
                WHEN '>' THEN CASE condition."column" {_cases(NUMBERS)} END > condition."values"[1]::DECIMAL(38, 2)
                WHEN '>=' THEN CASE condition."column" {_cases(NUMBERS)} END >= condition."values"[1]::DECIMAL(38, 2)
                WHEN '!=' THEN CASE condition."column" {_cases(NUMBERS)} END <> condition."values"[1]::DECIMAL(38, 2)
                ELSE list_contains(condition."values"::DECIMAL(38, 2)[], CASE condition."column" {_cases(NUMBERS)} END)
            END
        END, false))) = 0)[1] AS first
    FROM enriched
    ASOF JOIN routing_rules AS decided ON coalesce(enriched.landing, -1) <= decided.landing
    JOIN documents ON documents.rules_version = decided.rules_version
)
SELECT {", ".join(f'"{name}"' for name in COLUMNS)}, coalesce(first.rule, '{DEFAULT}') AS rule,
    coalesce(first.route, said."default") AS route, rules_version
FROM judged
"""  # noqa: S608 - constants
# What was decided is the record itself. What is checked: one version means the same wherever it is stored.
EXPECTED_RULES = """
FROM routing_rules WHERE rules IN (SELECT any_value(rules) FROM routing_rules GROUP BY rules_version)
QUALIFY row_number() OVER (PARTITION BY landing) = 1
"""
SPEC = Spec(
    "routing",
    reads=(Reads(Table.ENRICHED, progress=Table.ROUTED),),
    writes=(
        Writes(
            Table.ROUTING_RULES,
            key=("landing",),
            expected=EXPECTED_RULES,
            made=(Made("rules_version"), Made("rules"), Made("decided_at")),
        ),
        Writes(
            Table.ROUTED,
            key=("purchase_id",),
            expected=EXPECTED,
            made=(
                *(
                    Made(name, (f"{Table.ROUTING_RULES.label}:rules", *names(ROUTED_FIELDS)))
                    for name in ("rule", "route")
                ),
                Made("rules_version", (f"{Table.ROUTING_RULES.label}:rules_version",), How.IDENTITY),
            ),
        ),
    ),
    promises="each purchase takes one route, by the first rule that matches of those in force when it landed",
    is_behind=True,
    is_spread=True,
    is_optional=True,
)


class Routing:
    """The rules of the settings; where there are none at hand, those that were decided last stay in force."""

    def __init__(self, _lake: str, settings: Settings | None = None, _state: State | None = None) -> None:
        """Read the rules.

        Raises:
            SettingsError: the file is not there, or wrong.
        """
        self.rules = None if settings is None else rules.read(settings.routing_rules)

    def in_force(self, last: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the rules that are in force.

        Raises:
            SettingsError: it is not known.
        """
        if self.rules is not None:
            return {"rules_version": self.rules.version, "rules": self.rules.text}
        if not last:
            raise SettingsError(
                f"{SPEC.name} has never run, so it is not known which rules are in force",
                remedy="run it once, or leave it out of ACTIVITY_STREAMS meanwhile",
            )
        return {name: last[name] for name in ("rules_version", "rules")}

    def derive(self, rows: pa.Table, decided: pa.Table, *, is_bounded: bool = False) -> pa.Table:  # noqa: ARG002
        """Choose each purchase's route."""
        return choosing.routed(rows, decided)

    def derive_by_tasks(
        self, work: decided_tasks.Work, _files: Sequence[Added], workers: Workers, progress: OnProgress
    ) -> Reports:
        """Have tasks choose them: what is decided has the rules with it."""
        writing = partial(decided_tasks.write, work, choosing.routed)
        return workers.run(len(work.shares), writing, progress)


STREAM = Decided(SPEC, COLUMNS, Table.ROUTING_RULES, Routing)
