"""Where S3 is, as each of the libraries is told; and that nobody is told who we are."""

from __future__ import annotations

import re

import pytest
from pyarrow import fs

from customer_activity import settings
from customer_activity.engine import session
from customer_activity.errors import SettingsError
from customer_activity.settings import Settings
from customer_activity.storage import filesystem, s3

MINIO, STORE = "http://minio:9000", "https://store.example"


def hosted(in_hosts: str, region: str | None = None) -> dict[str, str]:
    """Return what says whether buckets are named in hosts, and the region to everybody who reads one."""
    regions = {} if region is None else {"AWS_REGION": region, "AWS_DEFAULT_REGION": region}
    return {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": in_hosts, **regions}


@pytest.mark.parametrize(
    ("chosen", "variables", "options"),
    [
        pytest.param(
            {}, hosted("true"), {"path.style.access": "false", "endpoint.region": ""}, id="AWS, region as AWS describes"
        ),
        pytest.param(
            {"s3_region": "eu-west-1"},
            hosted("true", "eu-west-1"),
            {"path.style.access": "false", "endpoint.region": "eu-west-1"},
            id="AWS, another region",
        ),
        pytest.param(
            {"s3_endpoint": MINIO, "s3_path_style": True},
            {
                **hosted("false", "us-east-1"),
                "AWS_ENDPOINT_URL_S3": MINIO,
                "AWS_ENDPOINT": MINIO,
                "AWS_ALLOW_HTTP": "true",
            },
            {"path.style.access": "true", "endpoint.region": "us-east-1", "endpoint": MINIO},
            id="MinIO",
        ),
        pytest.param(
            {"s3_endpoint": STORE, "s3_region": "de-1"},
            {
                **hosted("true", "de-1"),
                "AWS_ENDPOINT_URL_S3": STORE,
                "AWS_ENDPOINT": "https://lake.store.example",
                "AWS_ALLOW_HTTP": "false",
            },
            {"path.style.access": "false", "endpoint.region": "de-1", "endpoint": STORE},
            id="another service that names buckets in hosts",
        ),
    ],
)
def test_every_library_is_told_where_s3_is(
    chosen: dict[str, object], variables: dict[str, str], options: dict[str, str]
) -> None:
    aws: dict[str, object] = {"s3_endpoint": None, "s3_region": None, "s3_path_style": False}
    deployed = Settings(lake="s3a://lake/prefix", quality_docs="/docs", **aws | chosen)  # type: ignore[arg-type]
    assert deployed.s3_environment() == variables
    told = session.s3_options(deployed)
    assert {name: told[f"spark.hadoop.fs.s3a.{name}"] for name in options} == options
    assert {name: told[f"spark.executorEnv.{name}"] for name in variables} == variables


@pytest.mark.parametrize(
    ("places", "is_told"),
    [
        pytest.param({"lake": "/lake", "quality_docs": "/docs"}, False, id="nothing is on S3"),
        pytest.param({"lake": "/lake", "quality_docs": "s3://docs"}, True, id="only the pages of quality are"),
        pytest.param({"lake": "s3a://lake", "quality_docs": "/docs"}, True, id="the lake is"),
    ],
)
def test_the_environment_is_left_alone_where_nothing_of_ours_is_on_s3(places: dict[str, str], is_told: bool) -> None:
    assert bool(Settings(**places).s3_environment()) is is_told  # type: ignore[arg-type]


def test_no_setting_of_spark_has_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    options = session.s3_options(Settings(lake="s3a://lake", s3_endpoint=MINIO))
    assert "DefaultCredentialsProvider" in options["spark.hadoop.fs.s3a.aws.credentials.provider"]
    assert not [name for name, value in options.items() if "AKIAKEY" in value or "hunter2" in value]


@pytest.mark.parametrize(
    ("lake", "master", "folders"),
    [
        pytest.param("/lake", "local[*]", {}, id="a folder"),
        pytest.param(
            "s3a://lake",
            "local[2]",
            {"spark.jars": {"s3"}},
            id="on S3: the class path stays as the class archive has it",
        ),
        pytest.param("s3a://lake", "yarn", {"spark.jars": {"spark", "own", "s3"}}, id="on S3, executors elsewhere"),
    ],
)
def test_only_a_lake_on_s3_has_its_jars(lake: str, master: str, folders: dict[str, set[str]]) -> None:
    own = {"spark.driver.extraClassPath": {"spark", "own"}}
    found = session.classpath(Settings(lake=lake, spark_master=master))
    sent = {name: {jar.split("/")[-2] for jar in re.split("[:,]", jars)} for name, jars in found.items()}
    assert sent == own | folders


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        pytest.param("ACTIVITY_S3_ENDPOINT", "minio:9000", id="no scheme"),
        pytest.param("ACTIVITY_S3_ENDPOINT", "http://minio:9000/lake", id="the bucket is not part of it"),
        pytest.param("ACTIVITY_S3_REGION", "EU West", id="no region's name"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=variable):
        settings.load()


@pytest.mark.parametrize(
    ("location", "path"),
    [
        pytest.param("s3a://lake/prefix/gold", "lake/prefix/gold", id="as Hadoop calls it"),
        pytest.param("s3://lake/prefix/", "lake/prefix", id="as others call it"),
        pytest.param("s3://lake", "lake", id="a whole bucket"),
    ],
)
def test_a_location_on_s3_is_a_path_that_begins_with_its_bucket(
    location: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "us-east-1")  # nothing has to be asked
    files, found = filesystem.filesystem(location)
    assert (type(files), found) == (fs.S3FileSystem, path)


def test_a_small_file_is_written_whole_and_read_back(s3_server: str) -> None:
    s3.client().create_bucket(Bucket="lake")
    assert filesystem.read_whole("s3a://lake/_gate/publish.json") is None
    filesystem.write_whole("s3a://lake/_gate/publish.json", b"{}")
    assert filesystem.read_whole("s3a://lake/_gate/publish.json") == b"{}"
