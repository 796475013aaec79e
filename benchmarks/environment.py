"""Where a run takes place: a broker of its own with fresh topics, and an empty lake.

The view topics stamp records with the time at which the broker appended them (LogAppendTime), and nothing is compacted
away before it was read back.
"""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from customer_activity import topology
from customer_activity.demo.broker import process
from customer_activity.kafka import clients, topics
from customer_activity.settings import Settings

ADMIN_SECONDS = 20.0
DAY_MS = "86400000"


@contextmanager
def opened(folder: Path, *, keep: bool = False) -> Iterator[Settings]:
    """Start a broker with fresh topics in an empty folder; at the end stop it and, unless told to keep it, remove it.

    Logs stay in any case.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = Settings(
        kafka_bootstrap_servers=_free_address(),
        kafka_config=None,
        broker_dir=folder / "kafka",
        lake=str(folder / "lake"),
        run_dir=folder / "run",
        max_bad_share=1.0,
    )
    topology.switch_on(settings.optional_streams, settings.present)  # as the environment says
    process.start(settings)
    try:
        create_topics(settings)
        yield settings
    finally:
        process.stop(settings)
        if not keep:
            shutil.rmtree(settings.broker_dir / "data", ignore_errors=True)
            for data in (*folder.glob("*/lake"), folder / "lake"):
                shutil.rmtree(data, ignore_errors=True)


def beside(settings: Settings, name: str) -> Settings:
    """Return settings for another pipeline on the same input: lake, run folder and view topic of its own, created."""
    folder = settings.run_dir.parent / name
    other = settings.model_copy(
        update={
            "lake": str(folder / "lake"),
            "run_dir": folder / "run",
            "view_topic": f"{settings.view_topic}-{name}",
            "progress_topic": f"{settings.progress_topic}-{name}",
        }
    )
    create_topics(other)
    return other


def create_topics(settings: Settings) -> None:
    """Create the topics that are missing, as infra/kafka/topics.yaml says, with what measuring needs besides."""
    topics.check(settings, create=True)
    set_topic(
        settings, settings.view_topic, {"message.timestamp.type": "LogAppendTime", "min.compaction.lag.ms": DAY_MS}
    )
    if "publish_alerts" in settings.optional_streams:
        set_topic(settings, settings.alert_topic, {"message.timestamp.type": "LogAppendTime"})
    set_topic(settings, settings.profile_topic, {"min.compaction.lag.ms": DAY_MS})


def set_topic(settings: Settings, topic: str, config: Mapping[str, str]) -> None:
    """Change settings of a topic; its others stay as they are."""
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    admin = clients.admin(settings)  # held until the answer is there
    changed = admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)])
    for answer in changed.values():
        answer.result(ADMIN_SECONDS)


def stored(folder: Path) -> dict[str, int]:
    """Count files and bytes below a folder, checksum files and logs included."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return {"files": len(sizes), "bytes": sum(sizes)}


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
