"""What Spark's executors do of a large part of enrichment: pure functions of files.

Purchases stay where they are read, and what is known of their customers comes to them, so a customer with a third of
them is one name in each share. Three tasks, one after the other. `ask` tells which customers a share of the part has,
and passes on all that bronze has of profiles, each record to the lane of its customer. `answer` judges the records of
those customers of a lane who were asked for, and sends to each share what changed the profiles of its own. `write`
reads the share whole, enriches it by the driver's own rule, and writes it.

Executors import this module and need little for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.contracts.columns import COUNTED
from customer_activity.contracts.tables import arrow_schema
from customer_activity.engine import decided_tasks, executors
from customer_activity.engine.decisions import landings_of
from customer_activity.engine.executors import Parcel
from customer_activity.engine.merge_tasks import by_key
from customer_activity.lake import pieces
from customer_activity.lake.datafiles import ROW_GROUP_BYTES, ROW_GROUP_ROWS, in_parts
from customer_activity.lake.pieces import Piece
from customer_activity.streams.enrichment import products, profiles
from customer_activity.streams.silver.order import in_order

KEY = ["customer_id"]
ASKED, RECORDS = range(2)  # kinds of parcels; those of answers have the number of a share for a kind
RECORD = pa.schema([arrow_schema(Table.PROFILE_EVENTS).field(name) for name in profiles.COLUMNS])
PRODUCT = arrow_schema(Table.PRODUCTS)
NOBODY = COUNTED.empty_table().select(KEY)


class Work(NamedTuple):
    """What is to be done: plain values, which Spark brings to its executors.

    Attributes:
        derived: of the part; its shares come first among those of the first stage.
        records: what tasks read of the profiles' records after these.
        catalogue: the files of the catalogue, each one piece.
        lanes: how many tasks judge profiles; of those that enrich, each has a share.
    """

    derived: decided_tasks.Work
    records: Sequence[Sequence[Piece]]
    catalogue: Sequence[Piece]
    lanes: int


def enriched(purchases: pa.Table, decided: pa.Table, changes: pa.Table, catalogue: pa.Table) -> pa.Table:
    """Give purchases profile and product. Grain: as given; columns of silver.enriched_purchases.

    Args:
        purchases: their columns.
        decided: for each the version of the catalogue that was in force when it landed.
        changes: what has changed the profiles of their customers, as `profiles.changes_among` returns it.
        catalogue: all versions of it, in their order.
    """
    version = decided.column("catalogue_version")
    profile = profiles.known_at(landings_of(purchases), purchases.column("customer_id"), changes)
    product = products.known_at(version.to_numpy(), purchases.column("product_id"), catalogue)
    purchase = {name: purchases.column(name) for name in COUNTED.names}
    return pa.table({**purchase, **profile, **product, "catalogue_version": version})


def ask(work: Work, numbers: Iterable[int]) -> Iterator[Parcel]:
    """Tell which customers each share of the part has; pass the records of profiles on."""
    shares = [*work.derived.shares, *work.records]
    for number in numbers:
        if number < len(work.derived.shares):
            groups, kind = iter([_asked(work, number)]), ASKED
        else:
            groups, kind = _read(work, shares[number], profiles.COLUMNS), RECORDS
        yield from by_key(groups, KEY, work.lanes, kind)


def _asked(work: Work, number: int) -> pa.Table:
    """Return the customers of a share of the part, each once, with its number."""
    read = pa.concat_tables([NOBODY, *_read(work, work.derived.shares[number], KEY)])
    customers = pc.unique(read.column("customer_id"))
    return pa.table({"customer_id": customers, "share": np.full(len(customers), number)})


def _read(work: Work, share: Sequence[Piece], columns: Sequence[str]) -> Iterator[pa.Table]:
    return (rows for piece in share for _, rows in pieces.read(work.derived.lake, piece, columns))


def answer(packed: Iterable[bytes]) -> Iterator[Parcel]:
    """Send to each share what has changed the profiles of its customers; nothing of them is something, too."""
    found = executors.unpacked(packed)
    if ASKED not in found:
        return
    asked = found[ASKED].sort_by("share")
    records = found.get(RECORDS, RECORD.empty_table())
    is_asked = pc.is_in(records.column("customer_id"), value_set=pc.unique(asked.column("customer_id")))
    changes = profiles.changes_among(records.filter(is_asked))
    shares, begins = np.unique(asked.column("share").to_numpy(), return_index=True)
    for share, begin, end in zip(shares.tolist(), begins, [*begins[1:], asked.num_rows], strict=True):
        customers = asked.column("customer_id").slice(begin, end - begin)
        rows = changes.filter(pc.is_in(changes.column("customer_id"), value_set=customers))
        for some in list(in_parts(rows.to_batches(), ROW_GROUP_ROWS, ROW_GROUP_BYTES)) or [rows]:
            yield executors.parcel(share, some, share)


def write(work: Work, packed: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Enrich a share and write it; report as `decided_tasks.written`."""
    answers = executors.unpacked(packed)
    if not answers:
        return
    read = _read(work, work.catalogue, PRODUCT.names)
    catalogue = products.in_order(pa.concat_tables([PRODUCT.empty_table(), *read]))
    for share, changes in answers.items():
        derive = partial(enriched, changes=in_order(changes), catalogue=catalogue)  # parcels come in any
        yield decided_tasks.written(work.derived, share, derive)
