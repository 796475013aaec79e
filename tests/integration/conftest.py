"""One real broker for all, started by the product's own code; topics, lake and run folder of its own for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from customer_activity.demo.broker import process
from customer_activity.settings import Settings
from customer_activity.streams.bronze.fetching import Fetcher
from support import addresses, s3_server
from support.broker import deployed


@pytest.fixture
def free_address() -> str:
    """Return an address that nothing listens on."""
    return addresses.free()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Start the embedded broker once; its settings name no topics of any test."""
    settings = Settings(
        kafka_bootstrap_servers=addresses.free(), kafka_config=None, broker_dir=tmp_path_factory.mktemp("kafka")
    )
    process.start(settings)
    yield settings
    process.stop(settings)


@pytest.fixture
def settings(kafka: Settings, tmp_path: Path) -> Settings:
    """Return settings with topics of the test's own."""
    return deployed(kafka, tmp_path)


@pytest.fixture
def fetcher(settings: Settings) -> Iterator[Fetcher]:
    """Open a fetcher of the test's own topics."""
    opened = Fetcher(settings, (settings.purchase_topic, settings.profile_topic))
    yield opened
    opened.close()


@pytest.fixture
def on_s3(free_address: str, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Return settings of a lake on S3, whose bucket is not there yet; this process is connected to it."""
    with s3_server.serve(free_address) as url:
        chosen = {
            "lake": "s3a://activity/lake",
            "quality_docs": "s3://activity/quality",
            "s3_endpoint": url,
            "s3_path_style": True,
            "max_bad_share": 1.0,
        }
        own = settings.model_copy(update=chosen)
        for name, value in {**own.s3_environment(), **s3_server.KEYS}.items():
            monkeypatch.setenv(name, value)
        yield own
