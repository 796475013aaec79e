"""What OpenLineage has no facet for: offsets and versions that were read, and how much came in.

`facets.schema.json` describes them.
"""

from __future__ import annotations

import attr
from openlineage.client.event_v2 import set_producer
from openlineage.client.generated.base import InputDatasetFacet, RunFacet

PRODUCER = "urn:customer-activity"
SCHEMA = f"{PRODUCER}:openlineage:1-0-0:facets.schema.json#/$defs"
OFFSETS, VERSIONS, PROGRESS = (f"customerActivity_{name}" for name in ("kafkaOffsets", "tableVersions", "progress"))


@attr.define
class KafkaOffsetsFacet(InputDatasetFacet):
    """What a run has read of a topic: by partition, the first offset, and the one after the last."""

    partitions: list[dict[str, int]]

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}/KafkaOffsets"


@attr.define
class TableVersionsFacet(InputDatasetFacet):
    """What a run has read of a table: the version that had been read before it (-1: none), and the last one."""

    after: int
    upto: int

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}/TableVersions"


@attr.define
class ProgressFacet(RunFacet):
    """How many batches a run has finished, and how many rows came in with them."""

    batches: int
    rows: int

    @staticmethod
    def _get_schema() -> str:
        return f"{SCHEMA}/Progress"


set_producer(PRODUCER)
