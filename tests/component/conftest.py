"""What several component tests start from: S3 in this process, and a small world that is right."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from customer_activity import topology
from customer_activity.lake import delta
from customer_activity.settings import Settings
from customer_activity.storage import s3
from customer_activity.verification.verify import Report, verify
from support.damages import HISTORY
from support.micro_batches import without_spark
from support.paid_lives import living
from support.pipeline import copied_lake
from support.quick_pipeline import QuickPipeline
from support.without_jvm import NoSpark, without_jvm
from support.world import World


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    """Serve S3 from this process, once: its objects can be looked into and made older."""
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer  # noqa: PLC0415 - slow, and few need it

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3_server(moto_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return where S3 is, without a bucket; this process is connected to it."""
    from moto.backends import get_backend  # noqa: PLC0415

    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in {**s3.environment(moto_server, None, "lake", path_style=True), **keys}.items():
        monkeypatch.setenv(name, value)
    yield moto_server
    get_backend("s3").reset()


@pytest.fixture(scope="session")
def empty_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the tables once; a test takes a copy."""
    lake = tmp_path_factory.mktemp("empty") / "lake"
    delta.ensure_tables(str(lake))
    return lake


@pytest.fixture
def lake(empty_lake: Path, settings: Settings) -> str:
    """Return a lake with empty tables."""
    shutil.copytree(empty_lake, settings.lake)
    delta.ensure_tables(settings.lake)  # those of streams that a test has switched on
    return settings.lake


@pytest.fixture(scope="module")
def nobody() -> Iterator[NoSpark]:
    """Have streams run, commit, and work as executors do, without a JVM."""
    with without_jvm() as found, without_spark():
        yield found


@pytest.fixture(scope="session")
def lived(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> QuickPipeline:
    """Make a lake with a bit of everything, once: repeats, a conflict, a tombstone, a stale update, bad records.

    Nobody changes it; a test takes a copy.
    """
    settings = copied_lake(empty_lake, tmp_path_factory.mktemp("lived"))
    with without_jvm() as nobody:
        pipeline = QuickPipeline(nobody, settings)  # type: ignore[arg-type]
        for records in HISTORY:
            pipeline.send(*records)
            pipeline.run()
        pipeline.close()
    return pipeline


@pytest.fixture(scope="module")
def empty_with_payments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return an empty lake with the streams of payments on."""
    topology.switch_on(["payments"])
    lake = tmp_path_factory.mktemp("empty") / "lake"
    delta.ensure_tables(str(lake))
    yield lake
    topology.switch_on([])


@pytest.fixture
def paying(empty_with_payments: Path, tmp_path: Path) -> Iterator[QuickPipeline]:
    """Return the streams, those of payments among them, on an empty lake."""
    with living(empty_with_payments, tmp_path) as found:
        yield found


@pytest.fixture(scope="session")
def right_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the tables of a right world, once."""
    lake = tmp_path_factory.mktemp("right_lake")
    World().write(str(lake))
    return lake


@pytest.fixture
def verify_world(settings: Settings, right_lake: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Report]:
    """Return what writes a world's tables, stands in for its Kafka, and verifies."""

    def write_and_verify(world: World, **options: Any) -> Report:
        world.write(settings.lake, right_lake)
        world.serve(monkeypatch)
        return verify(settings, **{"settle_seconds": 0.0} | options)

    return write_and_verify
