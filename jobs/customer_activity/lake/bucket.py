"""The bucket of a lake on S3: create it, and compare its settings with what they should be.

- versioned: what was overwritten or deleted by mistake can be brought back for a week;
- closed to the public, whatever somebody's policy or access list says;
- swept: versions that were replaced and uploads that were never completed go after a week. Delta deletes the files of
  older versions by itself, and without this a versioned bucket would keep each of them for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from customer_activity.errors import SettingsError
from customer_activity.settings import Settings
from customer_activity.storage import s3

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client
    from types_boto3_s3.type_defs import LifecycleRuleTypeDef, PublicAccessBlockConfigurationTypeDef

Answer = TypeVar("Answer")

KEPT_DAYS = 7
CLOSED: PublicAccessBlockConfigurationTypeDef = {
    "BlockPublicAcls": True,
    "IgnorePublicAcls": True,
    "BlockPublicPolicy": True,
    "RestrictPublicBuckets": True,
}
ABSENT = ("404", "NoSuchBucket", "NoSuchPublicAccessBlockConfiguration", "NoSuchLifecycleConfiguration")
# Services other than AWS's: there is nothing to block where nothing can be opened that way.
NOT_OFFERED = ("NotImplemented", "MethodNotAllowed", "MalformedXML")
NONE, UNKNOWN = "none", "not offered by this service"
TO_CREATE = "`activity lake create` sets it"


class Trait(NamedTuple):
    """One thing that a bucket should be, by its name: whether it is, and what is there."""

    trait: str
    ok: bool
    found: str


def check(settings: Settings) -> list[Trait]:
    """Compare the lake's bucket with how it should be; where there is none, nothing else is asked.

    Raises:
        SettingsError: the lake is no bucket's, or S3 refuses to tell.
        StorageUnavailable: S3 does not answer.
    """
    bucket, prefix = _place(settings)
    client = s3.client()
    with s3.explained(bucket):
        if not _exists(client, bucket):
            return [Trait("bucket", ok=False, found=f"there is no bucket {bucket}")]
        return [
            Trait("bucket", ok=True, found=bucket),
            _versioning(client, bucket),
            _closed(client, bucket, settings),
            _swept(client, bucket, prefix, settings),
        ]


def create(settings: Settings) -> list[str]:
    """Make the lake's bucket where there is none, and set what differs; return what was done.

    Raises:
        SettingsError: the lake is no bucket's, or S3 refuses.
        StorageUnavailable: S3 does not answer.
    """
    bucket, prefix = _place(settings)
    client = s3.client()
    done, sweep = [], _sweep(prefix)
    with s3.explained(bucket):
        if not _exists(client, bucket):
            _make(client, bucket)
            done.append("bucket")
        others = [rule for rule in _rules(client, bucket) if rule.get("ID") != sweep["ID"]]  # all are set at once
        set_up: dict[str, Callable[[], object]] = {
            "versioning": lambda: client.put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            ),
            "public access": lambda: client.put_public_access_block(
                Bucket=bucket, PublicAccessBlockConfiguration=CLOSED
            ),
            "lifecycle": lambda: client.put_bucket_lifecycle_configuration(
                Bucket=bucket,
                LifecycleConfiguration={"Rules": [*others, sweep]},
            ),
        }
        for trait in check(settings):
            if not trait.ok:
                set_up[trait.trait]()
                done.append(trait.trait)
    return done


def _place(settings: Settings) -> tuple[str, str]:
    if not settings.is_on_s3:
        raise SettingsError(
            f"the lake {settings.lake} is a folder: it has no bucket", remedy="set ACTIVITY_LAKE=s3a://bucket/prefix"
        )
    return s3.place(settings.lake)


def _exists(client: S3Client, bucket: str) -> bool:
    return _asked(lambda: client.head_bucket(Bucket=bucket)) is not None


def _make(client: S3Client, bucket: str) -> None:
    region = client.meta.region_name
    if region in (
        s3.REGION_ELSEWHERE,
        "aws-global",
    ):  # the one that S3 takes where none is named, and refuses to be told
        client.create_bucket(Bucket=bucket)
    else:
        client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": region})  # type: ignore[typeddict-item]


def _versioning(client: S3Client, bucket: str) -> Trait:
    status = client.get_bucket_versioning(Bucket=bucket).get("Status", "never enabled")
    return Trait("versioning", ok=status == "Enabled", found=status.lower())


def _closed(client: S3Client, bucket: str, settings: Settings) -> Trait:
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        answer = _asked(lambda: client.get_public_access_block(Bucket=bucket))
    except ClientError as error:
        if settings.s3_endpoint is None or error.response["Error"]["Code"] not in NOT_OFFERED:
            raise
        return Trait("public access", ok=True, found=UNKNOWN)
    found: Mapping[str, object] = {} if answer is None else answer["PublicAccessBlockConfiguration"]
    is_open = [name for name, value in CLOSED.items() if found.get(name) != value]
    return Trait("public access", ok=not is_open, found=f"not set: {', '.join(is_open)}" if is_open else "blocked")


def _swept(client: S3Client, bucket: str, prefix: str, settings: Settings) -> Trait:
    wanted = _sweep(prefix)
    rule = next((rule for rule in _rules(client, bucket) if rule.get("ID") == wanted["ID"]), None)
    if rule is None:
        return Trait("lifecycle", ok=False, found="no rule of this lake")
    # Some services drop what they do by themselves: MinIO ends uploads after a day.
    dropped = () if settings.s3_endpoint is None or "AbortIncompleteMultipartUpload" in rule else ("uploads",)
    parts = {
        "status": rule.get("Status") == "Enabled",
        "prefix": rule.get("Filter") == wanted["Filter"],
        "replaced versions": rule.get("NoncurrentVersionExpiration") == wanted["NoncurrentVersionExpiration"],
        "uploads": rule.get("AbortIncompleteMultipartUpload") == wanted["AbortIncompleteMultipartUpload"],
    }
    wrong = [name for name, is_right in parts.items() if not is_right and name not in dropped]
    found = f"other {', '.join(wrong)}" if wrong else f"sweeps after {KEPT_DAYS} days"
    return Trait("lifecycle", ok=not wrong, found=found)


def _sweep(prefix: str) -> LifecycleRuleTypeDef:
    return {
        "ID": f"customer-activity {prefix}".strip(),
        "Status": "Enabled",
        "Filter": {"Prefix": f"{prefix}/" if prefix else ""},
        "NoncurrentVersionExpiration": {"NoncurrentDays": KEPT_DAYS},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": KEPT_DAYS},
        "Expiration": {"ExpiredObjectDeleteMarker": True},  # what is left of a file that was deleted and swept
    }


def _rules(client: S3Client, bucket: str) -> list[LifecycleRuleTypeDef]:
    answer = _asked(lambda: client.get_bucket_lifecycle_configuration(Bucket=bucket))
    return [] if answer is None else [*answer.get("Rules", [])]  # type: ignore[list-item]


def _asked(ask: Callable[[], Answer]) -> Answer | None:
    """Return an answer; None where S3 says that there is no such thing."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        return ask()
    except ClientError as error:
        if error.response["Error"]["Code"] in ABSENT:
            return None
        raise
