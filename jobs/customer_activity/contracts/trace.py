"""The trace context of a record (W3C): which trace its headers name, and how that goes on.

Kafka's headers are HTTP's: `traceparent` names the trace and the span that sent the record, `tracestate` what vendors
add. Tables have both as one text, `trace_context`: the 55 characters of `traceparent`, and after a space `tracestate`
where there is one. What breaks the rules (www.w3.org/TR/trace-context) is not passed on, and refuses no record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
SAMPLED = 1  # of the flags, the one that version 00 knows
MOST_MEMBERS = 32
MOST_CHARACTERS = 512  # of tracestate: what the rules ask everybody to pass on
LONG_MEMBER = 128  # characters; members that are longer go first where something has to
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_MEMBER = re.compile(r"[a-z0-9][a-z0-9_\-*/@]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]")
Headers = Sequence[tuple[str, bytes]]
Named = tuple[str, bytes | None]  # a header: its name in lower case, and its value


def trace_contexts(headers: pa.Array) -> pa.Array:
    """Return the trace context of each record, null where its headers name none.

    Args:
        headers: of each record, a list of `key` and `value`, or null.
    """
    names = pc.utf8_lower(headers.flatten().field("key"))
    is_ours = pc.is_in(names, value_set=pa.array([TRACEPARENT, TRACESTATE]))
    found: list[str | None] = [None] * len(headers)
    if pc.any(is_ours, min_count=0).as_py():
        values = headers.flatten().field("value").filter(is_ours).to_pylist()
        rows = pc.list_parent_indices(headers).filter(is_ours).to_pylist()
        of_record: dict[int, list[Named]] = {}
        for row, name, value in zip(rows, names.filter(is_ours).to_pylist(), values, strict=True):
            of_record.setdefault(row, []).append((name, value))
        for row, named in of_record.items():
            found[row] = trace_context(named)
    return pa.array(found, pa.string())


def trace_context(headers: Iterable[Named]) -> str | None:
    """Return the trace context that a record's headers name; several `traceparent` name none."""
    parents: list[bytes | None] = []
    states: list[bytes | None] = []
    for name, value in headers:
        if name == TRACEPARENT:
            parents.append(value)
        elif name == TRACESTATE:
            states.append(value)
    parent = _parent(parents[0]) if len(parents) == 1 else None
    if parent is None or not states:
        return parent
    state = _state(states)
    return f"{parent} {state}" if state else parent


def _parent(value: bytes | None) -> str | None:
    """Return a valid `traceparent`; that of a later version as version 00 has it, which is the one known here."""
    matched = _PARENT.fullmatch(value or b"")
    if matched is None:
        return None
    version, trace, span, flags, more = matched.groups()
    if version == b"ff" or not int(trace, 16) or not int(span, 16) or (version == b"00" and more):
        return None
    if version != b"00":
        flags = f"{int(flags, 16) & SAMPLED:02x}".encode()
    return b"-".join((b"00", trace, span, flags)).decode()


def _state(values: Sequence[bytes | None]) -> str:
    """Return a valid `tracestate`, its members in their order; empty where one of them breaks the rules."""
    text = ",".join((value or b"").decode("latin-1") for value in values)
    members = [member for part in text.split(",") if (member := part.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    if len(members) > MOST_MEMBERS or len(keys) < len(members) or not all(map(_MEMBER.fullmatch, members)):
        return ""
    for shortest in (LONG_MEMBER, 0):
        for member in reversed(members):
            if sum(map(len, members)) + len(members) - 1 <= MOST_CHARACTERS:
                break
            if len(member) > shortest:
                members.remove(member)
    return ",".join(members)


def as_headers(context: str | None) -> Headers:
    """Return a trace context as headers of a record."""
    if not context:
        return []
    parent, _, state = context.partition(" ")
    headers = [(TRACEPARENT, parent.encode())]
    return [*headers, (TRACESTATE, state.encode())] if state else headers
