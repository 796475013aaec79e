"""OpenLineage's client: where its own configuration says, or else into a file in the run folder."""

from __future__ import annotations

import os
from pathlib import Path

from openlineage.client import OpenLineageClient
from openlineage.client.transport.file import FileConfig, FileTransport

from customer_activity.lineage.events import event
from customer_activity.lineage.events_file import events_file, keep_short
from customer_activity.lineage.told import Emit, Told
from customer_activity.settings import Settings


def emitter(settings: Settings) -> Emit:
    """Open the transport; return what makes an event and sends it.

    Raises:
        ValueError: OpenLineage's configuration is not as it should be.
    """
    file = events_file(settings)
    client, is_ours = _client(file)

    def emit(told: Told) -> None:
        if is_ours:
            keep_short(file)
        client.emit(event(settings, told))

    return emit


def _client(file: Path) -> tuple[OpenLineageClient, bool]:
    client = OpenLineageClient(transport=FileTransport(FileConfig(str(file), append=True)))
    is_configured = bool((client.config.transport or {}).get("type")) or bool(os.environ.get("OPENLINEAGE_URL"))
    return (OpenLineageClient(), False) if is_configured else (client, True)
