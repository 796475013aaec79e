"""Which rows of a batch are refused, and whole-column checks of texts that find them. No Spark in here."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Reason
from customer_activity.contracts import NO_CONTROL_CHARACTERS, Refusal, utf8_refusal

ASCII_CONTROLS = bytes([*range(0x20), 0x7F])
LEAD_OF_OTHER_CONTROLS = b"\xc2"  # U+0080 to U+009F as UTF-8, and as many harmless characters


class Refusals(dict[int, Refusal]):
    """Refusals by row. The first one stays: stages run in the order of precedence."""

    def add(self, row: int, refusal: Refusal | None) -> None:
        """Refuse a row, unless it is refused already, or there is nothing to refuse it for."""
        if refusal is not None:
            self.setdefault(row, refusal)

    def add_where(self, mask: pa.Array, reason: Reason, detail: str) -> None:
        """Refuse the rows whose mask is true (null is not)."""
        for row in rows_where(mask):
            self.setdefault(row, Refusal(reason, detail))


def rows_where(mask: pa.Array) -> list[int]:
    """List the rows where a mask is true; null is not."""
    rows: list[int] = pc.indices_nonzero(mask).to_pylist()
    return rows


def as_text(part: str, column: pa.Array, refusals: Refusals) -> pa.Array:
    """Read a binary column as text; rows that are not UTF-8 are refused and null."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        found = {row: utf8_refusal(part, data) for row, data in enumerate(column.to_pylist()) if data is not None}
        for row, refusal in found.items():
            refusals.add(row, refusal)
        readable = pa.array([found.get(row) is None for row in range(len(column))])
        return pc.if_else(readable, column, None).cast(pa.string())


def rows_unlike(texts: pa.Array, pattern: str | None) -> list[int]:
    """List the rows whose text does not match a pattern."""
    if pattern is None or (pattern == NO_CONTROL_CHARACTERS and not _may_hold_controls(texts)):
        return []
    return rows_where(pc.invert(pc.match_substring_regex(texts, pattern)))


def _may_hold_controls(texts: pa.Array) -> bool:
    """Whether a text may hold a control character: one look at all bytes, since next to no column has any."""
    data = texts.buffers()[2]
    if data is None:
        return False
    held = data.to_pybytes()
    return LEAD_OF_OTHER_CONTROLS in held or len(held.translate(None, ASCII_CONTROLS)) < len(held)
