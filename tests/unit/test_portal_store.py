"""The portal's store: rows and offsets in one transaction, what is found and how, and that the gone are gone."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from customer_activity.errors import EnvironmentFault
from customer_activity.portal import store
from customer_activity.portal.alone import alone
from customer_activity.portal.reading import Reader
from customer_activity.portal.records import Row
from customer_activity.portal.store import Store
from support.view import gone, row

BEGINS = {0: 0, 1: 5}


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Store]:
    """Return a store that is restored and has nothing."""
    found = store.create(tmp_path, "topic", BEGINS)
    found.finish()
    yield found
    found.close()


def reader(held: Store) -> Reader:
    return Reader(held.path, held.id)


def names(found: list[bytes]) -> list[str]:
    return [json.loads(value)["customerId"] for value in found]


def test_a_row_is_the_last_one(held: Store) -> None:
    held.take([row(version=1), row(version=2, address="1 New Street")], {0: 2})
    assert reader(held).row("C-1") == row(version=2, address="1 New Street").value
    assert reader(held).row("C-2") is None


@pytest.mark.parametrize(
    ("records", "kinds"),
    [
        pytest.param([row()], ["added"], id="a row that is new"),
        pytest.param([row(), row(version=2, name="Ann")], ["added", "changed"], id="a row that changes"),
        pytest.param([row(), row()], ["added"], id="the same record again"),
        pytest.param([row(version=2), row(version=1, name="Ann")], ["added"], id="an older version, later"),
        pytest.param([row(), gone()], ["removed"], id="a row that goes: nothing else is kept of it"),
        pytest.param([gone()], [], id="a tombstone of nobody"),
        pytest.param([row(), gone(), row(version=2)], ["removed", "added"], id="a row that comes back"),
    ],
)
@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "in one transaction"])
def test_a_change_is_told_with_its_kind(held: Store, records: list[Row], kinds: list[str], *, at_once: bool) -> None:
    if at_once:
        assert [change.kind for change in held.take(records, {0: len(records)})] == kinds
    for number, each in enumerate([] if at_once else records):
        held.take([each], {0: number + 1})
    assert [change.kind for change in reversed(reader(held).changes(10))] == kinds


def test_a_change_names_its_fields(held: Store) -> None:
    held.take([row()], {0: 1})
    (change,) = held.take([row(version=2, address="1 New Street", purchaseCount=4)], {0: 2})
    assert change.fields == ["address", "purchaseCount"]
    assert reader(held).changes(1) == [change]


def test_rows_and_offsets_are_one_transaction(held: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    held.take([row()], {0: 1})

    def fails(*_: object) -> None:
        raise sqlite3.OperationalError("disk full")

    monkeypatch.setattr(held, "_advance", fails)
    with pytest.raises(sqlite3.OperationalError):
        held.take([row(version=2, name="Ann")], {0: 2})
    assert held.positions == {0: 1, 1: 5}  # who tries again reads it again
    held.close()
    again = store.newest(held.path.parent)
    assert again is not None
    assert (again.positions, reader(again).row("C-1")) == ({0: 1, 1: 5}, row().value)
    again.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("myrt", ["C-1"], id="a first name"),
        pytest.param("ridge MYR", ["C-1"], id="two words, in any order and case"),
        pytest.param("jose munoz", ["C-2"], id="without accents"),
        pytest.param("Jose\u0301", ["C-2"], id="an accent by itself"),
        pytest.param("example.org", ["C-1", "C-2"], id="the domain of an address"),
        pytest.param("myrtle@example", ["C-1"], id="the beginning of an address"),
        pytest.param("yrtle", [], id="within a word"),
        pytest.param("mill lane", [], id="an address of a house is not searched"),
        pytest.param('" NOT "', [], id="what SQLite's queries have a meaning for"),
        pytest.param("*", [], id="no word at all"),
        pytest.param("name:myrtle", [], id="a column"),
        pytest.param("a\0b", [], id="a null character"),
    ],
)
def test_customers_are_found_by_words(tmp_path: Path, text: str, found: list[str]) -> None:
    rows = [row(), row("C-2", name="José Muñoz", email="jm@example.org")]
    restored = store.create(tmp_path / "restored", "topic", BEGINS)
    restored.restore(rows, {0: 2})
    restored.finish()
    live = store.create(tmp_path / "live", "topic", BEGINS)
    live.finish()
    live.take(rows, {0: 2})
    for held in (restored, live):
        assert names(reader(held).by_words(text, 10)) == found
        held.close()


def test_a_customer_is_found_by_the_words_of_now(held: Store) -> None:
    held.take([row(), row("C-2"), row("C-3")], {0: 3})
    held.take([row(version=2, name="Ann Smith"), gone("C-2")], {0: 5})
    assert names(reader(held).by_words("myrtle ridgeway", 10)) == ["C-3"]
    assert names(reader(held).by_words("smith", 10)) == ["C-1"]


@pytest.mark.parametrize(
    ("prefix", "found"),
    [
        pytest.param("C-1", ["C-1", "C-10", "C-1é"], id="a beginning"),
        pytest.param("C-10", ["C-10"], id="a whole id"),
        pytest.param("c-1", [], id="ids have their case"),
        pytest.param("C_1", [], id="no wildcard"),
        pytest.param("%", ["%"], id="a per cent sign is one"),
    ],
)
def test_customers_are_found_by_the_beginning_of_their_id(held: Store, prefix: str, found: list[str]) -> None:
    held.take([row(customer) for customer in ("C-2", "C-10", "C-1é", "C-1", "%")], {0: 5})
    assert names(reader(held).by_id(prefix, 10)) == found


def test_nothing_of_a_customer_stays_in_the_files_when_the_row_is_gone(held: Store) -> None:
    secret = "Quetzalcoatlina"  # noqa: S105 - a name that nothing else has
    held.take([row(), row("C-2", name=secret)], {0: 2})
    held.take([gone("C-2"), row("C-3")], {0: 4})
    while not held.purge():
        pass
    files = b"".join(file.read_bytes() for file in held.path.parent.iterdir())
    assert secret.lower().encode() not in files.lower()
    assert names(reader(held).by_words("myrtle", 10)) == ["C-1", "C-3"]


def test_the_newest_changes_are_kept(held: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "KEPT_CHANGES", 3)
    for version in range(1, 6):
        held.take([row(version=version, purchaseCount=version)], {0: version})
    assert [change.number for change in reader(held).changes(10)] == [5, 4, 3]


VERSIONS = st.lists(st.tuples(st.sampled_from("ABC"), st.booleans()), max_size=30)


@given(VERSIONS, st.lists(st.integers(1, 5), min_size=1, max_size=30), st.integers(0, 30))
def test_however_the_topic_is_cut_the_rows_are_those_of_its_end(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[str, bool]], cuts: list[int], restored: int
) -> None:
    records = [
        row(customer, version + 1, at=version, purchaseCount=version) if is_row else gone(customer, at=version)
        for version, (customer, is_row) in enumerate(sent)
    ]
    expected = {record.customer_id: record.value for record in records}
    held = store.create(tmp_path_factory.mktemp("store"), "topic", BEGINS)
    at = 0
    while at < len(records):
        end = at + cuts[at % len(cuts)]
        if not held.is_restored and at < restored:
            held.restore(records[at:end], {0: end})
        else:
            if not held.is_restored:
                held.finish()
            held.take(records[at:end], {0: end})
        at = end
    if not held.is_restored:
        held.finish()
    found = reader(held)
    assert {customer: found.row(customer) for customer in expected} == expected
    assert held.customers == len([value for value in expected.values() if value is not None])
    held.close()


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: path.write_bytes(b"no database"), id="no database"),
        pytest.param(lambda path: path.write_bytes(b""), id="empty"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:1000]), id="cut off"),
    ],
)
def test_a_store_that_cannot_be_read_is_none(tmp_path: Path, damage: object) -> None:
    held = store.create(tmp_path, "topic", BEGINS)
    held.close()
    assert callable(damage)
    damage(held.path)
    assert store.newest(tmp_path) is None


def test_a_store_of_another_release_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(tmp_path, "topic", BEGINS).close()
    monkeypatch.setattr(store, "LAYOUT", "another")
    assert store.newest(tmp_path) is None


def test_a_folder_has_one_portal(tmp_path: Path) -> None:
    with alone(tmp_path / "portal"):
        assert (tmp_path / "portal").stat().st_mode & 0o777 == 0o700
        with pytest.raises(EnvironmentFault, match="another portal"), alone(tmp_path / "portal"):
            pass
    with alone(tmp_path / "portal"):
        pass


def test_a_new_store_takes_the_place_of_all_others(tmp_path: Path) -> None:
    old = store.create(tmp_path, "topic", BEGINS)
    old.finish()
    old.take([row()], {0: 1})
    reading = reader(old)
    assert reading.row("C-1") is not None
    new = store.create(tmp_path, "another", BEGINS)
    assert reading.row("C-1") is not None  # who still reads goes on to do so
    assert {file.name.split(".")[0] for file in tmp_path.iterdir()} == {new.path.stem}
    old.close()
    new.close()
