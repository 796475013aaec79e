"""The streams, each after those whose tables it reads: adding one is a line here.

Whoever imports this installs them, and from then on everybody finds the topology in `topology.py`.
"""

from __future__ import annotations

from customer_activity import topology
from customer_activity.engine.stream import Stream
from customer_activity.streams.bronze import stream as bronze
from customer_activity.streams.current import activity, profiles, summaries
from customer_activity.streams.gold import stream as gold
from customer_activity.streams.publish import stream as publish
from customer_activity.streams.silver import stream as silver

ALL: tuple[Stream, ...] = (
    bronze.STREAM,
    silver.STREAM,
    gold.STREAM,
    publish.STREAM,
    summaries.STREAM,
    profiles.STREAM,
    activity.STREAM,
)
STREAMS = {stream.spec.name: stream for stream in ALL}

topology.install(stream.spec for stream in ALL)
