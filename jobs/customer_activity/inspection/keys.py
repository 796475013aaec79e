"""`activity describe --keys`: how purchases are distributed over customers, and what a hot customer costs.

Counted from silver.purchase_summaries, which has a row a customer: purchases are not read. How many customers have so
many purchases is all that is held of a table of any size, and its hottest customers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from customer_activity.catalog import Table
from customer_activity.errors import SettingsError
from customer_activity.inspection import tables
from customer_activity.state.sorted_runs import BUCKETS

COLUMNS = ["customer_id", "purchase_count"]
PERCENTILES = (50, 90, 99)
FIRST = (1, 10, 100)  # of the hottest customers, whose share is told
HOT_SHARE = 0.05  # three times what a task gets where each bucket has its own


class Hot(NamedTuple):
    """A customer with many purchases."""

    customer_id: str
    purchases: int
    share: float  # of all purchases, 0 to 1


class Keys(NamedTuple):
    """How purchases are distributed over customers.

    Attributes:
        version: of silver.purchase_summaries, which was read.
        customers: with a purchase.
        purchases: in the summaries.
        behind: purchases of silver.purchases that the summaries do not have yet.
        percentiles: by percentage, the purchases that so many of the customers do not exceed; `100` has the most.
        shares: by number of the hottest customers, what they have of all purchases, 0 to 1.
        hottest: the customers with most purchases, the first one first.
        placement: what follows for large batches on executors.
    """

    version: int
    customers: int
    purchases: int
    behind: int
    percentiles: dict[str, int]
    shares: dict[str, float]
    hottest: list[Hot]
    placement: str


def keys(lake: str, hottest: int) -> Keys:
    """Read the distribution, and so many of the hottest customers.

    Raises:
        SettingsError: there is no such table.
    """
    opened = tables.open_table(lake, Table.SUMMARIES)
    if opened is None:
        raise SettingsError(
            f"there is no {Table.SUMMARIES.label} at {lake}",
            remedy="set ACTIVITY_LAKE to the lake that you mean, or start its streams",
        )
    customers_by_count: Counter[int] = Counter()
    first = pa.schema([("customer_id", pa.string()), ("purchase_count", pa.int64())]).empty_table()
    for batch in opened.to_pyarrow_dataset().to_batches(columns=COLUMNS):
        read = pa.Table.from_batches([batch]).cast(first.schema)
        for found in pc.value_counts(read.column("purchase_count")).to_pylist():
            customers_by_count[found["values"]] += found["counts"]
        first = _hottest(pa.concat_tables([first, read]), max(hottest, *FIRST))
    held = tables.contents(lake, Table.PURCHASES)
    purchases = sum(count * customers for count, customers in customers_by_count.items())
    counts = first.column("purchase_count").to_pylist()
    shares = {str(number): _share(sum(counts[:number]), purchases) for number in FIRST}
    return Keys(
        opened.version(),
        customers_by_count.total(),
        purchases,
        max(0, (held.rows if held else 0) - purchases),  # counted after the summaries were
        _percentiles(customers_by_count),
        shares,
        [
            Hot(row["customer_id"], row["purchase_count"], _share(row["purchase_count"], purchases))
            for row in first.slice(0, hottest).to_pylist()
        ],
        _placement(shares["1"]),
    )


def _hottest(rows: pa.Table, number: int) -> pa.Table:
    """Return the rows with the greatest counts, the greatest first; those with the same are in the order of ids."""
    order = [("purchase_count", "descending"), ("customer_id", "ascending")]
    return rows.take(pc.select_k_unstable(rows, k=min(number, rows.num_rows), sort_keys=order))


def _share(part: int, of: int) -> float:
    return part / of if of else 0.0


def _percentiles(customers_by_count: Counter[int]) -> dict[str, int]:
    """Return the least count that so many per cent of the customers do not exceed; nothing without a customer."""
    wanted = [*PERCENTILES, 100]
    found: dict[str, int] = {}
    seen = 0
    for count in sorted(customers_by_count):
        seen += customers_by_count[count]
        while wanted and 100 * seen >= wanted[0] * customers_by_count.total():
            found[str(wanted.pop(0))] = count
    return found


def _placement(hottest: float) -> str:
    """Say in a sentence what the share of the hottest customer means for a large batch's tasks."""
    even = f"customers are in {BUCKETS} buckets by the hash of their ids, each with about {1 / BUCKETS:.1%} of them"
    if hottest <= HOT_SHARE:
        return f"{even}: no customer is hot"
    unsummed = hottest + (1 - hottest) / BUCKETS
    return (
        f"{even}; the hottest one's would get {unsummed:.0%} of the purchases, but they are summed up where they are "
        "read, before rows come together, so a hot customer is one row a file and costs little"
    )


def words(found: Keys) -> Sequence[str]:
    """Return the distribution as text, one line a fact; the hottest customers are not in it."""
    after = f"{found.behind:,} of silver.purchases are not in it yet" if found.behind else "none is missing"
    read = f"{Table.SUMMARIES.label} at version {found.version}"
    first = f"{read}: {found.customers:,} customers, {found.purchases:,} purchases; {after}"
    if not found.customers:
        return [first]
    at_most = ", ".join(
        f"{percentage} % have at most {found.percentiles[str(percentage)]:,}" for percentage in PERCENTILES
    )
    hottest = ", ".join(f"{number}: {found.shares[str(number)]:.1%}" for number in FIRST)
    return [
        first,
        f"purchases per customer: {at_most}, the most is {found.percentiles['100']:,}",
        f"share of the hottest customers: {hottest}",
        f"on executors: {found.placement}",
    ]
