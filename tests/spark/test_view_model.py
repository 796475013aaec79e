"""The whole view against a model in plain Python: any order, repeats, deletes, batches cut and repeated anywhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from customer_activity.catalog import Table
from support.pipeline import copied_lake
from support.quick_pipeline import QuickPipeline
from support.records import NOW_MS, Record, profile, purchase, tombstone
from support.streams import Query

CUSTOMERS = st.sampled_from([f"C-{n}" for n in range(6)])

BOUGHT = st.tuples(st.just("bought"), CUSTOMERS, st.integers(0, 15), st.sampled_from(["0.10", "7.77", "1200.00"]))
UPDATED = st.tuples(st.just("updated"), CUSTOMERS, st.integers(1, 4), st.sampled_from(["1 Old Street", "2 New Street"]))
DELETED = st.tuples(st.just("deleted"), CUSTOMERS)
CRASHED = st.tuples(st.just("crashed"), st.sampled_from(list(Query)))
STEPS = st.lists(st.one_of(BOUGHT, BOUGHT, UPDATED, UPDATED, DELETED), max_size=25)
HISTORIES = st.lists(st.tuples(STEPS, st.lists(CRASHED, max_size=2)), min_size=1, max_size=3)


@dataclass
class Model:
    """What a reader of both topics would say, one record after the other."""

    purchases: dict[str, tuple[str, Decimal]] = field(default_factory=dict)
    profiles: dict[str, tuple[int, str]] = field(default_factory=dict)

    def take(self, step: tuple[Any, ...]) -> None:
        kind, customer, *rest = step
        if kind == "bought":
            self.purchases.setdefault(f"P-{rest[0]}", (customer, Decimal(rest[1])))
        elif kind == "deleted":
            self.profiles.pop(customer, None)
        elif customer not in self.profiles or rest[0] >= self.profiles[customer][0]:
            self.profiles[customer] = (rest[0], rest[1])

    def view(self) -> dict[str, tuple[str, int, Decimal]]:
        bought = {c: [amount for owner, amount in self.purchases.values() if owner == c] for c in self.profiles}
        return {c: (address, len(bought[c]), sum(bought[c], Decimal(0))) for c, (_, address) in self.profiles.items()}


def record(step: tuple[Any, ...], sent: int) -> Record:
    kind, customer, *rest = step
    if kind == "bought":
        return purchase(f"P-{rest[0]}", customer, rest[1], sent=sent)
    if kind == "deleted":
        return tombstone(customer, sent=sent)
    return profile(customer, updated=rest[0], address=rest[1], sent=sent)


@pytest.mark.timeout(900)  # five examples of up to 27 micro-batches each
@settings(
    max_examples=5,
    deadline=None,
    derandomize=True,
    # the session and the empty lake are the same for every example on purpose
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(history=HISTORIES)
def test_the_view_equals_the_model_after_every_batch(
    spark: SparkSession, empty_lake: Path, history: list[tuple[list[tuple[Any, ...]], list[tuple[str, Query]]]]
) -> None:
    with TemporaryDirectory() as folder:
        pipeline, model = QuickPipeline(spark, copied_lake(empty_lake, Path(folder))), Model()
        for steps, crashes in history:
            for step in steps:
                pipeline.send(record(step, NOW_MS + len(pipeline.log.entries)))
                model.take(step)
            for query in Query:
                pipeline.hop(query)
                for _, crashed in crashes:
                    if crashed is query:
                        pipeline.repeat(query)

            view = model.view()
            rows = pipeline.gold()
            assert {c: (r["address"], r["purchase_count"], r["total_amount"]) for c, r in rows.items()} == view
            latest = pipeline.view.latest()
            assert {c: latest[c]["viewVersion"] for c in latest} == {c: rows[c]["view_version"] for c in rows}
            assert len(pipeline.rows(Table.PURCHASES)) == len(model.purchases)
        for customer in {key for key, _ in pipeline.view.records}:
            versions = [v["viewVersion"] for key, v in pipeline.view.records if key == customer and v is not None]
            assert versions == sorted(set(versions))
