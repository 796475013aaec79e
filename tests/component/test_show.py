"""One customer, and the topology."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from customer_activity import catalog, topology
from customer_activity.catalog import PROFILES_ROLE, PURCHASES_ROLE, Table, table_path
from customer_activity.contracts.tables import arrow_schema
from customer_activity.inspection import describe, show
from customer_activity.settings import Settings
from customer_activity.terminal import screens
from support.inspected import NOON, text
from support.kept_lakes import VERSIONS, unpack
from support.streams import Query
from support.tables import append, opened


class TestShow:
    def purchases(self, lake: str, number: int, customer_id: str = "C-1") -> None:
        bought = {"customer_id": customer_id, "amount": Decimal("1.25"), "currency": "EUR", "kafka_timestamp": NOON}
        times = [{"occurred_at": NOON + timedelta(minutes=n), "offset": n} for n in range(number)]
        append(lake, Table.PURCHASES, *({"purchase_id": f"P-{n}", **bought, **at} for n, at in enumerate(times)))

    def gold(self, lake: str) -> None:
        who = {"customer_id": "C-1", "name": "[b]Ann[/b]"}
        append(lake, Table.ACTIVITY, who | {"view_version": 4, "as_of": NOON})
        append(lake, Table.PROFILES, who)

    def test_a_customer_in_gold_with_the_last_ten_purchases(self, lake: str) -> None:
        self.gold(lake)
        self.purchases(lake, 12)
        self.purchases(lake, 3, customer_id="C-2")

        found = show.customer(lake, "C-1")

        assert found.gold is not None
        assert found.profile is not None
        assert [row["purchase_id"] for row in found.purchases] == [f"P-{n}" for n in range(11, 1, -1)]
        assert found.explanation == "in gold as of 2026-03-01 12:00:00 UTC, version 4"
        assert "[b]Ann[/b]" in text(screens.customer(found))  # data is never markup

    def test_purchases_without_a_profile_wait(self, lake: str) -> None:
        self.purchases(lake, 2)
        found = show.customer(lake, "C-1")
        assert found.is_known
        assert "no profile has come yet" in found.explanation
        assert "2 purchases wait in silver" in found.explanation

    @pytest.mark.parametrize(
        ("is_tombstone", "says"), [(True, "the profile was deleted"), (False, "silver has still to follow")]
    )
    def test_a_profile_that_is_not_current(self, lake: str, is_tombstone: bool, says: str) -> None:
        append(lake, Table.PROFILE_EVENTS, {"customer_id": "C-1", "offset": 3, "is_tombstone": is_tombstone})
        found = show.customer(lake, "C-1")
        assert found.is_known
        assert says in found.explanation

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_lake_of_a_release_before_is_shown_as_it_is(self, tmp_path: Path, version: int) -> None:
        unpack(version, tmp_path, "lake")
        (bought, *_) = opened(str(tmp_path / "lake"), Table.PURCHASES).to_pyarrow_table().to_pylist()
        found = show.customer(str(tmp_path / "lake"), bought["customer_id"])
        assert found.purchases[0].keys() == set(arrow_schema(Table.PURCHASES).names)
        assert bought["purchase_id"] in text(screens.customer(found))

    def test_an_unknown_customer(self, lake: str) -> None:
        self.gold(lake)
        found = show.customer(lake, "C-404")
        assert not found.is_known
        assert "nothing is known" in found.explanation
        assert show.customer(str(Path(lake) / "none"), "C-404").is_known is False


class TestDescribe:
    def test_every_form_names_each_query_table_and_topic_of_this_deployment(self, settings: Settings) -> None:
        renamed = settings.model_copy(update={"view_topic": "view.v2"})
        forms = ["\n".join(describe.lines(renamed)), describe.mermaid(renamed), json.dumps(describe.as_values(renamed))]
        topics = [renamed.topics[role] for role in topology.roles()]
        names = [*Query, *(table.label for table in topology.tables()), *topics]
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
