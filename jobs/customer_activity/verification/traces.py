"""The trace on a view record leads to the record that its `asOfEpochMillis` names, told apart from the pipeline.

A record names its trace in its headers, as W3C Trace Context says: `traceparent`, and `tracestate`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from customer_activity.verification.comparison import Check, Differences
from customer_activity.verification.oracle import Expected
from customer_activity.verification.records import Headers

KEEPS_TRACES = 4  # the first version of the rules by which the trace of a record is kept
Places = Mapping[tuple[int, int], str]  # by partition and offset, the trace of the record there
_HEX = "0123456789abcdef"
_MEMBER = re.compile(r"[a-z0-9][-a-z0-9_*/@]*=[ -+\--<>-~]*[!-+\--<>-~]")


def of(headers: Headers) -> str:
    """Return the trace that headers name: a valid `traceparent`, with `tracestate` behind a space; empty: none."""
    named = [(name.lower(), (value or b"").decode("latin-1")) for name, value in headers]
    parents = [value for name, value in named if name == "traceparent"]
    if len(parents) != 1:
        return ""
    version, *rest = parents[0].split("-")
    trace, span, flags, *more = rest if len(rest) > 2 else ("", "", "")  # noqa: PLR2004 - trace, span and flags
    parts = [(version, 2), (trace, 32), (span, 16), (flags, 2)]
    if any(len(part) != length or part.strip(_HEX) for part, length in parts):
        return ""
    if version == "ff" or not trace.strip("0") or not span.strip("0") or (version == "00" and more):
        return ""
    if version != "00":
        flags = f"0{int(flags, 16) % 2}"
    parent = f"00-{trace}-{span}-{flags}"
    state = _state(",".join(value for name, value in named if name == "tracestate"))
    return f"{parent} {state}" if state else parent


def _state(text: str) -> str:
    members = [member.strip(" \t") for member in text.split(",") if member.strip(" \t")]
    pairs = [member.partition("=") for member in members]
    if len(members) > 32 or len({key for key, _, _ in pairs}) < len(pairs):  # noqa: PLR2004 - W3C's limits
        return ""
    if any(len(key) > 256 or len(value) > 256 for key, _, value in pairs):  # noqa: PLR2004
        return ""
    if not all(_MEMBER.fullmatch(member) for member in members):
        return ""
    going = [True] * len(members)
    for longer_than in (128, 0):
        for number in reversed(range(len(members))):
            kept = ",".join(member for member, goes in zip(members, going, strict=True) if goes)
            if len(kept) <= 512:  # noqa: PLR2004 - what everybody has to pass on
                return kept
            going[number] = going[number] and len(members[number]) <= longer_than
    return ",".join(member for member, goes in zip(members, going, strict=True) if goes)


@dataclass
class Traces:
    """What must be, and may be, the trace on each customer's record.

    Attributes:
        wanted: by customer, the trace of the record that the row is as new as, where that has one.
        ended: by customer, the traces of the tombstones: which of them deleted the row depends on how batches were cut.
    """

    wanted: dict[str, str] = field(default_factory=dict)
    ended: dict[str, set[str]] = field(default_factory=dict)

    def check(self, rows: Mapping[str, Any], found: Mapping[str, str], expected: Mapping[str, Any]) -> Iterator[Check]:
        """Compare the traces of records with them; no check where there is none on either side.

        A row that is not as it must be is told elsewhere, and its trace is not compared.

        Args:
            rows: the newest of each customer on the topic, None for one that was deleted.
            found: by customer, the trace of it.
            expected: the rows whose trace is known.
        """
        live = [customer for customer, row in rows.items() if row is not None and row == expected.get(customer)]
        wanted = [customer for customer in live if customer in self.wanted]
        traced = [customer for customer in live if customer in found]
        deleted = [customer for customer, row in rows.items() if row is None and customer in found]
        differences = Differences()
        for customer in live:
            if self.wanted.get(customer) != found.get(customer):
                what = "is not that of the record which asOfEpochMillis names" if customer in found else "is missing"
                differences.add(customer, f"trace {what}")
        for customer in deleted:
            if found[customer] not in self.ended.get(customer, ()):
                differences.add(customer, "trace is that of no tombstone")
        if wanted or traced or deleted:
            yield differences.check("view: traces", len(wanted), len(traced))


def expected(records: Expected, purchases: Places, profiles: Places) -> Traces:
    """Return the traces that view records must have."""
    traces = Traces()
    if not purchases and not profiles:
        return traces
    bought: dict[str, str] = {}
    for purchase in records.purchases.values():
        summary = records.summaries[purchase.customer_id]
        trace = purchases.get((purchase.partition, purchase.offset), "")
        if trace and purchase.kafka_timestamp == summary.last_kafka_timestamp:
            bought[purchase.customer_id] = max(trace, bought.get(purchase.customer_id, ""))
    for customer, profile in records.profiles.items():
        summary_of = records.summaries.get(customer)
        is_profile = profile.kafka_timestamp > (summary_of.last_kafka_timestamp if summary_of else 0)
        trace = profiles.get((profile.partition, profile.offset), "") if is_profile else bought.get(customer, "")
        if trace:
            traces.wanted[customer] = trace
    for change in records.profile_changes:
        trace = profiles.get((change.partition, change.offset), "")
        if trace and change.is_tombstone:
            traces.ended.setdefault(change.customer_id, set()).add(trace)
    return traces
