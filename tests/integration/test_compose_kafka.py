"""Compose's Kafka, with its own variables and the secrets that its script makes, on the embedded broker's jars."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from customer_activity.errors import BrokerUnavailable, KafkaRefused
from customer_activity.kafka import acls, clients, topics
from customer_activity.settings import Settings
from support import secured_broker
from support.images import PROJECT

VARIABLES = yaml.safe_load((PROJECT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["kafka"][
    "environment"
]
OF_THE_IMAGE = ("KAFKA_HEAP_OPTS", "KAFKA_OPTS")  # for its JVM, and no properties


def properties(address: str, folder: Path) -> Path:
    """Write the properties that the image makes of the variables, with places of the test's own."""
    host, _, port = address.rpartition(":")
    told = {
        n.removeprefix("KAFKA_").replace("_", ".").lower(): v for n, v in VARIABLES.items() if n not in OF_THE_IMAGE
    }
    places = {"kafka:9092": address, "://:9092": f"://{address}", "localhost:9093": f"{host}:{int(port) + 1}"}
    for name in ("listeners", "advertised.listeners", "controller.quorum.voters"):
        for there, here in places.items():
            told[name] = told[name].replace(there, here)
    told["log.dirs"] = str(folder / "data")
    path = folder / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in told.items()), encoding="utf-8")
    return path


def test_who_has_a_secret_is_let_in_to_what_is_its_own(free_address: str, tmp_path: Path) -> None:
    shutil.copy(PROJECT / "infra" / "compose" / "secrets.sh", tmp_path)
    subprocess.run([tmp_path / "secrets.sh"], check=True, capture_output=True)
    secrets = tmp_path / "secrets"
    nameless = Settings(kafka_bootstrap_servers=free_address, kafka_config=None)
    admin, driver, producers = (
        nameless.model_copy(update={"kafka_config": secrets / name})
        for name in ("kafka_admin", "kafka_client", "kafka_producers")
    )
    option = VARIABLES["KAFKA_OPTS"].replace("/run/secrets", str(secrets))
    with secured_broker.running(admin, properties(free_address, tmp_path), options=(option,)):
        topics.check(admin, create=True)  # as infra/compose/prepare-kafka.sh does
        acls.grant(admin, acls.declared(admin, "pipeline", "activity"), "activity")
        acls.grant(admin, acls.declared(admin, "traffic", "producers"), "producers")
        assert topics.check(driver, create=False) == []
        producer = clients.producer(producers)
        producer.produce(producers.purchase_topic, b"{}", b"key")
        assert producer.flush(30) == 0
        with pytest.raises(KafkaRefused):
            clients.partitions(producers, producers.view_topic)
        with pytest.raises(KafkaRefused):
            acls.grant(driver, acls.declared(driver, "pipeline", "producers"), "producers")
        with pytest.raises(BrokerUnavailable, match="ACTIVITY_KAFKA_CONFIG"):
            clients.metadata(nameless, seconds=3)
