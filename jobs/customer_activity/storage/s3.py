"""S3 for every library that talks to it: where it is and how a bucket is addressed, never any credentials.

Four libraries do. Hadoop reads Spark's settings (`session.py`). delta-rs and boto3 look into the environment of this
process, and so do the Python workers that Spark starts; `filesystem` tells Arrow what stands there. Every one finds its
credentials by itself: in the environment, or as the role of the machine. Profiles are no such place, because delta-rs
(1.6) knows none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pyarrow import fs

from customer_activity.errors import SettingsError, StorageUnavailable

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

ENDPOINT = "AWS_ENDPOINT_URL_S3"
VIRTUAL_HOSTS = "AWS_VIRTUAL_HOSTED_STYLE_REQUEST"
REGION_ELSEWHERE = "us-east-1"  # what a service other than AWS's expects to be signed for, when it cares

ANSWER_SECONDS = 5.0
ATTEMPTS = 2  # of a request that looks at a lease or renews it: both, connecting included, are over within a lease

# A commit is an object that Hadoop writes. What is written late, after another driver has taken over, would overwrite
# that one's; so all attempts at it together take no longer than this. Hadoop's least for a time limit.
WRITE_SECONDS = 15

# What S3 says when somebody has to change something first; anything else may pass.
REFUSED = {
    "NoSuchBucket": "`activity lake create` makes the bucket; or correct ACTIVITY_LAKE",
    "PermanentRedirect": "the bucket is in another region: set ACTIVITY_S3_REGION",
    "AuthorizationHeaderMalformed": "the bucket is in another region: set ACTIVITY_S3_REGION",
    "AccessDenied": "let these credentials list, read, write and delete in the bucket",
    "403": "let these credentials list, read, write and delete in the bucket",
    "InvalidAccessKeyId": "correct the credentials: AWS_ACCESS_KEY_ID, or the machine's role",
    "SignatureDoesNotMatch": "correct the credentials: AWS_SECRET_ACCESS_KEY, or the machine's role",
    "ExpiredToken": "renew the credentials",
}


def is_on(location: str) -> bool:
    """Whether a location is on S3; `s3a` is Hadoop's name for it."""
    return location.startswith(("s3://", "s3a://"))


def place(location: str) -> tuple[str, str]:
    """Return a location's bucket, and the key or prefix within it."""
    parts = urlsplit(location)
    return parts.netloc, parts.path.strip("/")


def environment(endpoint: str | None, region: str | None, bucket: str, *, path_style: bool) -> dict[str, str]:
    """Return the variables that tell delta-rs and boto3 where S3 is.

    delta-rs has a variable of its own: it would take the one that boto3 reads for other services, too, and it puts no
    bucket into the name of a host that it is told.
    """
    variables = {VIRTUAL_HOSTS: str(not path_style).lower()}
    if endpoint is not None:
        parts = urlsplit(endpoint)
        variables[ENDPOINT] = endpoint
        variables["AWS_ENDPOINT"] = endpoint if path_style else f"{parts.scheme}://{bucket}.{parts.netloc}"
        variables["AWS_ALLOW_HTTP"] = str(parts.scheme == "http").lower()
        region = region or REGION_ELSEWHERE
    if region is not None:
        variables["AWS_REGION"] = variables["AWS_DEFAULT_REGION"] = region
    return variables


def connect(variables: Mapping[str, str]) -> None:
    """Have this process, and those that it starts, find S3 there."""
    os.environ.update(variables)


def filesystem() -> fs.S3FileSystem:
    """Return S3 as a file system of Arrow's: paths begin with the bucket."""
    endpoint, region = os.environ.get(ENDPOINT), os.environ.get("AWS_REGION")
    is_virtual = endpoint is not None and os.environ.get(VIRTUAL_HOSTS) == "true"
    return fs.S3FileSystem(
        endpoint_override=endpoint,
        region=region,
        force_virtual_addressing=is_virtual,
        connect_timeout=ANSWER_SECONDS,
    )


def client() -> S3Client:
    """Return S3 for what the others lack: buckets, and objects that only one writer can create."""
    import boto3  # noqa: PLC0415 - a quarter of a second, which a lake on a disk need not wait for
    from botocore.config import Config  # noqa: PLC0415

    is_virtual = os.environ.get(VIRTUAL_HOSTS, "true") == "true"
    return boto3.client(
        "s3",
        config=Config(
            connect_timeout=ANSWER_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": "virtual" if is_virtual else "path"},
        ),
    )


def require(location: str) -> None:
    """Make sure that a location's bucket can be listed.

    Raises:
        SettingsError: there is no such bucket, or we may not.
        StorageUnavailable: S3 does not answer.
    """
    bucket, prefix = place(location)
    with explained(bucket):
        client().list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)


def created(client: S3Client, bucket: str, key: str, data: bytes) -> bool:
    """Write an object that is not there; say whether it was this call that did."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
    except ClientError as error:
        if error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict"):
            return False
        raise
    return True


@contextmanager
def explained(bucket: str) -> Iterator[None]:
    """Turn what boto3 raises into errors of ours.

    Raises:
        SettingsError: S3 refuses for good: there is no such bucket, or who we are may not do that.
        StorageUnavailable: it may do it later.
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415

    try:
        yield
    except NoCredentialsError:
        raise SettingsError(
            f"no credentials for S3 (bucket {bucket})",
            remedy="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role",
        ) from None
    except ClientError as error:
        code = error.response["Error"]["Code"]
        what = f"S3 refuses {error.operation_name} in bucket {bucket}: {code}"
        if code in REFUSED:
            raise SettingsError(what, remedy=REFUSED[code]) from None
        raise StorageUnavailable(what, remedy="try again later") from error
    except BotoCoreError as error:
        raise StorageUnavailable(
            f"S3 does not answer (bucket {bucket}): {type(error).__name__}",
            remedy="see whether the service is up and ACTIVITY_S3_ENDPOINT is right, then try again",
        ) from error
