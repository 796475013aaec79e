"""A table on its topics: each change of a row once, wherever a publisher is ended, and whenever it begins."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.engine.stream import Record, Send, Traced
from customer_activity.errors import ChangeFeedLost, TerminalError
from customer_activity.kafka.marker import BEFORE_THE_FIRST, Marker, Outlet, parse
from customer_activity.lake import delta
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.maintenance import maintenance
from customer_activity.settings import Settings
from customer_activity.streams.publish import changed, parts
from customer_activity.streams.publish.published import Published, refuse_earlier
from customer_activity.streams.windows import topics
from support.days import KEY, States, write
from support.tables import entry

OUTLET = Outlet("pipeline", "-publishes-daily", ("daily",))
RUNNING, FINAL = (
    next(each for each in topics.STREAMS if each.spec.name == f"publish_daily{end}") for end in ("", "_final")
)


@dataclass
class Topic:
    """A broker with one topic, and the publisher's marker: both change together, or not at all."""

    marker: Marker | None = None
    records: list[Record | Traced] = field(default_factory=list)
    max_bytes: int = 1_000_000
    outlet: Outlet = field(default=OUTLET)

    def commit(self, write: Send) -> None:
        self.records += write.records
        self.marker = parse(write.marker.text())  # as another process reads it back


@pytest.fixture(autouse=True)
def on() -> Iterator[None]:
    topology.switch_on(["publish_daily", "publish_daily_final"])
    yield
    topology.switch_on([])


def publish(topic: Topic, stream: Published, lake: str, upto: int, *, after: int = -1, most: int = 1_000) -> bool:
    """Publish up to a version, or end after so many transactions; return whether it came to the end."""
    batch = MicroBatch(stream.spec.name, "generation", upto)
    steps = stream.step(batch, topic, Settings(lake=lake), "id", after, upto)  # type: ignore[arg-type]
    for write_ in steps:
        if most == 0:
            return False
        assert isinstance(write_, Send)
        topic.commit(write_)
        most -= 1
    return True


def said(topic: Topic) -> list[tuple[str, int | None]]:
    """Return what the topic says, record by record: whose day, and how many purchases."""
    return [
        (json.loads(key)[0], None if value is None else json.loads(value)["purchaseCount"])
        for key, value, *_ in topic.records
    ]


def test_a_version_tells_what_it_changed_and_nothing_else(tmp_path: Path) -> None:
    lake = str(tmp_path)
    delta.create(lake, Table.DAILY)
    write(lake, 1, {"A": (1, False), "B": (1, False), "C": (1, False)})
    write(lake, 2, {"C": (2, True), "A": None, "B": (1, False), "D": (4, False)})
    write(lake, 3, {"E": (1, False)})
    assert maintenance.compact(lake, Table.DAILY) == 4
    found = changed.in_version(lake, Table.DAILY, KEY, 2)
    assert found.rows.column("customer_id").to_pylist() == ["A", "C", "D"]  # B was rewritten as it was
    assert found.is_gone.to_pylist() == [True, False, False]
    assert found.before.column("purchase_count").to_pylist() == [1, 1, None]
    assert found.rows.column("purchase_count").to_pylist() == [1, 2, 4]
    assert len(changed.in_version(lake, Table.DAILY, KEY, 4).is_gone) == 0  # a compaction changes no row


def test_a_record_has_the_rows_columns_and_exact_amounts(tmp_path: Path) -> None:
    lake, topic = str(tmp_path), Topic()
    delta.create(lake, Table.DAILY)
    write(lake, 1, {"A": (12, False)})
    publish(topic, RUNNING, lake, 1)
    ((key, value, *_),) = topic.records
    assert (key, value) == (
        b'["A","2026-03-01"]',
        b"".join(
            [
                b'{"customerId":"A","day":"2026-03-01","windowStartEpochMillis":1772323200000,',
                b'"windowEndEpochMillis":1772409600000,"purchaseCount":12,"totalAmount":12.50,',
                b'"firstPurchaseAtEpochMillis":1772323200000,"lastPurchaseAtEpochMillis":1772323200012,"isFinal":false}',
            ]
        ),
    )


def test_a_final_figure_goes_out_when_it_is_final_and_when_it_is_corrected(tmp_path: Path) -> None:
    lake, topic = str(tmp_path), Topic()
    delta.create(lake, Table.DAILY)
    write(lake, 1, {"A": (1, False), "B": (1, True)})
    write(lake, 2, {"A": (2, True), "C": (1, False)})
    write(lake, 3, {"A": (2, True), "B": (1, True)})  # nothing differs
    write(lake, 4, {"A": (3, True), "B": None})  # on purpose: `activity reprocess`
    publish(topic, FINAL, lake, 1)
    assert said(topic) == [("B", 1)]
    publish(topic, FINAL, lake, 4)
    assert said(topic) == [("B", 1), ("A", 2), ("A", 3), ("B", None)]


CUSTOMERS = "ABCDEFG"
STATES = st.dictionaries(
    st.sampled_from(CUSTOMERS), st.none() | st.tuples(st.integers(1, 3), st.booleans()), min_size=1
)


@settings(max_examples=15)
@given(
    versions=st.lists(STATES, min_size=2, max_size=5),
    begins=st.integers(0, 4),
    lives=st.lists(st.integers(0, 3), max_size=6),
)
@pytest.mark.parametrize("stream", [RUNNING, FINAL], ids=["running", "final"])
def test_whatever_ends_a_publisher_each_record_is_out_once_and_in_order(
    stream: Published, versions: list[States], begins: int, lives: list[int]
) -> None:
    with TemporaryDirectory() as lake, pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PART_RECORDS", 2)
        delta.create(lake, Table.DAILY)
        for number, states in enumerate(versions, 1):
            write(lake, number, states)
        begins = min(begins, len(versions))
        at_once, often = Topic(), Topic()
        for topic, ends in ((at_once, []), (often, lives)):
            for upto in range(begins, len(versions) + 1):  # a batch each; a life that ends repeats its batch
                while not publish(topic, stream, lake, upto, after=upto - 1, most=ends.pop() if ends else 1_000):
                    patch.setattr(parts, "PART_RECORDS", 1 + len(ends) % 3)  # as another release may cut them
        assert often.records == at_once.records
        assert publish(often, stream, lake, len(versions), after=len(versions) - 1)  # by a driver that was lost
        assert often.records == at_once.records
        now = {key: value for key, value, *_ in often.records}
        there = changed.snapshot(lake, Table.DAILY, len(versions))
        wanted = dict(record[:2] for rows in there for _, record in stream.records(rows, Settings(lake=lake)))
        assert {key: value for key, value in now.items() if value is not None} == wanted


def test_a_snapshot_is_read_once_though_none_of_its_rows_makes_a_record(tmp_path: Path) -> None:
    lake, topic = str(tmp_path), Topic()
    delta.create(lake, Table.DAILY)
    for number in (1, 2):
        write(lake, number, {"A": (number, False)})
        publish(topic, FINAL, lake, number)
        assert topic.marker is not None
        assert (topic.marker.version, topic.marker.snapshot) == (1, 0)
    write(lake, 3, {"A": (2, True)})
    publish(topic, FINAL, lake, 3, after=2)
    assert said(topic) == [("A", 2)]


def test_a_snapshot_that_was_begun_is_gone_on_with_though_the_table_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_RECORDS", 2)
    lake, topic = str(tmp_path), Topic()
    delta.create(lake, Table.DAILY)
    write(lake, 1, dict.fromkeys(CUSTOMERS, (1, False)))
    assert not publish(topic, RUNNING, lake, 1, most=2)
    assert topic.marker is not None
    assert (topic.marker.version, topic.marker.snapshot) == (BEFORE_THE_FIRST, 1)
    write(lake, 2, {"A": (2, False)})
    publish(topic, RUNNING, lake, 2)
    assert sorted(said(topic)[:-1]) == [(name, 1) for name in CUSTOMERS]
    assert said(topic)[-1] == ("A", 2)


@pytest.mark.parametrize("after", [-1, 1], ids=["a snapshot", "a version"])
def test_what_is_out_of_a_part_that_is_cut_larger_by_now_is_not_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(parts, "PART_RECORDS", 2)
    lake, topic = str(tmp_path), Topic()
    delta.create(lake, Table.DAILY)
    write(lake, 1, dict.fromkeys(CUSTOMERS, (1, False)))
    assert publish(topic, RUNNING, lake, 1, most=1 if after < 0 else 1_000) == (after > 0)
    if after > 0:
        write(lake, 2, dict.fromkeys(CUSTOMERS, (2, False)))
        assert not publish(topic, RUNNING, lake, 2, after=after, most=1)
    monkeypatch.setattr(parts, "PART_RECORDS", 1_000)  # another release's
    assert publish(topic, RUNNING, lake, max(1, after + 1), after=after)
    counts = [1] if after < 0 else [1, 2]
    assert sorted(said(topic)) == sorted((name, count) for name in CUSTOMERS for count in counts)


@pytest.mark.parametrize("what", ["its entry", "its change data"])
def test_a_version_that_is_gone_is_told_and_not_taken_for_one_without_rows(tmp_path: Path, what: str) -> None:
    lake, topic = str(tmp_path), Topic()
    delta.create(lake, Table.DAILY)
    for number in range(1, 4):
        write(lake, number, {"A": (number, False)})
        if number == 1:
            publish(topic, RUNNING, lake, 1)
    if what == "its entry":
        maintenance.checkpoint_log(lake, Table.DAILY, every=1)
        entry(lake, Table.DAILY, 2).unlink()
    else:
        shutil.rmtree(Path(table_path(lake, Table.DAILY), "_change_data"))
    both = r"(?s)version 2 changed is gone.*resync publish_daily .* and `activity resync publish_daily_final"
    with pytest.raises(ChangeFeedLost, match=both):
        publish(topic, RUNNING, lake, 3)  # after -1: `activity recover` has set its checkpoint aside
    assert said(topic) == [("A", 1)]


@pytest.mark.parametrize("is_snapshot", [True, False], ids=["in a snapshot", "in a version"])
def test_a_table_that_was_restored_while_a_version_was_half_out_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_snapshot: bool
) -> None:
    monkeypatch.setattr(parts, "PART_RECORDS", 2)
    lake, topic = str(tmp_path / "lake"), Topic()
    delta.create(lake, Table.DAILY)
    write(lake, 1, {"A": (1, False)})
    if not is_snapshot:
        publish(topic, RUNNING, lake, 1)
    shutil.copytree(lake, tmp_path / "backup")
    write(lake, 2, dict.fromkeys(CUSTOMERS, (2, False)))
    assert not publish(topic, RUNNING, lake, 2, after=1, most=1)
    assert topic.marker is not None
    refuse_earlier(Settings(lake=lake), "publish_daily", Table.DAILY, topic.marker)
    shutil.rmtree(lake)
    shutil.copytree(tmp_path / "backup", lake)
    for number in (2, 3):
        with pytest.raises(TerminalError, match="restored to an earlier state: its version 2"):
            refuse_earlier(Settings(lake=lake), "publish_daily", Table.DAILY, topic.marker)
        write(lake, number, dict.fromkeys(CUSTOMERS, (7, False)))


def test_the_end_of_what_was_begun_is_told_though_its_last_rows_make_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each batch reads the same snapshot once more, until its files are gone."""
    monkeypatch.setattr(parts, "PART_RECORDS", 1)
    lake, topic = str(tmp_path), Topic()
    delta.create(lake, Table.DAILY)
    write(lake, 1, {"A": (1, True), "B": (1, False)})
    publish(topic, FINAL, lake, 1)
    assert topic.marker is not None
    assert (topic.marker.version, topic.marker.rows, topic.marker.snapshot) == (1, 0, 0)
