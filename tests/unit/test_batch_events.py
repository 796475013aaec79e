"""A batch's event: a short line for people, all of it as fields, and no payload."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from customer_activity.catalog import Table
from customer_activity.engine import batch_events, logs
from customer_activity.errors import SettingsError
from customer_activity.lake.microbatch import MicroBatch, Place, Placement
from customer_activity.settings import PROJECT

Written = Callable[[], str]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Written:
    """Return what tells what went to standard error; the process logs as before afterwards."""
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr("threading.excepthook", print)
    return lambda: capsys.readouterr().err


def batch(**more: Any) -> MicroBatch:
    made = MicroBatch("silver", "g-1", 3, rows=1_020, attempt="a-1", **more)
    made.phases |= {"read": 12.3, "compute": 1_900.04, "commit": 400.0}
    return made


@pytest.mark.parametrize(
    ("placement", "line"),
    [
        pytest.param(None, "silver batch 3: 1,020 rows in 2.50 s (compute 1.90, commit 0.40)", id="where it always is"),
        pytest.param(
            Placement(Place.DRIVER, "small"),
            "silver batch 3: 1,020 rows in 2.50 s (compute 1.90, commit 0.40), in the driver: small",
            id="driver",
        ),
        pytest.param(
            Placement(Place.EXECUTORS, "many"),
            "silver batch 3: 1,020 rows in 2.50 s (compute 1.90, commit 0.40), on executors: many",
            id="executors",
        ),
    ],
)
def test_the_line_is_short(placement: Placement | None, line: str, written: Written) -> None:
    logs.configure_logging()
    batch_events.tell(batch(placement=placement), 2.5)
    time, level, message = written().rstrip("\n").split(" ", 2)
    assert (time[-1], level, message) == ("Z", "INFO", line)


def test_the_object_has_all_of_it(written: Written) -> None:
    logs.configure_logging(logs.JSON)
    ranges = {"purchase-events": {0: (5, 9), 1: (4, 4)}, "customer-profile-state": {0: (3, 3)}}
    versions = {Table.PURCHASE_EVENTS: (7, 9)}
    done = batch(placement=Placement(Place.DRIVER, "small"), ranges=ranges, versions=versions)
    done.written[Table.PURCHASES] = 4
    batch_events.tell(done, 2.5)
    event = json.loads(written())
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "INFO",
        "logger": "customer_activity",
        "message": "silver batch 3: 1,020 rows in 2.50 s (compute 1.90, commit 0.40), in the driver: small",
        "query": "silver",
        "batch": 3,
        "rows": 1_020,
        "seconds": 2.5,
        "phases": {"read": 12.3, "compute": 1_900.0, "commit": 400.0},
        "place": "driver",
        "why": "small",
        "offsets": {"purchase-events": {"0": [5, 9]}},
        "versions": {"bronze.purchase_events": [7, 9]},
        "written": {"silver.purchases": 4},
    }
    assert event.keys() - {"level", "logger", "message"} <= logs.FIELDS.keys()


def test_the_page_names_every_field() -> None:
    _, _, page = (PROJECT / "docs" / "OPERATIONS.md").read_text(encoding="utf-8").partition("## Logs")
    assert [name for name in logs.FIELDS if f"`{name}`" not in page] == []


def test_a_library_s_events_are_objects_too(written: Written) -> None:
    logs.configure_logging(logs.JSON)
    logging.getLogger("deltalake").warning("%d files", 3)
    event = json.loads(written())
    assert (event["logger"], event["message"]) == ("deltalake", "3 files")


def test_the_format_can_be_changed(written: Written) -> None:
    logs.configure_logging(logs.JSON)
    logs.configure_logging(logs.TEXT, logging.WARNING)
    logs.log.info("not told")
    logs.log.warning("told once")
    assert [line.split(" ", 1)[1] for line in written().splitlines()] == ["WARNING told once"]


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        pytest.param(
            SettingsError("no lake", remedy="set one"),
            {"message": "no lake", "remedy": "set one", "exit_code": 2},
            id="ours",
        ),
        pytest.param(ValueError("why"), {"message": "an error that nobody foresaw", "exit_code": 2}, id="another"),
    ],
)
def test_the_last_event_says_why_the_process_ends(error: Exception, fields: dict[str, Any], written: Written) -> None:
    logs.configure_logging(logs.JSON)
    logs.tell_end(error, 2)
    event = json.loads(written())
    assert event.items() >= fields.items()
    assert ("stack" in event) == (type(error) is ValueError)
