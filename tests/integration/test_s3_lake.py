"""The whole pipeline on S3: a real broker, and moto's server as a process of its own; every command on one lake."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from customer_activity import topology
from customer_activity.catalog import Reason, Table
from customer_activity.errors import QueryAlreadyRunning
from customer_activity.lease import epochs, lease
from customer_activity.lease.epochs import ProcessLock
from customer_activity.lease.lease import Lease
from customer_activity.quarantine import replay
from customer_activity.quarantine.contents import Selection
from customer_activity.settings import Settings
from customer_activity.storage import filesystem, s3
from support.broker import rows, send, view
from support.corrections import count_wrongly
from support.records import Record, profile, purchase, tombstone
from support.s3_server import KEYS
from support.shell import Shell
from support.streams import Query
from support.waiting import until

SECRET = KEYS["AWS_SECRET_ACCESS_KEY"]


@pytest.mark.timeout(600)  # a minute and a half on two idle cores
def test_every_command_works_on_a_lake_on_s3(on_s3: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = tmp_path / "stderr"
    with Shell(on_s3, KEYS, errors) as activity:
        the_bucket_is_made(activity)
        the_pipeline_runs(on_s3, activity)
        it_is_maintained(on_s3, activity)
        it_is_corrected(on_s3, activity)
        a_checkpoint_is_written_anew(activity)
        the_pipeline_starts_again(on_s3, activity, monkeypatch)
        it_is_judged_and_shown(activity)
        nobody_is_told_the_secret(activity)
    assert SECRET not in errors.read_text(encoding="utf-8")
    what_was_refused_is_brought_back(on_s3)


def the_bucket_is_made(activity: Shell) -> None:
    code, printed = activity.run("lake", "check")
    assert (code, "there is no bucket activity" in printed) == (1, True)
    assert activity.report("lake", "create")["done"] == ["bucket", "versioning", "public access", "lifecycle"]
    assert activity.report("lake", "check")["ok"]


def the_pipeline_runs(settings: Settings, activity: Shell) -> None:
    send(
        settings,
        profile("C-1"),
        profile("C-2"),
        purchase("P-1", "C-1", "19.99"),
        purchase("P-2", "C-2", "1.00"),
        purchase("P-3", "C-2", "5.00", currency="USD"),
    )
    assert activity.run("stream", "--available-now") == (0, "")
    assert {key for key, value in view(settings) if value is not None} == {"C-1", "C-2"}


def it_is_maintained(settings: Settings, activity: Shell) -> None:
    done = activity.report("maintain")
    assert {table["table"]: table["error"] for table in done["tables"]} == {
        table.label: "" for table in topology.tables()
    }
    files, folder = filesystem.filesystem(f"{settings.lake}/{Table.PURCHASES.value}/_delta_log")
    assert "_last_checkpoint" in [entry.base_name for entry in files.get_file_info(fs.FileSelector(folder))]


def a_checkpoint_is_written_anew(activity: Shell) -> None:
    assert activity.run("recover", "gold", "--reason", "disk lost")[0] == 0
    assert activity.run("resync", "publish", "--reason", "to see it work")[0] == 0


def the_pipeline_starts_again(settings: Settings, activity: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    before = epochs.of(settings.lake, ProcessLock).newest()
    send(
        settings,
        profile("C-1", updated=2_000, address="2 New Street"),
        tombstone("C-2"),
        profile("C-3"),
        purchase("P-4", "C-1", "5.01"),
        purchase("P-1", "C-1", "1.00"),
        Record("purchase-events", b"P-5", b"not JSON"),
    )
    activity.begin("stream", "--available-now")
    a_second_driver_is_turned_away(settings, before, monkeypatch)
    assert activity.end() == (0, "")
    assert {row["customer_id"]: row["address"] for row in rows(settings, Table.ACTIVITY)} == {
        "C-1": "2 New Street",
        "C-3": "1 Old Street",
    }
    assert sorted(row["reason"] for row in rows(settings, Table.QUARANTINE)) == [
        Reason.CONFLICTING_DUPLICATE,
        Reason.CURRENCY_MISMATCH,
        Reason.NOT_JSON,
    ]


def a_second_driver_is_turned_away(settings: Settings, before: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    place = epochs.of(settings.lake, ProcessLock)
    until(lambda: place.newest()[Query.ACTIVITY] == before[Query.ACTIVITY] + 1, 120)
    with monkeypatch.context() as patched:
        patched.setattr(lease, "WAIT_SECONDS", 0.0)
        with pytest.raises(QueryAlreadyRunning, match=f"already runs on {settings.lake}"):
            Lease(ProcessLock, settings.lake, [Query.ACTIVITY])


def it_is_judged_and_shown(activity: Shell) -> None:
    activity.report("verify")
    status = activity.report("status")
    assert {query["state"] for query in status["queries"]} == {"stopped"}
    assert activity.report("show", "C-1")["gold"]["purchase_count"] == 2
    assert sum(group["records"] for group in activity.report("quarantine", "list")) == 3
    assert activity.run("quarantine", "show")[0] == 0
    assert activity.run("describe")[0] == 0
    activity.report("quality")
    pages = s3.client().get_object(Bucket="activity", Key="quality/index.html")
    assert (pages["ContentType"], b"<html" in pages["Body"].read().lower()) == ("text/html", True)


def it_is_corrected(settings: Settings, activity: Shell) -> None:
    """A purchase that bronze does not know is counted, and taken out; `verify` sees it when all is through."""
    count_wrongly(settings.lake, "P-1")
    done = activity.report("rebuild", "--apply")
    assert {table["table"]: (table["retracted"], table["added"]) for table in done["correction"]["tables"]} == {
        "bronze.quarantine": (0, 0),
        "silver.purchases": (1, 0),
        "silver.profile_changes": (0, 0),
        "gold.activity_changes": (1, 0),  # nothing of it was on the topic
    }


def nobody_is_told_the_secret(activity: Shell) -> None:
    code, told = activity.run("spark-settings")
    assert (code, "s3a://" in told or "fs.s3a.endpoint" in told) == (0, True)
    assert SECRET not in told
    assert KEYS["AWS_ACCESS_KEY_ID"] not in told


def what_was_refused_is_brought_back(settings: Settings) -> None:
    """As if the deployment's currency had been wrong."""
    mended = settings.model_copy(update={"currency": "USD"})
    done = replay.replay(mended, Selection(Reason.CURRENCY_MISMATCH), "another currency")
    assert done.accepted == {settings.purchase_topic: 1}
    assert "P-3" in [row["purchase_id"] for row in rows(settings, Table.PURCHASE_EVENTS)]
    assert replay.replay(mended, Selection(Reason.CURRENCY_MISMATCH), "once more").accepted == {}
