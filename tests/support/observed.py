"""A lake whose batches are counted and looked at as a driver's are, without a JVM and without a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from customer_activity import topology
from customer_activity.engine.observability import QueryStatus
from customer_activity.inspection import topics
from customer_activity.inspection.topics import Topic
from customer_activity.lake import delta
from customer_activity.quality import results
from customer_activity.quality.judging import Judged
from customer_activity.quality.rules import load
from customer_activity.quality.verdicts import Outcome
from customer_activity.settings import Settings
from support.living import LivingPipeline
from support.records import Record
from support.without_jvm import without_jvm


@dataclass
class World:
    """A lake with all streams that move metrics, and what serves them; each step is scraped before and after."""

    pipeline: LivingPipeline
    epochs: dict[str, int]
    observe: Callable[..., None] = lambda *_: None
    status: dict[str, QueryStatus] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        return self.pipeline.settings

    def hop(self, *streams: str) -> None:
        """Let streams take what is there, and tell as a driver does."""
        for stream in streams:
            batch = self.pipeline.hop(stream)
            self.observe(batch, 0.2)
            status = self.status.setdefault(stream, QueryStatus(stream, state="running"))
            status.finished(batch.batch_id, batch.rows, 0.2, batch.phases, batch.placement)
            status.write(self.settings.run_dir)

    def send(self, *records: Record) -> None:
        self.pipeline.sent += [self.pipeline.log.append(record, 0) for record in records]

    def topics(self, names: list[str]) -> dict[str, Topic]:
        """Stand in for Kafka's offsets."""
        found: dict[str, Topic] = {}
        for name in names:
            records = self.pipeline.log.entries.get((name, 0), [])
            newest = max((record.timestamp_ms for record in records), default=None)
            at = None if newest is None else datetime.fromtimestamp(newest / 1000, UTC)
            found[name] = Topic(name, {0: (0, len(records))}, at)
        return found

    def oldest(self, places: Mapping[str, Mapping[int, int]]) -> datetime:
        """Stand in for the first records that have not been read."""
        firsts = (self.pipeline.log.entries[name, 0][found[0]] for name, found in places.items())
        return datetime.fromtimestamp(min(record.timestamp_ms for record in firsts) / 1000, UTC)


@contextmanager
def observed(folder: Path) -> Iterator[World]:
    """Make a world with late events switched on, whose topics answer."""
    topology.switch_on(["late_events"])
    settings = Settings(lake=str(folder / "lake"), run_dir=folder / "run", metrics_port=0, max_bad_share=1.0)
    delta.ensure_tables(settings.lake)
    with without_jvm() as nobody, pytest.MonkeyPatch.context() as patch:
        world = World(LivingPipeline(nobody, settings), dict.fromkeys(topology.names(), 1))  # type: ignore[arg-type]
        patch.setattr(topics, "topics", lambda _settings, names: world.topics(names))
        patch.setattr(topics, "oldest", lambda _settings, places: world.oldest(places))
        try:
            yield world
        finally:
            world.pipeline.close()
            topology.switch_on([])


def now_ms() -> int:
    """Return the time as records have it."""
    return int(datetime.now(UTC).timestamp() * 1000)


def judged(lake: str, outcome: Outcome) -> None:
    """Keep results of quality: a rule that is about what is matched passed, and one that warns came to an outcome."""
    rules = {rule.rule: rule for suite in load() for rule in suite.rules}
    found = [
        (rules["purchases_with_a_profile"], Judged(Outcome.PASSED, 0.5, "0.5", (), None), 0.1),
        (rules["match_rate_is_as_usual"], Judged(outcome, 0.25, "0.25", (), None), 0.1),
    ]
    results.append(lake, "run", datetime.now(UTC), found, {})
