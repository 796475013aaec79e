"""What commands report of verification and of quality, with nothing in it but what a case is about."""

from __future__ import annotations

from typing import Any

from customer_activity.quality.rules import Rule, Severity
from customer_activity.verification.comparison import Check
from customer_activity.verification.verify import Report


def verified(*checks: Check, **more: Any) -> Report:
    """Return what a verification found: checks, and one of everything that is counted."""
    counted: dict[str, Any] = {"records": {}, "from_lake": {}, "covers": {}, "sample": None, "moving": 0, "growth": 0}
    figures: dict[str, Any] = {"purchases": 1, "customers": 1, "turnover": 1, "currency": "EUR", "seconds": 1.0}
    return Report([*checks], **counted | figures | more)


def rule(name: str, query: str = "SELECT 1", why: str = "Because somebody counts on it.", **more: Any) -> Rule:
    """Return a rule about gold that holds publishing when its query finds a row."""
    expect = {"expect_table_row_count_to_equal": {"value": 0}}
    suite = "gold/customer_activity"
    return Rule(**{"rule": name, "severity": Severity.HOLD, "suite": suite} | more, why=why, expect=expect, query=query)
