"""What a session is started with, by where its executors are."""

from __future__ import annotations

from pathlib import Path

import pytest

from customer_activity import session
from customer_activity.settings import Settings

ADDRESS = ("spark.driver.host", "spark.driver.bindAddress")


@pytest.fixture
def set_up(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Return settings of a deployment that has one jar; what a start puts into the environment is taken out again."""
    for variable in ("PYSPARK_PYTHON", "SPARK_HOME"):
        monkeypatch.setenv(variable, "as it was")
    (tmp_path / "jars" / "spark").mkdir(parents=True)
    (tmp_path / "jars" / "spark" / "delta.jar").touch()
    return settings.model_copy(update={"jars_dir": tmp_path / "jars"})


@pytest.mark.parametrize(
    ("master", "address", "sends_jars"),
    [
        pytest.param("local[*]", "127.0.0.1", False, id="its own threads: nobody else"),
        pytest.param("local[2]", "127.0.0.1", False, id="so many of its own threads"),
        pytest.param("spark://spark-master:7077", None, True, id="workers elsewhere: by its machine's name"),
        pytest.param("yarn", None, True, id="a cluster's machines"),
    ],
)
def test_executors_elsewhere_can_reach_the_driver_and_get_its_jars(
    master: str, address: str | None, sends_jars: bool, set_up: Settings
) -> None:
    options = session._options(set_up.model_copy(update={"spark_master": master}))
    assert [options.get(name) for name in ADDRESS] == [address, address]
    assert options["spark.driver.extraClassPath"].endswith("delta.jar")
    assert options.get("spark.jars", "").endswith("delta.jar") == sends_jars
