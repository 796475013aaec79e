"""Enrichment: each purchase with the profile and the product as they were known when it landed.

Reads      silver.purchases, change data feed; beside it bronze.customer_profiles and reference.products as they are
Writes     ops.catalogue_versions (append), silver.enriched_purchases (append); reference.products is made with them,
           and `activity catalogue load` writes it
Grain      one row per purchase that counts, which never changes; one row per decision on the catalogue's version
On restart what the newest commit notes as read is left out; versions that are stored are not decided again

A profile that changes later, or a new version of the catalogue, changes no row: that is what gold.customer_activity is
for (docs/ENRICHMENT.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import COUNTED, OF_PROFILE, PRODUCT_FIELDS, names
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import decided_tasks
from customer_activity.engine.decided import Decided, TooMuch
from customer_activity.engine.decisions import landings_of
from customer_activity.engine.executors import ByLane, OnProgress, Reports, Stage
from customer_activity.engine.workers import Workers
from customer_activity.lake import deltalog, feeds, pieces
from customer_activity.lake.feeds import Added
from customer_activity.lake.pieces import Piece
from customer_activity.settings import Settings
from customer_activity.state.keyed import State
from customer_activity.streams.enrichment import profiles, state, tasks
from customer_activity.streams.enrichment.as_of import UNKNOWN
from customer_activity.streams.enrichment.products import Catalogue
from customer_activity.topology import How, Made, Reads, Spec, Writes

COLUMNS = COUNTED.names
MOST_LANES = 256  # of profiles

# The same, over all purchases at once: `activity verify` holds the table against it.
_PROFILE = {name: name.removeprefix("profile_") for name in names(OF_PROFILE)}
_TEXTS = {field.name for field in (*OF_PROFILE, *PRODUCT_FIELDS) if pa.types.is_string(field.type)}


def _said(name: str, column: str, is_known: str) -> str:
    otherwise = f"'{UNKNOWN}'" if name in _TEXTS else "NULL"
    return f'CASE WHEN {is_known} THEN {column} ELSE {otherwise} END AS "{name}"'


EXPECTED = f"""
WITH placed AS (SELECT *, coalesce(landing, -1) AS place FROM purchases),
changes AS (
    SELECT *, coalesce(landing, -1) AS since FROM profile_changes
    QUALIFY row_number() OVER (PARTITION BY customer_id, since ORDER BY "partition" DESC, "offset" DESC) = 1
),
versioned AS (
    SELECT placed.*, decided.catalogue_version
    FROM placed ASOF LEFT JOIN catalogue_versions AS decided ON placed.place <= decided.landing
)
SELECT {", ".join(f'bought."{name}"' for name in COLUMNS)},
    {", ".join(_said(name, f'profile."{said}"', "NOT profile.is_tombstone") for name, said in _PROFILE.items())},
    {", ".join(_said(name, f'product."{name}"', "NOT product.is_gone") for name in names(PRODUCT_FIELDS))},
    bought.catalogue_version
FROM versioned AS bought
ASOF LEFT JOIN changes AS profile ON bought.customer_id = profile.customer_id AND bought.place >= profile.since
ASOF LEFT JOIN products AS product
    ON bought.product_id = product.product_id AND bought.catalogue_version >= product.version
"""  # noqa: S608 - constants
# What was decided is the record itself. What is checked: it is one version a landing, which was loaded, and never goes
# back.
EXPECTED_VERSIONS = """
SELECT * EXCLUDE (before)
FROM (SELECT *, max(catalogue_version) OVER (ORDER BY landing ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    AS before FROM catalogue_versions)
WHERE coalesce(before <= catalogue_version, true)
    AND (catalogue_version = 0 OR catalogue_version IN (SELECT version FROM products))
QUALIFY row_number() OVER (PARTITION BY landing) = 1
"""
EXPECTED_PRODUCTS = "FROM products QUALIFY row_number() OVER (PARTITION BY product_id, version) = 1"
SPEC = Spec(
    "enrichment",
    reads=(Reads(Table.PURCHASES, progress=Table.ENRICHED),),
    writes=(
        Writes(
            Table.CATALOGUE_VERSIONS,
            key=("landing",),
            expected=EXPECTED_VERSIONS,
            made=(Made("catalogue_version", (f"{Table.PRODUCTS.label}:version",), How.AGGREGATION), Made("decided_at")),
        ),
        Writes(
            Table.ENRICHED,
            key=("purchase_id",),
            expected=EXPECTED,
            made=(
                *(
                    Made(name, (f"{Table.PROFILE_EVENTS.label}:{name.removeprefix('profile_')}",), How.IDENTITY)
                    for name in names(OF_PROFILE)
                ),
                *(Made(name, (f"{Table.PRODUCTS.label}:{name}",), How.IDENTITY) for name in names(PRODUCT_FIELDS)),
                Made("catalogue_version", (f"{Table.PRODUCTS.label}:version",), How.AGGREGATION),
            ),
        ),
        Writes(
            Table.PRODUCTS,
            key=("product_id", "version"),
            expected=EXPECTED_PRODUCTS,
            made=tuple(Made(name) for name in arrow_schema(Table.PRODUCTS).names),  # of a file that somebody loads
        ),
    ),
    promises="each purchase is there once, with the profile and the product as they were known when it landed",
    is_behind=True,
    is_spread=True,
    is_optional=True,
)


class Known:
    """What is known beside the purchases: the catalogue, and what bronze has of profiles."""

    def __init__(self, lake: str, _settings: Settings | None = None, history: State | None = None) -> None:
        """Read the catalogue of a lake; with state profiles are looked up in it."""
        self.lake = lake
        self.history = history
        self.catalogue = Catalogue.of(lake)

    def in_force(self, _last: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the newest version of the catalogue."""
        self.catalogue = self.catalogue.refreshed()
        return {"catalogue_version": self.catalogue.version}

    def derive(self, rows: pa.Table, decided: pa.Table, *, is_bounded: bool = False) -> pa.Table:
        """Give purchases profile and product."""
        changes = profiles.changes_among(self._records(rows, is_bounded=is_bounded))
        return tasks.enriched(rows, decided, changes, self.catalogue.changes)

    def derive_by_tasks(
        self, work: decided_tasks.Work, files: Sequence[Added], workers: Workers, progress: OnProgress
    ) -> Reports:
        """Have tasks do it: they read all that bronze has of profiles, once, and the catalogue."""
        records, catalogue = (
            feeds.snapshot(self.lake, table, deltalog.newest_version(self.lake, table))
            for table in (Table.PROFILE_EVENTS, Table.PRODUCTS)
        )
        shared = pieces.divided(Table.PROFILE_EVENTS, records)
        enriching = tasks.Work(
            work,
            shared,
            [Piece(Table.PRODUCTS, file.path) for file in catalogue],
            pieces.lanes([*records, *files], workers.at_once(), MOST_LANES),
        )
        writing = Stage(len(work.shares), partial(tasks.write, enriching))
        answering = ByLane(partial(tasks.ask, enriching), enriching.lanes, tasks.answer, (writing,))
        return workers.run_by_lane(len(work.shares) + len(shared), answering, progress)

    def _records(self, rows: pa.Table, *, is_bounded: bool) -> pa.Table:
        """Return the profile records of purchases' customers: from the state, or else from all that bronze has.

        Raises:
            TooMuch: they are many, where they are to be bounded.
        """
        customers, found = rows.column("customer_id"), None
        if self.history is not None:
            found = state.records_of(self.history, self.lake, customers, landings_of(rows))
        if found is None:
            read = profiles.few_records_of if is_bounded else profiles.records_of
            found = read(self.lake, customers)
        if found is None:
            raise TooMuch(f"profile records of {len(pc.unique(customers)):,} customers are many")
        return found


STREAM = Decided(SPEC, COLUMNS, Table.CATALOGUE_VERSIONS, Known, state.NEEDS)
