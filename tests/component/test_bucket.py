"""The bucket of a lake on S3: made as it should be, and what differs is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from moto.s3.responses import S3Response
from types_boto3_s3 import S3Client

from customer_activity.demo.run import live
from customer_activity.errors import SettingsError
from customer_activity.inspection import doctor, status
from customer_activity.lake import bucket
from customer_activity.settings import Settings
from customer_activity.storage import s3
from support.command import call

OTHERS = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 30}}


@pytest.fixture
def settings(s3_server: str) -> Settings:
    return Settings(lake="s3a://lake/prefix", s3_endpoint=s3_server, s3_path_style=True)


@pytest.fixture
def client(settings: Settings) -> S3Client:
    return s3.client()


@pytest.fixture
def command(settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)

    def run(*arguments: str) -> tuple[int, str]:
        return call("lake", *arguments), capsys.readouterr().out

    return run


def wrong(settings: Settings) -> dict[str, str]:
    return {trait.trait: trait.found for trait in bucket.check(settings) if not trait.ok}


def test_a_bucket_is_made_once_and_is_as_it_should_be(settings: Settings, client: S3Client) -> None:
    assert wrong(settings) == {"bucket": "there is no bucket lake"}
    assert bucket.create(settings) == ["bucket", "versioning", "public access", "lifecycle"]
    assert wrong(settings) == {}
    assert bucket.create(settings) == []
    assert client.get_bucket_versioning(Bucket="lake")["Status"] == "Enabled"
    assert client.get_public_access_block(Bucket="lake")["PublicAccessBlockConfiguration"] == bucket.CLOSED
    (rule,) = client.get_bucket_lifecycle_configuration(Bucket="lake")["Rules"]
    assert rule["Filter"] == {"Prefix": "prefix/"}
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 7}
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}


def suspended(client: S3Client) -> None:
    client.put_bucket_versioning(Bucket="lake", VersioningConfiguration={"Status": "Suspended"})


def opened(client: S3Client) -> None:
    client.put_public_access_block(
        Bucket="lake", PublicAccessBlockConfiguration={**bucket.CLOSED, "BlockPublicPolicy": False}
    )


def block_removed(client: S3Client) -> None:
    client.delete_public_access_block(Bucket="lake")


def unswept(client: S3Client) -> None:
    client.put_bucket_lifecycle_configuration(Bucket="lake", LifecycleConfiguration={"Rules": [OTHERS]})  # type: ignore[list-item]


def swept_late(client: S3Client) -> None:
    rules: list[Any] = client.get_bucket_lifecycle_configuration(Bucket="lake")["Rules"]
    rules[0]["NoncurrentVersionExpiration"]["NoncurrentDays"] = 365
    client.put_bucket_lifecycle_configuration(Bucket="lake", LifecycleConfiguration={"Rules": rules})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        pytest.param(suspended, {"versioning": "suspended"}, id="versioning"),
        pytest.param(opened, {"public access": "not set: BlockPublicPolicy"}, id="a policy may open it"),
        pytest.param(
            block_removed,
            {
                "public access": "not set: BlockPublicAcls, IgnorePublicAcls, BlockPublicPolicy, RestrictPublicBuckets",
            },
            id="nothing is blocked",
        ),
        pytest.param(unswept, {"lifecycle": "no rule of this lake"}, id="never swept"),
        pytest.param(swept_late, {"lifecycle": "other replaced versions"}, id="swept late"),
    ],
)
def test_what_somebody_changed_is_named_and_set_right_again(
    settings: Settings, client: S3Client, change: Callable[[S3Client], None], named: dict[str, str]
) -> None:
    bucket.create(settings)
    change(client)
    assert wrong(settings) == named
    assert bucket.create(settings) == [*named]
    assert wrong(settings) == {}


def test_rules_of_others_stay(settings: Settings, client: S3Client) -> None:
    client.create_bucket(Bucket="lake")
    unswept(client)
    bucket.create(settings)
    rules = client.get_bucket_lifecycle_configuration(Bucket="lake")["Rules"]
    assert [rule.get("ID") for rule in rules] == ["theirs", "customer-activity prefix"]


def test_two_lakes_of_a_bucket_are_swept_each(settings: Settings) -> None:
    other = settings.model_copy(update={"lake": "s3a://lake/other"})
    bucket.create(settings)
    assert wrong(other) == {"lifecycle": "no rule of this lake"}
    assert bucket.create(other) == ["lifecycle"]
    assert (wrong(settings), wrong(other)) == ({}, {})


def test_a_service_that_cannot_be_opened_to_the_public_need_not_be_closed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = "<Error><Code>NotImplemented</Code><Message>not here</Message></Error>"
    monkeypatch.setattr(S3Response, "get_public_access_block", lambda *_: (501, {}, refusal))
    assert bucket.create(settings) == ["bucket", "versioning", "lifecycle"]
    assert bucket.UNKNOWN in [trait.found for trait in bucket.check(settings)]


def test_a_folder_has_no_bucket() -> None:
    with pytest.raises(SettingsError, match="ACTIVITY_LAKE=s3a://"):
        bucket.check(Settings(lake="/somewhere"))


def test_the_commands_report_and_end_as_checks_do(command: Callable[..., tuple[int, str]]) -> None:
    code, out = command("check")
    assert (code, "there is no bucket lake" in out, "activity lake create" in out) == (1, True, True)
    code, out = command("create", "--json")
    assert (code, json.loads(out)["done"]) == (0, ["bucket", "versioning", "public access", "lifecycle"])
    code, out = command("check", "--json")
    assert (code, json.loads(out)["ok"]) == (0, True)
    assert command("create")[1] == "everything is as it should be\n"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        pytest.param({"ACTIVITY_LAKE": "s3a://nowhere/lake"}, (2, "NoSuchBucket"), id="another bucket"),
        pytest.param({"ACTIVITY_S3_ENDPOINT": "http://127.0.0.1:9"}, (75, "does not answer"), id="nobody answers"),
    ],
)
@pytest.mark.parametrize("arguments", [["show", "C-1"], ["status"], ["run"]], ids=lambda arguments: str(arguments[0]))
def test_what_fails_on_s3_is_told_without_a_trace_and_before_anything_is_started(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changed: dict[str, str],
    told: tuple[int, str],
    arguments: list[str],
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(live, "run", lambda *_, **__: begun.append("a run"))
    monkeypatch.setattr(status, "report", lambda _: begun.append("a look at every table"))
    for name, chosen in {**settings.environment(), **changed}.items():
        monkeypatch.setenv(name, chosen)
    code, says = told
    assert call(*arguments) == code
    assert says in capsys.readouterr().err
    assert not begun


def test_the_doctor_looks_at_the_bucket(settings: Settings) -> None:
    def found() -> doctor.Finding:
        return next(finding for finding in doctor.diagnose(settings) if finding.check == "lake")

    assert (found().ok, found().remedy) == (False, bucket.TO_CREATE)
    bucket.create(settings)
    assert found().ok
    assert "sweeps after 7 days" in found().found
