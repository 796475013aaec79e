"""One customer, and the topology."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from customer_activity import catalog, topology
from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE, Table, table_path
from customer_activity.inspection import describe, show
from customer_activity.settings import Settings
from customer_activity.terminal import screens
from support.inspected import NOON, TIMESTAMP, text, write
from support.streams import Query


class TestShow:
    def purchases(self, settings: Settings, number: int, customer_id: str = "C-1") -> None:
        rows = [
            {
                "purchase_id": f"P-{n}",
                "customer_id": customer_id,
                "product_id": None,
                "amount": Decimal("1.25"),
                "currency": "EUR",
                "occurred_at": NOON + timedelta(minutes=n),
                "offset": n,
                "kafka_timestamp": NOON,
            }
            for n in range(number)
        ]
        ids = dict.fromkeys(("purchase_id", "customer_id", "product_id", "currency"), pa.string())
        times = dict.fromkeys(("occurred_at", "kafka_timestamp"), TIMESTAMP)
        write(settings, Table.PURCHASES, rows, **ids, amount=pa.decimal128(18, 2), **times, offset=pa.int64())

    def profile(self, settings: Settings, *, is_tombstone: bool) -> None:
        rows = [{"customer_id": "C-1", "offset": 3, "is_tombstone": is_tombstone}]
        write(settings, Table.PROFILE_EVENTS, rows, customer_id=pa.string(), offset=pa.int64(), is_tombstone=pa.bool_())

    def gold(self, settings: Settings) -> None:
        rows = [{"customer_id": "C-1", "name": "[b]Ann[/b]", "view_version": 4, "as_of": NOON}]
        columns = {"customer_id": pa.string(), "name": pa.string(), "view_version": pa.int64(), "as_of": TIMESTAMP}
        write(settings, Table.ACTIVITY, rows, **columns)
        write(settings, Table.PROFILES, rows, **columns)

    def test_a_customer_in_gold_with_the_last_ten_purchases(self, settings: Settings) -> None:
        self.gold(settings)
        self.purchases(settings, 12)
        self.purchases(settings, 3, customer_id="C-2")

        found = show.customer(settings.lake, "C-1")

        assert found.gold is not None
        assert found.profile is not None
        assert [row["purchase_id"] for row in found.purchases] == [f"P-{n}" for n in range(11, 1, -1)]
        assert found.explanation == "in gold as of 2026-03-01 12:00:00 UTC, version 4"
        assert "[b]Ann[/b]" in text(screens.customer(found))  # data is never markup

    def test_purchases_without_a_profile_wait(self, settings: Settings) -> None:
        self.purchases(settings, 2)
        found = show.customer(settings.lake, "C-1")
        assert found.is_known
        assert "no profile has come yet" in found.explanation
        assert "2 purchases wait in silver" in found.explanation

    @pytest.mark.parametrize(
        ("is_tombstone", "says"), [(True, "the profile was deleted"), (False, "silver has still to follow")]
    )
    def test_a_profile_that_is_not_current(self, settings: Settings, is_tombstone: bool, says: str) -> None:
        self.profile(settings, is_tombstone=is_tombstone)
        found = show.customer(settings.lake, "C-1")
        assert found.is_known
        assert says in found.explanation

    def test_an_unknown_customer(self, settings: Settings) -> None:
        self.gold(settings)
        found = show.customer(settings.lake, "C-404")
        assert not found.is_known
        assert "nothing is known" in found.explanation
        assert show.customer(str(Path(settings.lake) / "none"), "C-404").is_known is False


class TestDescribe:
    def test_every_form_names_each_query_table_and_topic_of_this_deployment(self, settings: Settings) -> None:
        renamed = settings.model_copy(update={"view_topic": "view.v2"})
        forms = ["\n".join(describe.lines(renamed)), describe.mermaid(renamed), json.dumps(describe.as_values(renamed))]
        names = [*Query, *(table.label for table in Table), *renamed.topics.values()]
        assert [name for form in forms for name in names if name not in form] == []

    def test_text_and_json_say_where_and_what_is_promised(self, settings: Settings) -> None:
        for form in ("\n".join(describe.lines(settings)), json.dumps(describe.as_values(settings))):
            for spec in topology.specs():
                assert spec.promises in form
                assert catalog.checkpoint_path(settings.lake, spec.name) in form
            assert table_path(settings.lake, Table.ACTIVITY) in form

    def test_a_chart_draws_an_edge_for_each_end_once(self, settings: Settings) -> None:
        edges = [line.strip() for line in describe.mermaid(settings).splitlines() if "-->" in line]
        assert len(edges) == len(set(edges))
        assert "topic_progress" in describe.mermaid(settings)
        assert "publish <--> topic_progress" in edges
        assert f"topic_{PURCHASES_ROLE} --> bronze" in edges
        assert f"topic_{PROFILES_ROLE} --> bronze" in edges
