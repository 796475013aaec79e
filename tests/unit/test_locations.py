"""Where a lake and the pages of quality may be: told apart in the settings, before anything is touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from customer_activity import settings
from customer_activity.errors import SettingsError
from customer_activity.settings import Settings
from support.command import call

REFUSED = [
    pytest.param("gs://bucket/lake", "gs://", id="Google"),
    pytest.param("abfss://c@a.dfs.core.windows.net/lake", "abfss://", id="Azure"),
    pytest.param("hdfs://namenode:8020/lake", "hdfs://", id="HDFS"),
    pytest.param("HDFS://namenode/lake", "hdfs://", id="in capitals"),
    pytest.param("dbfs:/mnt/lake", "dbfs://", id="one slash"),
    pytest.param("s3n://bucket/lake", "s3n://", id="a former S3"),
    pytest.param("s3:bucket/lake", "s3a://bucket", id="no slashes"),
    pytest.param("s3a:///lake", "no bucket", id="no bucket"),
    pytest.param("s3a://", "no bucket", id="nothing"),
    pytest.param("s3a://KEY:SECRETWORD@bucket/lake", "credentials", id="credentials"),
    pytest.param("s3a://bucket/lake?versionId=1", "only a bucket and a prefix", id="a query"),
    pytest.param("file://elsewhere/lake", "another machine", id="a file elsewhere"),
    pytest.param("", "at least 1 character", id="empty"),
    pytest.param("lake\x1b[2J\n", "control", id="control characters"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("variable", ["ACTIVITY_LAKE", "ACTIVITY_QUALITY_DOCS"])
@pytest.mark.parametrize(("location", "says"), REFUSED)
def test_a_place_that_is_not_supported_is_refused_by_name(
    variable: str, location: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, location)
    with pytest.raises(SettingsError, match=f"^{variable}: ") as raised:
        settings.load()
    assert says in raised.value.what
    assert "SECRETWORD" not in str(raised.value)


@pytest.mark.parametrize("arguments", [["stream", "--available-now"], ["status"], ["quality"], ["doctor"], ["verify"]])
def test_nothing_is_made_of_a_place_that_is_refused(
    arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ACTIVITY_LAKE", "gs://bucket/lake")
    assert call(*arguments) == 2
    assert "error: ACTIVITY_LAKE: gs:// is not supported" in capsys.readouterr().err
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("location", "lake", "is_local"),
    [
        pytest.param("var/lake", "{folder}/var/lake", True, id="a path"),
        pytest.param("/srv/my lake", "/srv/my lake", True, id="an absolute one"),
        pytest.param("a:b/lake", "{folder}/a:b/lake", True, id="a colon in a name"),
        pytest.param("file:///srv/my%20lake/", "/srv/my lake", True, id="a file's address"),
        pytest.param("file:/srv/lake", "/srv/lake", True, id="as Hadoop writes it"),
        pytest.param("file://localhost/srv/lake", "/srv/lake", True, id="of this machine"),
        pytest.param("s3a://bucket/lake/", "s3a://bucket/lake", False, id="S3"),
        pytest.param("s3://bucket/lake", "s3a://bucket/lake", False, id="S3 by its other name"),
        pytest.param("S3A://bucket", "s3a://bucket", False, id="in capitals"),
    ],
)
def test_places_that_are_supported(location: str, lake: str, is_local: bool, folder: Path) -> None:
    found = Settings(lake=location)
    assert found.lake == lake.format(folder=folder)
    assert (found.is_local_lake, found.is_on_s3) == (is_local, not is_local)


def test_pages_may_be_in_a_bucket_by_either_name() -> None:
    assert [Settings(quality_docs=f"{name}://b/q/").quality_docs for name in ("s3", "s3a")] == ["s3a://b/q"] * 2
