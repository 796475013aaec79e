"""The topology is what the streams declare: derived in one place, refused where it contradicts itself."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from customer_activity import topology
from customer_activity.catalog import Table
from customer_activity.errors import SettingsError
from customer_activity.rebuild import comparison
from customer_activity.settings import PROJECT
from customer_activity.streams.registry import ALL
from customer_activity.topology import Reads, Spec, Topic, Writes
from customer_activity.verification.checking import KNOWN
from support.streams import Query

PACKAGE = PROJECT / "jobs" / "customer_activity"
DAYS = re.compile(r"\b(FROM|JOIN) days\b")
WITH_A_PHASE = ("stream.py", "screens.py")  # one is called `publish`
UNREAD = Spec(
    "unread",
    reads=(Reads(Table.ACTIVITY_CHANGES, progress=Table.ACTIVITY),),
    writes=(Writes(Table.ACTIVITY, key=("customer_id",)),),
    promises="none",
)


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    """Look at the streams that these tests name, whatever else is registered; leave all as they are."""
    topology.install(each.spec for each in ALL if each.spec.is_optional or each.spec.name in set(Query))
    yield
    topology.install(stream.spec for stream in ALL)
    topology.switch_on([], [])


def test_the_streams_are_those_that_the_tests_name() -> None:
    assert topology.names() == list(Query)
    assert [spec.name for spec in topology.behind()] == [query for query in Query if query.is_behind]


def test_a_stream_comes_after_those_whose_tables_it_reads() -> None:
    for number, spec in enumerate(topology.specs()):
        above = {each.name for each in topology.upstream(spec)}
        assert above <= set(topology.names()[:number])


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        pytest.param([ALL[0].spec, ALL[0].spec], "two streams are called bronze", id="one name twice"),
        pytest.param([ALL[0].spec, UNREAD], "unread reads gold.activity_changes", id="a source that nobody writes"),
    ],
)
def test_what_contradicts_itself_is_refused_and_changes_nothing(specs: list[Spec], words: str) -> None:
    before = topology.names()
    with pytest.raises(ValueError, match=words):
        topology.install(specs)
    assert topology.names() == before


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param([], list(Query), id="all without a name"),
        pytest.param(["silver"], ["silver", "summaries", "profiles"], id="with what follows it"),
        pytest.param(["gold", "bronze"], ["bronze", "gold", "activity"], id="in their own order"),
    ],
)
def test_who_runs_when_some_are_named(named: list[str], expected: list[str]) -> None:
    assert topology.chosen(named) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        pytest.param([], [], id="none"),
        pytest.param(["daily"], ["event_time", "daily"], id="with what it reads"),
        pytest.param(["weekly", "late_events"], ["event_time", "late_events", "weekly"], id="in their own order"),
    ],
)
def test_optional_streams_are_on_when_they_are_named(wanted: list[str], expected: list[str]) -> None:
    topology.switch_on(wanted)
    assert topology.names() == [*Query, *expected]
    assert set(topology.tables()) - KNOWN == {
        table for name in expected for table in topology.spec(name).tables if table not in KNOWN
    }


def test_a_setting_that_has_a_value_switches_its_stream_on() -> None:
    topology.switch_on(["daily"], ["lake", "mask_key_file"])
    assert topology.names() == [*Query, "masked", "event_time", "daily"]
    topology.switch_on([], ["lake"])
    assert topology.names() == list(Query)


def test_an_optional_stream_that_is_unknown_is_refused_by_name() -> None:
    topology.switch_on(["dayly"])
    with pytest.raises(SettingsError, match="dayly is no optional stream") as refused:
        topology.specs()
    assert "daily" in (refused.value.remedy or "")


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param([], [*Query, "event_time", "daily"], id="all that are on"),
        pytest.param(["silver"], ["silver", "summaries", "profiles", "event_time", "daily"], id="all that follow"),
        pytest.param(["daily"], ["event_time", "daily"], id="with the optional ones that it follows"),
    ],
)
def test_who_runs_when_optional_ones_are_on(named: list[str], expected: list[str]) -> None:
    topology.switch_on(["daily"])
    assert topology.chosen(named) == expected


def test_payments_come_with_what_lands_them_and_nobody_else_runs_it() -> None:
    topology.switch_on(["payments"])
    with_payments = {"event_time", "payment_events", "payments"}
    assert set(topology.names()) == {*Query, *with_payments}
    assert [spec.name for spec in topology.landings()] == ["bronze", "payment_events"]
    assert topology.landing().name == "bronze"
    assert "payment_events" not in [spec.name for spec in topology.following()]
    assert topology.chosen([]) == topology.names()
    assert "payment_events" not in topology.chosen(["bronze", "silver"])
    assert set(topology.chosen(["payments"])) == with_payments


def test_a_topic_is_used_where_a_stream_is_on_that_has_it() -> None:
    assert "payments" not in topology.roles()
    topology.switch_on(["payment_events"])
    assert "payments" in topology.roles()


def test_streams_that_use_the_time_zone_are_those_that_say_so() -> None:
    """Verification has a calendar of its own for them: the relation `days`."""
    by_days = {each.spec.name for each in ALL if any(DAYS.search(write.expected) for write in each.spec.writes)}
    assert by_days == {each.spec.name for each in ALL if each.spec.uses_time_zone} == {"daily", "weekly", "late_events"}


def test_what_always_runs_reads_nothing_optional() -> None:
    reader = Spec(
        "reader",
        reads=(Reads(Table.TIMED_PURCHASES, progress=Table.DAILY),),
        writes=(Writes(Table.DAILY, key=("customer_id",)),),
        promises="none",
    )
    with pytest.raises(ValueError, match=r"reader reads silver\.timed_purchases"):
        topology.install([*(stream.spec for stream in ALL), reader])


def test_what_shows_how_far_an_input_has_come() -> None:
    assert topology.reflected("purchases") == {
        "bronze": Table.PURCHASE_EVENTS,
        "silver": Table.PURCHASES,
        "gold": Table.ACTIVITY_CHANGES,
        "summaries": Table.SUMMARIES,
        "activity": Table.ACTIVITY,
    }


def test_one_lands_and_one_publishes() -> None:
    assert (topology.landing().name, topology.publishing().name) == ("bronze", "publish")
    assert topology.publishing().reads == (Reads(Table.ACTIVITY_CHANGES, progress=Topic("progress")),)


def test_what_a_rebuild_runs_and_begins_with() -> None:
    assert [spec.name for spec in topology.rebuilt()] == ["silver", "gold"]
    assert topology.judging() == [
        ("silver", Table.PURCHASES, Table.PURCHASE_EVENTS),
        ("silver", Table.PROFILE_CHANGES, Table.PROFILE_EVENTS),
    ]


def test_of_another_stream_on_the_hot_path_a_rebuild_knows_as_much() -> None:
    changed = Writes(Table.PROFILES, key=("customer_id",), order=("landing",), ended="gone", uneven=("name",))
    other = Spec("other", (Reads(Table.PROFILE_EVENTS, progress=Table.PROFILES),), (changed,), promises="none")
    topology.install([*(stream.spec for stream in ALL[:4]), other])
    assert [spec.name for spec in topology.rebuilt()] == ["silver", "gold", "other"]
    assert topology.judging()[-1] == ("other", Table.PROFILES, Table.PROFILE_EVENTS)
    side = comparison.sides()[-1]
    assert (side.table, side.key, side.is_published) == (Table.PROFILES, ("customer_id",), False)
    assert "name" not in side.columns
    assert side.rows == (
        'QUALIFY row_number() OVER (PARTITION BY "customer_id" ORDER BY "landing" DESC NULLS LAST) = 1 AND NOT gone'
    )


def test_no_module_outside_the_streams_names_one() -> None:
    """Neither as a value, nor in a command that somebody is told to run; what is called so as well is left out."""
    names = set(topology.names()) - {"profiles", "activity"}
    told = re.compile(rf"activity (?:stream|resync|recover) (?:{'|'.join(topology.names())})\b")
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.relative_to(PACKAGE).parts[0] in ("streams", "demo", "verification"):  # the verifier shares no topology
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = {node.value} & names - ({"publish"} if path.name in WITH_A_PHASE else set())
                if named or told.search(node.value):
                    found.append(f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value}")
    assert found == []
