"""How purchases are distributed over customers, as `activity describe --keys` tells it."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from customer_activity.catalog import Table
from customer_activity.inspection import keys
from customer_activity.settings import Settings
from customer_activity.terminal import screens
from support import tables
from support.command import call
from support.inspected import text

HUNDRED = {f"C-{number:03}": number for number in range(1, 101)}  # 5,050 purchases
COUNTS = st.dictionaries(st.text(min_size=1, max_size=4), st.integers(1, 9), max_size=250)


def summarise(lake: str, counts: dict[str, int]) -> None:
    """Append summaries, in two files."""
    rows = [{"customer_id": customer, "purchase_count": count} for customer, count in counts.items()]
    for half in (rows[::2], rows[1::2]):
        tables.append(lake, Table.SUMMARIES, *half)


def test_percentiles_shares_and_the_hottest(lake: str) -> None:
    summarise(lake, HUNDRED)
    found = keys.keys(lake, 2)
    assert (found.customers, found.purchases) == (100, 5_050)
    assert found.percentiles == {"50": 50, "90": 90, "99": 99, "100": 100}
    assert found.shares == pytest.approx({"1": 100 / 5_050, "10": 955 / 5_050, "100": 1.0})
    assert [(hot.customer_id, hot.purchases) for hot in found.hottest] == [("C-100", 100), ("C-099", 99)]
    assert found.hottest[0].share == pytest.approx(100 / 5_050)
    assert found.placement.endswith("no customer is hot")


@of_hypothesis(max_examples=30, deadline=None)
@given(counts=COUNTS, rows_a_file=st.sampled_from([50, 101, 1_000]))
def test_it_is_counted_right_however_many_files_the_table_has(
    counts: dict[str, int], rows_a_file: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    lake = str(tmp_path_factory.mktemp("lake"))
    rows = [{"customer_id": customer, "purchase_count": count} for customer, count in counts.items()]
    for start in range(0, len(rows) or 1, rows_a_file):
        tables.append(lake, Table.SUMMARIES, *rows[start : start + rows_a_file])
    found = keys.keys(lake, 5)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))
    assert (found.customers, found.purchases) == (len(counts), sum(counts.values()))
    assert [(hot.customer_id, hot.purchases) for hot in found.hottest] == ordered[:5]
    assert found.shares["100"] == pytest.approx(sum(dict(ordered[:100]).values()) / (sum(counts.values()) or 1))
    for percentage, least in found.percentiles.items():
        at_most = Counter(count <= least for count in counts.values())[True]
        below = Counter(count < least for count in counts.values())[True]
        assert 100 * below < int(percentage) * len(counts) <= 100 * at_most


def test_it_says_what_a_hot_customer_costs(lake: str) -> None:
    summarise(lake, HUNDRED | {"C-hot": 4_950})
    found = keys.keys(lake, 1)
    assert "would get 50% of the purchases, but they are summed up where they are read" in found.placement
    assert found.placement in text(screens.keys(found)).replace("\n", " ")


def test_it_says_how_far_behind_the_purchases_it_is(lake: str) -> None:
    summarise(lake, {"C-1": 2})
    tables.append(lake, Table.PURCHASES, *({"purchase_id": f"P-{number}"} for number in range(5)))
    found = keys.keys(lake, 1)
    assert found.behind == 3
    assert "3 of silver.purchases are not in it yet" in keys.words(found)[0]
    summarise(lake, {"C-2": 3})
    found = keys.keys(lake, 1)
    assert (found.behind, found.version) == (0, tables.newest(lake, Table.SUMMARIES))
    assert "none is missing" in keys.words(found)[0]


def test_without_a_purchase_it_says_so(lake: str) -> None:
    found = keys.keys(lake, 10)
    assert (found.percentiles, found.hottest, found.shares) == ({}, [], {"1": 0.0, "10": 0.0, "100": 0.0})
    assert keys.words(found) == ["silver.purchase_summaries at version 0: 0 customers, 0 purchases; none is missing"]


def test_an_id_is_never_a_command_for_the_terminal(lake: str) -> None:
    summarise(lake, {"[b]\u202eC": 1})
    shown = text(screens.keys(keys.keys(lake, 1)))
    assert "[b]\\u202eC" in shown


def test_the_command_prints_text_and_json(deployment: Settings, lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    summarise(lake, HUNDRED)
    assert call("describe", "--keys", "--hottest", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("silver.purchase_summaries at version 2: 100 customers, 5,050 purchases")
    assert "50 % have at most 50, 90 % have at most 90, 99 % have at most 99, the most is 100" in lines[1]
    assert lines[2] == "share of the hottest customers: 1: 2.0%, 10: 18.9%, 100: 100.0%"
    assert [line.split()[0] for line in lines[-3:]] == ["C-100", "C-099", "C-098"]
    assert call("describe", "--keys", "--hottest", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["hottest"] == [{"customer_id": "C-100", "purchases": 100, "share": 100 / 5_050}]
    assert found["percentiles"]["50"] == 50


def test_a_chart_of_keys_is_refused(deployment: Settings, lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("describe", "--keys", "--format", "mermaid") == 2
    assert "--keys" in capsys.readouterr().err


def test_without_a_lake_it_says_so(deployment: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("describe", "--keys") == 2
    assert "ACTIVITY_LAKE" in capsys.readouterr().err
