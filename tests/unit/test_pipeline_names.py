"""What is called after a pipeline: with the default name all as ever, with another nothing that two would share."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from customer_activity import settings as product
from customer_activity.errors import SettingsError, TerminalError
from customer_activity.kafka import marker, topics
from customer_activity.kafka.marker import Marker, of_view
from customer_activity.settings import PROJECT, Settings
from customer_activity.streams.publish.deployments import refuse_others
from support.command import call

DEFAULT, ORDERS = "customer-activity", "orders-eu"
DAGS_MODULE = PROJECT / "dags" / "activity_dags" / "pipelines.py"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no setting in the environment but those of a test."""
    for name in [name for name in os.environ if name.startswith(product.PREFIX)]:
        monkeypatch.delenv(name)


def names(settings: Settings) -> dict[str, str]:
    """Return everything that is called after a pipeline, folders as they are below the working directory."""
    folders: dict[str, Path] = {
        "lake": Path(settings.lake),
        "index": settings.index_dir,
        "run": settings.run_dir,
        "quality": Path(settings.quality_docs),
        "airflow": settings.airflow_dir,
    }
    return {
        "transactional id": marker.identity(settings),
        "DAGs": f"{settings.airflow_prefix}_…",
        **{role: topic for role, topic in settings.topics.items() if role in ("view", "progress")},
        **{name: str(folder.relative_to(Path.cwd())) for name, folder in folders.items()},
    }


def shared(settings: Settings) -> dict[str, str]:
    """Return what pipelines on one broker share."""
    return {
        **{role: topic for role, topic in settings.topics.items() if role in ("purchases", "profiles")},
        "broker": str(settings.broker_dir.relative_to(Path.cwd())),
    }


NAMES = {
    "transactional id": "customer-activity-publish-customer-activity-view",
    "DAGs": "customer_activity_…",
    "view": "customer-activity-view",
    "progress": "customer-activity-progress",
    "lake": "var/lake",
    "index": "var/lake/_index",
    "run": "var/run",
    "quality": "var/quality",
    "airflow": "var/airflow",
}
NAMES_OF_ORDERS = {
    "transactional id": "orders-eu-publish-orders-eu-view",
    "DAGs": "orders_eu_…",
    "view": "orders-eu-view",
    "progress": "orders-eu-progress",
    "lake": "var/orders-eu/lake",
    "index": "var/orders-eu/lake/_index",
    "run": "var/orders-eu/run",
    "quality": "var/orders-eu/quality",
    "airflow": "var/orders-eu/airflow",
}
OWN_VIEW = {"transactional id": "orders-eu-publish-rows", "view": "rows"}
OWN_FOLDERS = {"lake": "var/elsewhere", "index": "var/elsewhere/_index", "run": "var/here"}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        pytest.param({}, NAMES, id="the default one: as ever"),
        pytest.param({"pipeline": ORDERS}, NAMES_OF_ORDERS, id="another"),
        pytest.param(
            {"pipeline": ORDERS, "view_topic": "rows", "lake": "./var/elsewhere", "run_dir": "./var/here"},
            NAMES_OF_ORDERS | OWN_VIEW | OWN_FOLDERS,
            id="another, with settings of its own: they win",
        ),
    ],
)
def test_what_is_called_after_a_pipeline(
    chosen: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in chosen.items():
        monkeypatch.setenv(f"{product.PREFIX}{name.upper()}", value)
    assert names(product.load()) == expected


def test_two_pipelines_share_their_inputs_and_nothing_else() -> None:
    shop, orders = Settings(), Settings(pipeline=ORDERS)
    assert shared(shop) == shared(orders)
    assert not set(names(shop).values()) & set(names(orders).values())
    assert {topic.name for topic in topics.declared(orders).values()} == set(topics.used(orders).values())


def test_on_an_object_store_indexes_are_each_pipelines_own() -> None:
    lake = {"lake": "s3a://bucket/lake"}
    assert Settings(**lake).index_dir != Settings(pipeline=ORDERS, **lake).index_dir  # type: ignore[arg-type]


def test_a_child_process_has_the_same_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = Settings(pipeline=ORDERS, view_topic="rows")
    for name, value in orders.environment().items():
        monkeypatch.setenv(name, value)
    assert product.load() == orders


GOOD = ["a", "orders", "orders-eu", "orders-eu-2", "shop2", "a" * 63, DEFAULT]
BAD = {
    "": "empty",
    "Orders": "capitals: ids that differ by them alone are one to some databases and file systems",
    "orders_eu": "an underscore, which a dash becomes in Airflow",
    "orders.eu": "a dot, which Kafka takes for an underscore",
    "orders--eu": "two dashes",
    "-orders": "a dash before",
    "orders-": "a dash behind",
    "2orders": "a digit before",
    "orders eu": "a space",
    "orders/eu": "a folder",
    "órders": "no ASCII",
    "orders\n": "a line's end",
    "a" * 64: "too long",
}


@pytest.mark.parametrize("name", GOOD)
def test_a_name_that_all_can_use_is_taken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIVITY_PIPELINE", name)
    assert product.load().pipeline == name


@pytest.mark.parametrize("name", [pytest.param(name, id=why) for name, why in BAD.items()])
def test_a_bad_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIVITY_PIPELINE", name)
    with pytest.raises(SettingsError, match="ACTIVITY_PIPELINE: a pipeline's name is lower-case letters"):
        product.load()


@pytest.mark.parametrize("name", product.VAR_FOLDERS)
def test_a_name_is_no_folder_of_the_default_pipelines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACTIVITY_PIPELINE", name)
    with pytest.raises(SettingsError, match=f"the default pipeline has a folder of that name, ./var/{name}"):
        product.load()


def test_every_folder_of_the_default_pipelines_is_known() -> None:
    shop = Settings()
    places: list[str | Path] = [shop.lake, shop.quality_docs, shop.run_dir, shop.broker_dir, shop.airflow_dir]
    assert sorted(Path(place).name for place in places) == sorted(product.VAR_FOLDERS)


def test_a_bad_name_ends_a_command_with_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ACTIVITY_PIPELINE", "Orders")
    assert call("describe") == 2
    assert "ACTIVITY_PIPELINE: a pipeline's name" in capsys.readouterr().err


@pytest.fixture(scope="module")
def dags() -> ModuleType:
    """Load the DAGs' module by its path: it imports nothing of Airflow's."""
    spec = importlib.util.spec_from_file_location("dags_pipelines", DAGS_MODULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_dags_take_the_names_that_the_product_takes(dags: ModuleType) -> None:
    assert dags.DEFAULT == product.PIPELINE
    assert {name: dags.is_name(name) for name in [*GOOD, *BAD]} == dict.fromkeys(GOOD, True) | dict.fromkeys(BAD, False)


@pytest.mark.parametrize("name", GOOD)
def test_the_dags_ids_begin_as_the_product_says(dags: ModuleType, name: str) -> None:
    assert dags.Pipeline(name).prefix == Settings(pipeline=name).airflow_prefix


OURS, THEIRS = "our gold", "their gold"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        pytest.param({"orders-eu-publish-rows": THEIRS}, "topic rows is published to", id="this name"),
        pytest.param({"shop-publish-rows": THEIRS}, "topic rows is published to", id="another name, the same view"),
        pytest.param({"shop-publish-shop": THEIRS}, "another deployment, which publishes to shop", id="another view"),
        pytest.param({"noise": THEIRS}, "another deployment, which publishes to noise", id="no publisher's key"),
        pytest.param({"orders-eu-publish-rows": OURS, "shop-publish-rows": OURS}, None, id="its own"),
        pytest.param({"orders-eu-publishes-daily": "table of days"}, None, id="an optional stream's"),
    ],
)
def test_topics_of_another_deployment_are_refused_whatever_it_is_called(
    found: dict[str, str], message: str | None
) -> None:
    settings = Settings(pipeline=ORDERS, view_topic="rows")
    markers = {key: Marker(table_id, 1) for key, table_id in found.items()}
    if message is None:
        refuse_others(settings, of_view(settings), markers, [OURS])
        return
    with pytest.raises(TerminalError, match=message):
        refuse_others(settings, of_view(settings), markers, [OURS])
