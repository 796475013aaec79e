"""What the lake's account may do in Compose's object store: what a driver does in its bucket, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from deltalake import DeltaTable, write_deltalake

from support import addresses, s3_server
from support.images import PROJECT

POLICY = (PROJECT / "infra" / "compose" / "lake-policy.json").read_text(encoding="utf-8")
BUCKET, OTHER = "customer-activity", "other"
REGION = "us-east-1"
SET_UP_CALLS = 7


@pytest.fixture(scope="module")
def account() -> Iterator[dict[str, str]]:
    """Return who the lake's account is, in a store with two buckets that asks everybody."""
    with s3_server.serve(addresses.free(), calls_of_anybody=SET_UP_CALLS) as url:
        root = {"endpoint_url": url, "aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": REGION}
        users: Any = boto3.client("iam", **root)  # type: ignore[call-overload]
        store: Any = boto3.client("s3", **root)  # type: ignore[call-overload]
        users.create_user(UserName="lake")
        policy = users.create_policy(PolicyName="lake", PolicyDocument=POLICY)["Policy"]["Arn"]
        users.attach_user_policy(UserName="lake", PolicyArn=policy)
        key = users.create_access_key(UserName="lake")["AccessKey"]
        for bucket in (BUCKET, OTHER):
            store.create_bucket(Bucket=bucket)
        store.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
        yield {
            **root,
            "aws_access_key_id": key["AccessKeyId"],
            "aws_secret_access_key": key["SecretAccessKey"],
        }


def test_it_writes_and_reads_tables_and_looks_how_the_bucket_is_set_up(account: dict[str, str]) -> None:
    options = {**account, "aws_region": REGION, "aws_endpoint": account["endpoint_url"], "aws_allow_http": "true"}
    options["aws_virtual_hosted_style_request"] = "false"
    for name in ("endpoint_url", "region_name"):
        options.pop(name)
    place = f"s3://{BUCKET}/lake/table"
    for _ in range(2):
        write_deltalake(place, pa.table({"a": [1]}), mode="append", storage_options=options)
    assert DeltaTable(place, storage_options=options).version() == 1
    store: Any = boto3.client("s3", **account)  # type: ignore[call-overload]
    assert store.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
    upload = store.create_multipart_upload(Bucket=BUCKET, Key="lake/large")["UploadId"]
    store.abort_multipart_upload(Bucket=BUCKET, Key="lake/large", UploadId=upload)
    store.delete_object(Bucket=BUCKET, Key="lake/table/_delta_log/00000000000000000000.json")


@pytest.mark.parametrize(
    "deed",
    [
        pytest.param(lambda s: s.put_object(Bucket=OTHER, Key="x", Body=b""), id="write into another bucket"),
        pytest.param(lambda s: s.get_object(Bucket=OTHER, Key="x"), id="read from another bucket"),
        pytest.param(lambda s: s.list_objects_v2(Bucket=OTHER), id="list another bucket"),
        pytest.param(lambda s: s.list_buckets(), id="list the buckets"),
        pytest.param(lambda s: s.create_bucket(Bucket="third"), id="make a bucket"),
        pytest.param(lambda s: s.delete_bucket(Bucket=BUCKET), id="remove its bucket"),
        pytest.param(
            lambda s: s.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"}),
            id="have replaced objects forgotten",
        ),
        pytest.param(
            lambda s: s.delete_object(Bucket=BUCKET, Key="lake/x", VersionId="null"), id="remove what was replaced"
        ),
        pytest.param(lambda s: s.delete_bucket_lifecycle(Bucket=BUCKET), id="change how the bucket is swept"),
    ],
)
def test_it_may_not(deed: Callable[[Any], Any], account: dict[str, str]) -> None:
    store: Any = boto3.client("s3", **account)  # type: ignore[call-overload]
    with pytest.raises(ClientError, match="AccessDenied"):
        deed(store)
