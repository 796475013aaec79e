"""One Airflow and one broker with two pipelines: a driver each, and what is done to one is not done to the other."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from customer_activity.catalog import Table
from customer_activity.demo.broker import process
from customer_activity.demo.run import local_airflow, parts
from customer_activity.kafka import topics
from customer_activity.settings import Settings
from customer_activity.verification.verify import verify
from support import addresses
from support.airflow import Deployment, settings_in
from support.broker import rows, send
from support.records import profile, purchase

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]  # Airflow does it in its own time
KINDS = ("batch", "maintenance", "quality", "rebuild", "stream")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Deployment, Deployment]]:
    """Declare two pipelines to an Airflow, and switch their streams on."""
    folder = tmp_path_factory.mktemp("two")
    # Broker and Airflow are everybody's; the rest a pipeline has for itself, in a folder of its name.
    shared = {"broker_dir": folder / "kafka", "airflow_dir": folder / "airflow", "driver_memory": "1g"}
    address, port = addresses.free(), addresses.free_port()
    shop, orders = (
        settings_in(folder / name, address, port, pipeline=name, **shared)
        for name in ("customer-activity", "orders-eu")
    )
    declared = folder / "pipelines"
    declared.mkdir()
    for settings in (shop, orders):
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in settings.environment().items()]
        (declared / f"{settings.pipeline}.env").write_text("".join(lines), encoding="utf-8")
    deployed = Deployment(shop), Deployment(orders)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUSTOMER_ACTIVITY_PIPELINES", str(declared))
        process.start(shop)
        try:
            for settings in (shop, orders):
                topics.check(settings, create=True)
            deployed[0].start_airflow()
            for settings in (shop, orders):
                local_airflow.switch_on(settings)
            yield deployed
        finally:
            deployed[0].stop_airflow()
            for settings in (orders, shop):
                parts.stop(settings)


@pytest.fixture
def streaming(both: tuple[Deployment, Deployment]) -> tuple[Deployment, Deployment]:
    """Both tasks are deferred, and their drivers well, whatever the test before did."""
    for deployment in both:
        deployment.is_streaming(seconds=300)
    return both


def arrives(name: str, *deployments: Deployment) -> None:
    """See that a purchase of the shared input gets to each, and that everything is right there."""
    for deployment in deployments:
        # While the driver runs: what is merged behind the path may come some seconds later.
        report = verify(deployment.settings, settle_seconds=120)
        assert [check.name for check in report.checks if not check.ok] == []
        assert name in purchases(deployment)


def purchases(deployment: Deployment) -> set[str]:
    """Return the ids of what it has counted."""
    return {row["purchase_id"] for row in rows(deployment.settings, Table.PURCHASES)}


def sent(settings: Settings) -> str:
    name = f"P-{time.time_ns()}"
    send(settings, profile("C-1"), purchase(name, "C-1"))
    return name


def test_an_airflow_runs_two_pipelines_at_once(streaming: tuple[Deployment, Deployment]) -> None:
    shop, orders = streaming
    assert shop.get("/importErrors")["total_entries"] == 0
    found = {dag["dag_id"] for dag in shop.get("/dags", exclude_stale=True)["dags"]}
    assert found == {f"{prefix}_{kind}" for prefix in ("customer_activity", "orders_eu") for kind in KINDS}
    arrives(sent(shop.settings), shop, orders)
    drivers = [deployment.driver().pid for deployment in streaming]
    assert [deployment.drivers() for deployment in streaming] == [{pid} for pid in drivers]
    assert drivers[0] != drivers[1]
    pool = shop.get("/pools/default_pool")
    assert (pool["running_slots"], pool["queued_slots"], pool["deferred_slots"]) == (0, 0, 2)
    known = AdminClient({"bootstrap.servers": shop.settings.kafka_bootstrap_servers}).list_topics(timeout=30).topics
    assert {name for name in known if not name.startswith("__")} == {
        shop.settings.purchase_topic,
        shop.settings.profile_topic,
        *(f"{name}-{kind}" for name in ("customer-activity", "orders-eu") for kind in ("view", "progress")),
    }


def test_pausing_one_leaves_the_other_streaming(streaming: tuple[Deployment, Deployment]) -> None:
    shop, orders = streaming
    before = shop.driver()
    orders.pause(is_paused=True)
    try:
        orders.has_stopped()
        assert orders.drivers() == set()
        name = sent(shop.settings)
        arrives(name, shop)
        assert shop.is_streaming().pid == before.pid
        assert name not in purchases(orders)
    finally:
        orders.pause(is_paused=False)
    orders.is_streaming(seconds=300)
    arrives(name, shop, orders)
