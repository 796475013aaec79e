"""Publishing goes on where it was: behind the marker, over a correction of gold, and not on a gold of before."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint, offsets
from customer_activity.checkpoints.offsets import OffsetRange
from customer_activity.engine.stream import Writer
from customer_activity.errors import TerminalError
from customer_activity.kafka.marker import Marker, parse
from customer_activity.lake import delta, feeds
from customer_activity.lake.microbatch import MicroBatch
from customer_activity.settings import Settings
from customer_activity.streams.publish import parts, reading, records, stream
from support import tables
from support.corrections import correct
from support.streams import Query
from support.without_jvm import NoSpark

GOLD = Table.ACTIVITY_CHANGES
KEY = ("customer_id", "view_version")


class Crash(Exception):
    """The driver ends here."""


@dataclass
class View:
    """The view topic; the driver may end after some transactions."""

    marker: Marker | None = None
    max_bytes: int = 1_000_000
    sent: list[bytes] = field(default_factory=list)
    markers: list[Marker | None] = field(default_factory=list)
    values: dict[bytes, bytes | None] = field(default_factory=dict)
    left: int = 1_000

    def publish(self, records: Iterable[tuple[Any, ...]], marker: Marker | None) -> int:
        if not self.left:
            raise Crash
        self.left -= 1
        found = list(records)
        self.sent += [record[0] for record in found]
        self.values |= {record[0]: record[1] for record in found}
        self.marker = marker
        self.markers.append(marker)
        return len(found)

    def on_topic(self) -> dict[bytes, bytes | None]:
        return dict(self.values)


@pytest.fixture(autouse=True)
def _small_parts(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "PART_RECORDS", 2)


def changes(version: int, *customers: str, **columns: Any) -> list[dict[str, Any]]:
    row = {"address": "1 Old Street", "view_version": version, "existed": False, "is_gone": False, **columns}
    return [{"customer_id": customer, **row} for customer in customers]


def add(settings: Settings, *rows: dict[str, Any]) -> None:
    tables.append(settings.lake, GOLD, *rows, query=Query.GOLD)


def publish(settings: Settings, view: View, upto: int | None = None, spark: NoSpark | None = None) -> None:
    end = tables.newest(settings.lake, GOLD) if upto is None else upto
    batch = MicroBatch(Query.PUBLISH, "g", 0, versions={GOLD: (-1, end)})
    feed = feeds.read(settings.lake, {GOLD: records.COLUMNS}, batch.versions, even_retracted=True)
    marker = view.marker
    steps = stream.step(
        feed,
        batch,
        settings=settings,
        publisher=view,  # type: ignore[arg-type]
        table_id=delta.table_id(settings.lake, GOLD),
        corrections=reading.corrections(settings.lake, -1 if marker is None else marker.version),
    )
    Writer(stream.SPEC, spark, settings.lake, view).make_all(steps, batch)  # type: ignore[arg-type]


def published(settings: Settings) -> View:
    """Publish to a view topic that is new."""
    view = View()
    publish(settings, view)
    return view


@pytest.mark.parametrize("crash_after", range(3))
def test_of_a_correction_what_the_topic_has_otherwise_is_sent_once(settings: Settings, crash_after: int) -> None:
    add(settings, *changes(5, "A", "B", "C", "D"))
    view = published(settings)
    right = [*changes(7, "A", "D", address="2 New Street"), *changes(5, "B", "C")]  # B and C were right on the topic
    correct(settings.lake, GOLD, KEY, changes(5, "A", "B", "C", "D"), right)
    add(settings, *changes(8, "E"))
    view.sent.clear()
    view.left = crash_after
    if crash_after < 2:
        with pytest.raises(Crash):
            publish(settings, view)
        view.left = 1_000
    publish(settings, view)

    assert sorted(view.sent) == [b"A", b"D", b"E"]
    assert b"2 New Street" in (view.values[b"A"] or b"")
    assert view.marker is not None
    assert view.marker.version == 3


def test_what_is_retracted_and_was_never_out_does_not_go_out(settings: Settings) -> None:
    add(settings, *changes(5, "A", "B", "C"))
    view = published(settings)
    add(settings, *changes(6, "A", "D", address="Nowhere"))
    correct(settings.lake, GOLD, KEY, changes(6, "A", "D"), changes(7, "D"))
    correct(settings.lake, GOLD, KEY, [], changes(8, "B", address="Nowhere"))
    correct(settings.lake, GOLD, KEY, changes(8, "B"), [])
    view.sent.clear()
    publish(settings, view)
    assert view.sent == [b"D"]
    assert not any(b"Nowhere" in (value or b"") for value in view.values.values())


def test_a_batch_that_was_planned_before_a_correction_sends_nothing_that_it_retracts(settings: Settings) -> None:
    add(settings, *changes(5, "A", "B"))
    view = published(settings)
    add(settings, *changes(6, "A", address="Nowhere"), *changes(6, "B", existed=True, is_gone=True))  # both are wrong
    correct(settings.lake, GOLD, KEY, changes(6, "A", "B"), [])
    view.sent.clear()
    publish(settings, view, upto=2)
    publish(settings, view)
    assert view.sent == []


def test_beside_a_correction_a_row_that_comes_and_goes_ends_on_the_topic(settings: Settings) -> None:
    add(settings, *changes(5, "A"))
    view = published(settings)
    correct(settings.lake, GOLD, KEY, changes(5, "A"), changes(6, "A", address="2 New Street"))
    add(settings, *changes(7, "X"))
    add(settings, *changes(8, "Y", "Z"))  # the next part
    add(settings, *changes(9, "X", existed=True, is_gone=True))
    publish(settings, view)
    assert view.values[b"X"] is None


def test_the_marker_names_the_commit_of_its_version(settings: Settings) -> None:
    add(settings, *changes(5, "A", "B", "C"))
    view = published(settings)
    assert view.marker is not None
    assert [marker and (marker.version, marker.rows) for marker in view.markers] == [(0, 2), (1, 0)]
    assert view.marker.commit
    assert parse(view.marker.text()) == view.marker


@pytest.mark.parametrize("grown", [0, 1, 2], ids=["shorter", "as long again", "longer than before"])
def test_a_gold_that_was_put_back_to_before_the_marker_is_refused(
    settings: Settings, tmp_path: Path, grown: int
) -> None:
    add(settings, *changes(5, "A"))
    shutil.copytree(table_path(settings.lake, GOLD), tmp_path / "backup")
    add(settings, *changes(6, "B"))
    view = published(settings)
    publisher = SimpleNamespace(marker=view.marker)
    assert stream.begins(settings, publisher) == {GOLD: 2}  # type: ignore[arg-type]

    shutil.rmtree(table_path(settings.lake, GOLD))
    shutil.copytree(tmp_path / "backup", table_path(settings.lake, GOLD))
    for number in range(grown):
        add(settings, *changes(7 + number, "C"))

    with pytest.raises(TerminalError, match=r"gold\.activity_changes was restored to an earlier state"):
        stream.begins(settings, publisher)  # type: ignore[arg-type]


@pytest.mark.parametrize("grown", [0, 1], ids=["to before the version that is begun", "and grown again"])
def test_a_gold_that_was_put_back_to_before_a_version_that_is_half_out_is_refused(
    settings: Settings, tmp_path: Path, grown: int
) -> None:
    """Its rows would be taken for those that are out, by their numbers."""
    add(settings, *changes(5, "A"))
    shutil.copytree(table_path(settings.lake, GOLD), tmp_path / "backup")
    add(settings, *changes(6, "X", "Y", "Z"))
    view = View(left=2)
    with pytest.raises(Crash):
        publish(settings, view)
    assert view.marker is not None
    assert (view.marker.version, view.marker.rows, parse(view.marker.text())) == (1, 2, view.marker)
    publisher = SimpleNamespace(marker=view.marker)
    assert stream.begins(settings, publisher) == {GOLD: 1}  # type: ignore[arg-type]

    shutil.rmtree(table_path(settings.lake, GOLD))
    shutil.copytree(tmp_path / "backup", table_path(settings.lake, GOLD))
    for number in range(grown):
        add(settings, *changes(7 + number, "X", "Y", "Z"))

    with pytest.raises(TerminalError, match=r"was restored to an earlier state: its version 2,"):
        stream.begins(settings, publisher)  # type: ignore[arg-type]


def test_versions_that_moved_no_marker_may_be_gone_from_the_log(settings: Settings, nobody: NoSpark) -> None:
    add(settings, *changes(5, "A"))
    view = published(settings)
    table_id = delta.table_id(settings.lake, GOLD)
    for number in range(4):  # of customers without a profile: none makes a record
        add(settings, *changes(6 + number, "N", is_gone=True))
    read = [[offsets.after(table_id, upto)] for upto in (4, 5)]
    checkpoint.write(settings.lake, Query.PUBLISH, "g", 1, OffsetRange(*read), is_committed=True)
    log = Path(table_path(settings.lake, GOLD)) / "_delta_log"
    DeltaTable(table_path(settings.lake, GOLD)).create_checkpoint()
    for version in range(4):
        (log / f"{version:020}.json").unlink()

    context = SimpleNamespace(settings=settings, ids={GOLD: table_id}, spark=nobody)
    work = stream.worker(context, view)  # type: ignore[arg-type]
    add(settings, *changes(20, "B"))
    view.sent.clear()
    work(None, MicroBatch(Query.PUBLISH, "g", 2, versions={GOLD: (5, 6)}))  # type: ignore[arg-type]
    assert view.sent == [b"B"]


@pytest.mark.parametrize("crashes", [False, True], ids=["", "ended before the topic has the rest"])
def test_rows_too_large_are_in_quarantine_once_also_in_commits_behind_a_restored_gold(
    settings: Settings, nobody: NoSpark, tmp_path: Path, crashes: bool
) -> None:
    view = View(max_bytes=600)

    def large(*numbers: int) -> None:
        """Have a version for each, with a row that is too large, and one that is not."""
        for number in numbers:
            add(settings, *changes(number, f"L-{number}", address="x" * 1_000), *changes(number, f"C-{number}"))
        if crashes:
            view.left, marker = 0, view.marker
            with pytest.raises(Crash):
                publish(settings, view, spark=nobody)
            view.left, view.marker = 1_000, marker
        publish(settings, view, spark=nobody)

    large(5)
    shutil.copytree(table_path(settings.lake, GOLD), tmp_path / "backup")
    behind = view.marker
    large(6, 7, 8)
    shutil.rmtree(table_path(settings.lake, GOLD))
    shutil.copytree(tmp_path / "backup", table_path(settings.lake, GOLD))
    nobody.forget_logs()
    view.marker = behind  # as `resync publish` leaves it
    large(9, 10)

    rows = tables.opened(settings.lake, Table.QUARANTINE).to_pyarrow_table().to_pylist()
    assert sorted(row["key"].decode() for row in rows) == ["L-10", "L-5", "L-6", "L-7", "L-8", "L-9"]
    assert {key for key in view.values if key.startswith(b"L")} == set()


@pytest.mark.parametrize(
    ("value", "marker"),
    [
        pytest.param(b'{"table_id": "t", "version": 3}', Marker("t", 3), id="of the release before"),
        pytest.param(b'{"table_id": "t", "version": 3, "rows": 7}', Marker("t", 3, 7), id="inside a version"),
        pytest.param(b'{"table_id": "t", "version": 0, "more": 1}', Marker("t", 0), id="of a release to come"),
        pytest.param(None, None, id="none"),
    ],
)
def test_a_marker_is_read(value: bytes | None, marker: Marker | None) -> None:
    assert parse(value) == marker


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"table_id": "t"}', b'{"table_id": "t", "version": "x"}'])
def test_what_is_no_marker_is_refused_by_name(value: bytes) -> None:
    with pytest.raises(TerminalError, match="no marker of a publisher"):
        parse(value)
