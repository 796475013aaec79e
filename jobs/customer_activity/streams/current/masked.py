"""Masked: the current row of each customer without name, addresses and e-mail, for analysts; behind the hot path.

Reads      gold.activity_changes, change data feed
Writes     gold.customer_activity_masked (merge)
Grain      one row per customer_id with a profile, as in gold.customer_activity
On restart what the newest commit notes as read is left out; a repeated merge would set the same absolute values

Each commit notes the fingerprint of the key, and all hashes of a version are by that key: with another one the stream
refuses to start until `activity rebuild --stream masked` has replaced all rows, in one commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import derived
from customer_activity.engine.current_rows import CurrentRows
from customer_activity.engine.derived import DEFINITION
from customer_activity.lake.reducing import newest, newest_of
from customer_activity.masking import key, values
from customer_activity.masking.key import Key
from customer_activity.topology import How, Made, Reads, Spec, Writes

if TYPE_CHECKING:
    from customer_activity.settings import Settings

KEY, ORDER, GONE = ["customer_id"], ["view_version"], "is_gone"
COLUMNS = [*arrow_schema(Table.ACTIVITY).names, GONE]
HASHED = ("name", "email", "address")
SCHEMA = arrow_schema(Table.ACTIVITY_MASKED).append(arrow_schema(Table.ACTIVITY_CHANGES).field(GONE))
EXPECTED = """
SELECT * FROM activity JOIN masks USING (customer_id)
JOIN (SELECT customer_id, max(view_version) AS view_version FROM activity_changes GROUP BY ALL) USING (customer_id)
"""
SPEC = Spec(
    "masked",
    reads=(Reads(Table.ACTIVITY_CHANGES, progress=Table.ACTIVITY_MASKED),),
    writes=(
        Writes(
            Table.ACTIVITY_MASKED,
            key=tuple(KEY),
            expected=EXPECTED,
            made=(
                *(Made(f"{name}_hash", (name,), How.MASKED) for name in HASHED),
                Made("email_domain", ("email",)),
                Made("postcode", ("address",)),
            ),
        ),
    ),
    promises="the newest change of each row is merged once, masked; all hashes of a version are by one key",
    is_behind=True,
    is_spread=True,
    is_optional=True,
    on_with="mask_key_file",
)
NEWEST = newest(Table.ACTIVITY_CHANGES, COLUMNS, KEY, ORDER)


class Masking(NamedTuple):
    """What hashes are by, as commits note it: the version of the rules, and the fingerprint of the key."""

    rules: str
    key: str

    def __str__(self) -> str:
        """Say it in words."""
        return f"the key with fingerprint {self.key} (rules {self.rules})"


@dataclass(frozen=True)
class Masked(CurrentRows):
    """The stream, with the key that it masks with; Spark brings it to executors, with their tasks."""

    by: Key | None = None

    def as_noted(self, lake: str) -> Masked:
        """Return it as its table was computed.

        Raises:
            SettingsError: this process has another key, or none.
        """
        return self._same(self._with(key.current()), lake)

    def as_set(self, settings: Settings) -> Masked:
        """Return it with the key that the settings name.

        Raises:
            SettingsError: they name none.
        """
        return self._with(key.read(settings.mask_key))

    def bound(self, settings: Settings) -> Masked:
        """Return it with the key that the settings name, for a driver.

        Raises:
            SettingsError: they name none, or its table was computed with another one.
        """
        return self._same(self.as_set(settings), settings.lake)

    def together(self, reduced: pa.Table) -> pa.Table:
        """Make one row a key of rows that were reduced apart, and so are masked."""
        return newest_of(reduced, KEY, ORDER)

    def noted(self, upto: int | None) -> Mapping[str, Any]:  # noqa: ARG002 - it has no windows
        """Return what a commit notes: what its hashes are by."""
        return {DEFINITION: self._masking()._asdict()}

    def note(self, rows: pa.Table) -> Mapping[str, Any]:  # noqa: ARG002 - as others have it
        """Return what a commit notes that leaves the table with these rows."""
        return self.noted(None)

    def _masking(self) -> Masking:
        return Masking(values.VERSION, "" if self.by is None else self.by.fingerprint)

    def _with(self, found: Key) -> Masked:
        return replace(self, by=found, reduce=partial(reduced_and_masked, found.secret))

    def _same(self, found: Masked, lake: str) -> Masked:
        derived.require_same(lake, self.spec, self.target, found._masking())
        return found


def reduced_and_masked(secret: bytes, changes: Iterable[pa.RecordBatch]) -> pa.Table:
    """Reduce changes to the newest of each customer, masked. Columns: those of the table, and `is_gone`."""
    return masked(secret, NEWEST(changes))


def masked(secret: bytes, rows: pa.Table) -> pa.Table:
    """Put keyed hashes in the place of name, e-mail and address, and beside them what of these stays readable."""
    clear = {name: rows.column(name).to_pylist() for name in HASHED}
    made = {
        **{f"{name}_hash": [values.hashed(secret, name, text) for text in texts] for name, texts in clear.items()},
        "email_domain": [values.email_domain(text) for text in clear["email"]],
        "postcode": [values.postcode(text) for text in clear["address"]],
    }
    columns = [pa.array(made[f.name], f.type) if f.name in made else rows.column(f.name) for f in SCHEMA]
    return pa.table(columns, schema=SCHEMA)


STREAM = Masked(SPEC, COLUMNS, NEWEST, gone=GONE)
