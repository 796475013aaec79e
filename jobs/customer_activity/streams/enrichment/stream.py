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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from customer_activity.catalog import Table
from customer_activity.contracts.tables import COUNTED, OF_PROFILE, PRODUCT_FIELDS, arrow_schema, names
from customer_activity.engine.changes import ChangeStream
from customer_activity.engine.decided import BEFORE_ALL, LANDING, Decisions, landings_of, last_landing
from customer_activity.engine.stream import Append, Context, Opened, Steps
from customer_activity.lake.datafiles import FileWriter, in_parts
from customer_activity.lake.feeds import Feed
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.enrichment import profiles
from customer_activity.streams.enrichment.as_of import UNKNOWN
from customer_activity.streams.enrichment.products import Catalogue
from customer_activity.topology import Reads, Spec, Writes

COLUMNS = COUNTED.names
ROWS_AT_A_TIME = 250_000  # enriched at once: each time the profiles' records are looked through

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
# What was decided is the record itself. What is checked: it never goes back, and is a version that was loaded.
EXPECTED_VERSIONS = """
SELECT * EXCLUDE (before)
FROM (SELECT *, max(catalogue_version) OVER (ORDER BY landing ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    AS before FROM catalogue_versions)
WHERE coalesce(before <= catalogue_version, true)
    AND (catalogue_version = 0 OR catalogue_version IN (SELECT version FROM products))
"""
EXPECTED_PRODUCTS = "FROM products QUALIFY row_number() OVER (PARTITION BY product_id, version) = 1"
SPEC = Spec(
    "enrichment",
    reads=(Reads(Table.PURCHASES, progress=Table.ENRICHED),),
    writes=(
        Writes(Table.CATALOGUE_VERSIONS, key=("landing",), expected=EXPECTED_VERSIONS),
        Writes(Table.ENRICHED, key=("purchase_id",), expected=EXPECTED),
        Writes(Table.PRODUCTS, key=("product_id", "version"), expected=EXPECTED_PRODUCTS),
    ),
    promises="each purchase is there once, with the profile and the product as they were known when it landed",
    is_behind=True,
    is_optional=True,
)


@dataclass
class Enrichment:
    """The stream, as the registry lists it and as it is opened: with the catalogue and what was decided on it."""

    lake: str = ""
    catalogue: Catalogue = field(default_factory=Catalogue)
    versions: Decisions = field(default_factory=lambda: Decisions(Table.CATALOGUE_VERSIONS))
    moved: pa.Table | None = None  # what was decided for the rows that were made last, and is not stored

    spec = SPEC
    source = Table.PURCHASES
    target = Table.ENRICHED
    columns = COLUMNS

    def open(self, context: Context) -> Opened:
        """Open it for a driver."""
        opened = self.as_set(context.settings)
        return ChangeStream(SPEC, {self.source: COLUMNS}, lambda _: opened.step).open(context)

    def step(self, part: Feed, batch: MicroBatch) -> Steps:
        """Enrich a part's purchases, some at a time: what was decided is stored before what follows from it."""
        with batch.phase("read"):
            decided = self.decided(part.batches(self.source, [LANDING]))
        if decided.num_rows:
            yield Append(Table.CATALOGUE_VERSIONS, decided)
        self.versions = self.versions.with_rows(decided)
        writer = FileWriter(self.lake, self.target)
        with batch.phase("compute"):
            for rows in self.enriched(part.batches(self.source, COLUMNS)):
                writer.write(rows)
                batch.rows += rows.num_rows
        yield Append(self.target, files=[writer.close()])

    def decided(self, purchases: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return what has to be decided for purchases: by the newest version of the catalogue."""
        self.catalogue = self.catalogue.refreshed()
        newest = max((last_landing(batch) for batch in purchases), default=BEFORE_ALL)
        return self.versions.undecided(newest, catalogue_version=self.catalogue.version)

    def enriched(self, purchases: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Yield purchases with profile and product. Grain: as given; columns of silver.enriched_purchases."""
        schema = arrow_schema(self.target)
        for bought in in_parts(purchases, ROWS_AT_A_TIME):
            landings, customers = landings_of(bought), bought.column("customer_id")
            version = self.versions.at(landings).column("catalogue_version")
            columns = {
                **{name: bought.column(name) for name in COLUMNS},
                **profiles.known_at(landings, customers, profiles.changes_of(self.lake, customers)),
                **self.catalogue.known_at(version.to_numpy(), bought.column("product_id")),
                "catalogue_version": version,
            }
            yield pa.table(columns).select(schema.names).cast(schema)

    def as_noted(self, lake: str) -> Enrichment:
        """Return it with what is stored; only for landings after that it is decided now."""
        return Enrichment(lake, Catalogue.of(lake), Decisions.stored(lake, Table.CATALOGUE_VERSIONS))

    def as_set(self, settings: Settings) -> Enrichment:
        """Return the same: no setting takes part."""
        return self.as_noted(settings.lake)

    def rows(self, changes: Iterable[pa.RecordBatch]) -> pa.Table:
        """Return all purchases with profile and product."""
        schema = pa.schema([arrow_schema(self.source).field(name) for name in COLUMNS])
        purchases = [batch.cast(schema) for batch in changes]
        self.moved = self.decided(purchases)
        self.versions = self.versions.with_rows(self.moved)
        return pa.concat_tables([arrow_schema(self.target).empty_table(), *self.enriched(purchases)])

    def besides(self) -> Mapping[Table, pa.Table]:
        """Return the versions that were decided for the rows that were made last, and are not stored."""
        return {Table.CATALOGUE_VERSIONS: self.moved} if self.moved is not None and self.moved.num_rows else {}

    def note(self, rows: pa.Table) -> Mapping[str, Any]:  # noqa: ARG002 - as others have it
        """Return nothing: what was decided is in a table."""
        return {}


STREAM = Enrichment()
