"""The lease on S3, against moto's server in this process: real requests, and objects that can be made older."""

from __future__ import annotations

import threading
import time
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from moto.backends import get_backend
from types_boto3_s3 import S3Client

from customer_activity.engine import session
from customer_activity.errors import EXIT_TRY_AGAIN, LeaseLost, QueryAlreadyRunning, SettingsError, StorageUnavailable
from customer_activity.lease import epochs
from customer_activity.lease import lease as lease_module
from customer_activity.lease.epochs import ProcessLock
from customer_activity.lease.lease import AT_WORK_SECONDS, LEASE_SECONDS, RENEW_SECONDS, Lease, kept_out, refuse_running
from customer_activity.settings import Settings
from customer_activity.storage import s3
from customer_activity.storage.s3 import WRITE_SECONDS
from support.streams import Query

LAKE = "s3a://lake/prefix"
QUERY = Query.SILVER


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "WAIT_SECONDS", 0.0)
    monkeypatch.setattr(lease_module, "LOOK_SECONDS", 0.01)


@pytest.fixture(autouse=True)
def bucket(s3_server: str) -> S3Client:
    client = s3.client()
    client.create_bucket(Bucket="lake")
    return client


def take() -> Lease:
    return Lease(ProcessLock, LAKE, [QUERY])


def age(seconds: float) -> None:
    """Let the newest epoch's driver have been silent for so long."""
    (backend,) = (found["global"] for found in get_backend("s3").values())
    for key in backend.buckets["lake"].keys.values():
        key.last_modified -= timedelta(seconds=seconds)


def keys(client: S3Client) -> list[str]:
    return [entry["Key"] for entry in client.list_objects_v2(Bucket="lake").get("Contents", [])]


def test_each_driver_has_a_greater_epoch_and_older_ones_go(bucket: S3Client) -> None:
    for epoch in (1, 2, 3, 4):
        with take() as held:
            assert held.fencing_epoch(QUERY) == epoch
            assert held.frozen == []
    assert keys(bucket) == ["prefix/_locks/silver.4"]


@pytest.mark.parametrize("silent", [pytest.param(0, id="renewed now"), pytest.param(AT_WORK_SECONDS - 2, id="a while")])
def test_a_driver_at_work_is_left_alone(bucket: S3Client, silent: float) -> None:
    with take() as held:
        age(silent)
        with pytest.raises(QueryAlreadyRunning, match="silver already runs on s3a://lake/prefix"):
            take()
        with pytest.raises(QueryAlreadyRunning, match="silver runs"), kept_out(LAKE, [QUERY]):
            pytest.fail("it came to the work")
        assert held.fencing_epoch(QUERY) == 1


def test_a_silent_driver_is_taken_over_from_and_may_not_commit() -> None:
    with take() as former:
        age(LEASE_SECONDS + 2)
        with take() as successor:
            assert (successor.fencing_epoch(QUERY), successor.frozen) == (2, [QUERY])
            with pytest.raises(LeaseLost, match=r"silver: another driver has taken over .*epoch 1"):
                former.fencing_epoch(QUERY)
            with pytest.raises(LeaseLost):
                former.renew()
            successor.renew()


def test_a_driver_that_gave_nothing_back_is_waited_for_until_its_lease_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    former = take()
    age(AT_WORK_SECONDS + 2)
    looks: list[float] = []
    read = epochs.Objects.read

    def older_with_each_look(self: epochs.Objects, query: Query, epoch: int) -> tuple[str, float]:
        text, silent = read(self, query, epoch)
        looks.append(silent)
        age(5)
        return text, silent

    monkeypatch.setattr(epochs.Objects, "read", older_with_each_look)
    with take() as successor:
        assert successor.fencing_epoch(QUERY) == 2
    assert len(looks) > 1
    assert looks[-1] > LEASE_SECONDS >= looks[-2]
    former.__exit__(None, None, None)
    with take() as third:  # the former one, given back late, does not give back what is another's
        assert third.fencing_epoch(QUERY) == 3


def test_of_two_that_see_the_same_only_one_has_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs.Objects, "newest", lambda _: {})  # both have looked before either created it
    with take(), pytest.raises(QueryAlreadyRunning):
        take()


@pytest.fixture
def outrun(bucket: S3Client, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have another driver take over between the look for the newest epoch and reading it; return who has, in turn."""
    read, others = epochs.Objects.read, list[str]()

    def removed(self: epochs.Objects, query: Query, epoch: int) -> tuple[str, float]:
        monkeypatch.setattr(epochs.Objects, "read", read)
        bucket.put_object(Bucket="lake", Key=f"prefix/_locks/{query}.{epoch + 1}", Body=b"")
        bucket.delete_object(Bucket="lake", Key=f"prefix/_locks/{query}.{epoch}")
        others.append(f"{query}.{epoch + 1}")
        return read(self, query, epoch)

    with take():
        pass
    monkeypatch.setattr(epochs.Objects, "read", removed)
    return others


@pytest.mark.parametrize("work", [take, lambda: refuse_running(LAKE, QUERY)], ids=["a driver", "a command"])
def test_who_is_outrun_by_another_driver_is_refused(work: Callable[[], object], outrun: list[str]) -> None:
    with pytest.raises(QueryAlreadyRunning) as refused:
        work()
    assert refused.value.exit_code == EXIT_TRY_AGAIN
    assert outrun == ["silver.2"]
    assert lease_module.newest_epoch(LAKE, QUERY) == 2, "the other driver's"


def test_who_is_outrun_by_a_driver_that_ends_soon_goes_on(
    bucket: S3Client, outrun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_module, "WAIT_SECONDS", 60.0)

    def given_back(_: float) -> None:
        bucket.put_object(Bucket="lake", Key=f"prefix/_locks/{outrun[-1]}", Body=epochs.GIVEN_BACK.encode())

    monkeypatch.setattr(lease_module, "time", SimpleNamespace(monotonic=time.monotonic, sleep=given_back))
    with take() as held:
        assert held.fencing_epoch(QUERY) == 3


def test_the_lease_is_renewed_whatever_the_driver_does(bucket: S3Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.01)
    renewed = threading.Event()
    renew = epochs.Objects.renew

    def noted(self: epochs.Objects, query: Query, epoch: int, text: str) -> None:
        renew(self, query, epoch, text)
        renewed.set()

    with take():
        age(LEASE_SECONDS + 2)
        monkeypatch.setattr(epochs.Objects, "renew", noted)
        assert renewed.wait(10)
        with pytest.raises(QueryAlreadyRunning):
            take()


@pytest.mark.parametrize(
    ("silent", "may_commit"),
    [
        pytest.param(LEASE_SECONDS - WRITE_SECONDS - 1, True, id="in time"),
        pytest.param(LEASE_SECONDS - WRITE_SECONDS + 1, False, id="the lease may end before the commit"),
    ],
)
def test_a_commit_begins_only_when_it_ends_before_the_lease(
    silent: float, may_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with take() as held:
        monkeypatch.setattr(held, "renewed", held.renewed - silent)
        if may_commit:
            assert held.fencing_epoch(QUERY) == 1
            return
        with pytest.raises(StorageUnavailable, match=r"renewed \d+ s ago"):
            held.fencing_epoch(QUERY)
        held.renew()
        assert held.fencing_epoch(QUERY) == 1


def test_hadoop_repeats_a_commit_for_no_longer_than_a_lease_has_left(settings: Settings) -> None:
    options = session.s3_options(settings)
    limits_of = [name.removeprefix("spark.hadoop.") for name in options if ".retry." in name or ".connection." in name]
    names = [name for name in limits_of if not name.startswith("fs.s3a.bucket.")]
    for jar in session.jars(Settings(), "s3"):
        if jar.name.startswith("hadoop-aws-"):
            known = zipfile.ZipFile(jar).read("org/apache/hadoop/fs/s3a/Constants.class").decode("latin-1")
    assert [name for name in names if name not in known] == []  # Hadoop takes any name

    def seconds(name: str) -> int:
        return int(options[f"spark.hadoop.fs.s3a.{name}"].removesuffix("s"))

    tries = 1 + max(int(options[f"spark.hadoop.fs.s3a.retry.{name}"]) for name in ("limit", "throttle.limit"))
    least = 15  # seconds: Hadoop raises shorter limits to this (AWSClientConfig, minimumOperationDuration)
    limits = [max(least, seconds(f"connection.{name}.timeout")) for name in ("request", "part.upload")]
    assert tries * max(limits) == WRITE_SECONDS
    assert WRITE_SECONDS + RENEW_SECONDS < LEASE_SECONDS


def test_a_renewal_is_over_within_a_lease() -> None:
    backoff = 1.0  # before a second attempt, at most
    assert s3.ATTEMPTS * 2 * s3.ANSWER_SECONDS + backoff < LEASE_SECONDS


def test_one_failed_renewal_is_made_up_for_and_a_lease_that_is_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_module, "RENEW_SECONDS", 0.01)
    failed = threading.Event()

    def fail(self: epochs.Objects, query: Query, epoch: int, text: str) -> None:
        failed.set()
        raise StorageUnavailable("S3 does not answer")

    with take() as held:
        monkeypatch.setattr(epochs.Objects, "renew", fail)
        assert failed.wait(10)
        held.check()
        monkeypatch.setattr(lease_module, "LEASE_SECONDS", 0.0)
        held.keeper.join(10)
        with pytest.raises(StorageUnavailable):
            held.check()
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("lake", "variables", "error", "says"),
    [
        pytest.param("s3a://nowhere/x", {}, SettingsError, "activity lake create", id="no bucket"),
        pytest.param(
            LAKE, {s3.ENDPOINT: "http://127.0.0.1:9"}, StorageUnavailable, "ACTIVITY_S3_ENDPOINT", id="no answer"
        ),
    ],
)
def test_what_is_wrong_with_s3_is_told_in_a_sentence(
    lake: str, variables: dict[str, str], error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error, match=says):
        Lease(ProcessLock, lake, [QUERY])


def test_without_credentials_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it remembers who we were
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(SettingsError, match="AWS_ACCESS_KEY_ID"):
        Lease(ProcessLock, LAKE, [QUERY])
