"""The masked table: gold's rows without what identifies a person, under one key whatever happens."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from customer_activity import topology
from customer_activity.catalog import Table, table_path
from customer_activity.checkpoints import checkpoint
from customer_activity.errors import SettingsError
from customer_activity.inspection import describe, query_status, show
from customer_activity.lake import delta, history
from customer_activity.lake.failpoints import FailPoint
from customer_activity.maintenance import maintenance
from customer_activity.masking import key, values
from customer_activity.operations import current_rows, recomputing, recovery
from customer_activity.quality import pins
from customer_activity.quality.run import run
from customer_activity.rebuild.building import Choice
from customer_activity.rebuild.repair import apply_in
from customer_activity.rebuild.run import rebuild_in
from customer_activity.settings import Settings
from support import tables
from support.masks import SECRETS, key_file
from support.pipeline import Pipeline
from support.proof import proof
from support.quality import failing, rewrite
from support.quick_pipeline import QuickPipeline
from support.records import profile, purchase, tombstone

HOPS = ("bronze", "silver", "gold", "activity", "masked")
nightly = pytest.mark.nightly
ADDRESS = "38 New Street, 20095 Hamburg"
HASHED = ("name", "email", "address")


class Killed(Exception):
    """Raised at a fail point, as if the process had ended there."""


@pytest.fixture
def masking(spark: SparkSession, settings: Settings, tmp_path: Path) -> Iterator[Pipeline]:
    """Return the queries with that of the masked table switched on."""
    with_key = settings.model_copy(update={"mask_key_file": key_file(tmp_path)})
    topology.switch_on([], with_key.present)
    key.use(with_key.mask_key_file)
    delta.ensure_tables(settings.lake)
    yield QuickPipeline(spark, with_key)
    topology.switch_on([], [])
    key.use(None)


def follow(pipeline: Pipeline) -> None:
    for hop in HOPS:
        pipeline.hop(hop)


def live(pipeline: Pipeline) -> None:
    """Have customers come, change and go, and follow each batch."""
    pipeline.send(
        profile("C-1", name="Ada Lovelace", email="ada@example.org", address=ADDRESS),
        profile("C-2", name="Grace Hopper", email="grace@example.com"),
        profile("C-3", name="Mary Somerville", address=None),
        purchase("P-1", "C-1", "1.25"),
    )
    follow(pipeline)
    pipeline.send(
        profile("C-1", 2_000, name="ADA  Lovelace", email="ada@elsewhere.net", address=ADDRESS),
        tombstone("C-2"),
        purchase("P-2", "C-3", "3.00"),
    )
    follow(pipeline)


def assert_masked(pipeline: Pipeline, secret: str = SECRETS["one"]) -> None:
    """Hold the masked rows against gold's, and against what the verifier recomputes."""
    assert_hashed(pipeline, secret)
    check = proof(pipeline, Table.ACTIVITY_MASKED)
    assert check.ok, check


def assert_hashed(pipeline: Pipeline, secret: str) -> None:
    """Hold the masked rows against gold's, hashed with a key."""
    wanted = []
    for row in pipeline.rows(Table.ACTIVITY):
        hashes = {f"{name}_hash": values.hashed(secret.encode(), name, row.pop(name)) for name in HASHED}
        wanted.append(row | hashes)
    found = pipeline.rows(Table.ACTIVITY_MASKED)
    assert [{name: row[name] for name in wanted[0]} for row in found] == wanted


def fingerprint(secret: str) -> str:
    return hmac.digest(secret.encode(), key.FINGERPRINTED, "sha256").hex()[:16]


def everywhere(pipeline: Pipeline) -> str:
    """Return the bytes of all that the masked table and the lake's notes consist of, as text."""
    lake = Path(pipeline.settings.lake)
    folders = (lake / Table.ACTIVITY_MASKED.value, lake / "_history", lake / "_audit")
    files = (file for folder in folders for file in folder.rglob("*") if file.is_file())
    return "".join(file.read_bytes().decode("latin-1") for file in files)


def test_it_has_golds_rows_without_what_identifies_a_person(masking: Pipeline) -> None:
    live(masking)
    assert_masked(masking)
    rows = {row["customer_id"]: row for row in masking.rows(Table.ACTIVITY_MASKED)}
    assert set(rows) == {"C-1", "C-3"}
    assert (rows["C-1"]["email_domain"], rows["C-1"]["postcode"]) == ("elsewhere.net", "20095")
    assert (rows["C-3"]["address_hash"], rows["C-3"]["postcode"]) == (None, None)
    stored = everywhere(masking)
    assert all(text not in stored for text in ("Lovelace", "ada@", "New Street", "Mary Somerville", "Hopper", "grace@"))


def test_the_key_is_in_no_file_and_in_no_setting_of_spark(masking: Pipeline) -> None:
    live(masking)
    masking.settings = masking.settings.model_copy(update={"placement": "executors"})
    masking.restart()
    masking.send(profile("C-4", name="Joan"))
    follow(masking)
    assert_masked(masking)
    stored = everywhere(masking)
    configured = str(masking.spark.sparkContext.getConf().getAll())
    assert all(SECRETS["one"] not in where for where in (stored, configured, repr(masking.settings)))
    noted = history.latest_metadata(masking.settings.lake, Table.ACTIVITY_MASKED, "masked")
    assert noted["definition"]["key"] == key.current().fingerprint


@pytest.mark.parametrize(
    "place", [pytest.param(FailPoint.STAGED, marks=nightly), FailPoint.COMMITTED], ids=["staged", "committed"]
)
def test_a_driver_that_is_killed_leaves_the_right_rows(masking: Pipeline, place: FailPoint) -> None:
    def killed(point: FailPoint) -> None:
        if point is place:
            raise Killed

    live(masking)
    masking.send(tombstone("C-1"), profile("C-3", 9_000, name="Mary Ann"))
    for hop in HOPS[:-1]:
        masking.hop(hop)
    with pytest.raises(Killed):
        masking.hop("masked", killed)
    masking.repeat("masked")
    assert_masked(masking)


def with_another_key(pipeline: Pipeline, folder: Path) -> None:
    file = key_file(folder, "another")
    pipeline.settings = pipeline.settings.model_copy(update={"mask_key_file": file})
    key.use(file)


def hashes(pipeline: Pipeline) -> list[Any]:
    return [row["name_hash"] for row in pipeline.rows(Table.ACTIVITY_MASKED)]


def test_another_key_is_refused_and_all_hashes_are_recomputed_on_purpose(masking: Pipeline, tmp_path: Path) -> None:
    live(masking)
    before = hashes(masking)
    with_another_key(masking, tmp_path)
    masking.restart()
    with pytest.raises(SettingsError, match="was computed with the key with fingerprint") as refused:
        masking.hop("masked")
    assert "activity rebuild --stream masked" in (refused.value.remedy or "")
    assert SECRETS["another"] not in str(refused.value)
    assert hashes(masking) == before
    assert recomputing.recompute(masking.settings, "masked", "a new key") == ["masked"]
    assert not set(before) & set(hashes(masking))
    assert_masked(masking, SECRETS["another"])
    masking.send(profile("C-5", name="Katherine"))
    masking.restart()
    follow(masking)
    assert_masked(masking, SECRETS["another"])


@pytest.mark.parametrize(
    ("place", "step", "secret"),
    [
        pytest.param(current_rows, "replace", SECRETS["one"], id="before the rows are replaced"),
        pytest.param(checkpoint, "write", SECRETS["another"], id="before the checkpoint is written"),
    ],
)
def test_a_change_of_the_key_that_is_interrupted_leaves_hashes_of_one_key(
    masking: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, step: str, secret: str
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise Killed

    live(masking)
    with_another_key(masking, tmp_path)
    with monkeypatch.context() as ending:
        ending.setattr(place, step, killed)
        with pytest.raises(Killed):
            recomputing.recompute(masking.settings, "masked", "a new key")
    noted = history.latest_metadata(masking.settings.lake, Table.ACTIVITY_MASKED, "masked")["definition"]["key"]
    assert noted == fingerprint(secret)
    assert_hashed(masking, secret)
    recomputing.recompute(masking.settings, "masked", "a new key")
    assert_masked(masking, SECRETS["another"])


def test_the_verifier_finds_a_row_that_is_not_masked(masking: Pipeline) -> None:
    live(masking)
    (row,) = (row for row in masking.rows(Table.ACTIVITY_MASKED) if row["customer_id"] == "C-3")
    tables.append(masking.settings.lake, Table.ACTIVITY_MASKED, row | {"customer_id": "C-9", "name_hash": "Mary"})
    check = proof(masking, Table.ACTIVITY_MASKED)
    assert check.examples == ("C-9 should not be there",)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        pytest.param({"name_hash": "Mary Somerville"}, "nothing_is_unmasked", id="a name"),
        pytest.param({"email_domain": "ada@example.org"}, "nothing_is_unmasked", id="an e-mail address", marks=nightly),
        pytest.param({"purchase_count": 7}, "masked_rows_follow_their_changes", id="a figure", marks=nightly),
        pytest.param({"name_hash": None}, "masked_rows_follow_their_changes", id="no hash", marks=nightly),
    ],
)
def test_a_rule_finds_what_is_wrong(masking: Pipeline, damage: dict[str, Any], rule: str) -> None:
    live(masking)
    settings, label = masking.settings, Table.ACTIVITY_MASKED.label
    assert failing(run(settings, [label])) == set()
    rewrite(settings.lake, Table.ACTIVITY_MASKED, lambda rows: [rows[0] | damage, *rows[1:]])
    assert failing(run(settings, [label])) == {rule}


def test_it_follows_a_correction_and_is_recovered(masking: Pipeline) -> None:
    live(masking)
    (row,) = (row for row in masking.rows(Table.PURCHASES) if row["purchase_id"] == "P-2")
    tables.append(masking.settings.lake, Table.PURCHASES, row | {"purchase_id": "P-X"}, query="replay")
    follow(masking)
    assert not proof(masking, Table.ACTIVITY_MASKED).ok
    assert apply_in(masking.spark, masking.settings, read=lambda *_: {}).correction is not None
    assert_masked(masking)
    assert rebuild_in(masking.spark, masking.settings, Choice()).differences == 0
    recovery.recover(masking.settings.lake, "masked", "the disk was lost")
    assert_masked(masking)


def test_everybody_knows_it(masking: Pipeline) -> None:
    live(masking)
    settings = masking.settings
    assert "gold.customer_activity_masked" in json.dumps(describe.as_values(settings))
    assert "masked" in [found.query for found in query_status.states(settings)]
    assert "masked" in maintenance.needed_from(settings.lake, Table.ACTIVITY_CHANGES)
    assert ("masked", Table.ACTIVITY_MASKED, Table.ACTIVITY_CHANGES) in pins.seen_tables()
    assert Path(table_path(settings.lake, Table.ACTIVITY_MASKED)).exists()
    assert show.customer(settings.lake, "C-1").is_known
