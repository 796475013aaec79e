"""The streams, each after those whose tables it reads: adding one is a line here.

`topology/` imports this by its name when somebody asks for the topology first.
"""

from __future__ import annotations

from customer_activity.catalog import Table
from customer_activity.engine import registering
from customer_activity.engine.stream import Stream
from customer_activity.streams.alerts import stream as alerts
from customer_activity.streams.alerts import topic as alerts_topic
from customer_activity.streams.bronze import payments as payment_events
from customer_activity.streams.bronze import stream as bronze
from customer_activity.streams.current import activity, masked, profiles, summaries
from customer_activity.streams.enrichment import stream as enrichment
from customer_activity.streams.event_time import stream as event_time
from customer_activity.streams.gold import stream as gold
from customer_activity.streams.gold import tasks as gold_tasks
from customer_activity.streams.payments import stream as payments
from customer_activity.streams.publish import stream as publish
from customer_activity.streams.routing import stream as routing
from customer_activity.streams.routing import topics as routed
from customer_activity.streams.silver import stream as silver
from customer_activity.streams.silver import tasks as silver_tasks
from customer_activity.streams.windows import daily, late_events, sessions, topics, weekly

ALL: tuple[Stream, ...] = (
    bronze.STREAM,
    silver.STREAM,
    gold.STREAM,
    publish.STREAM,
    summaries.STREAM,
    profiles.STREAM,
    activity.STREAM,
    masked.STREAM,
    enrichment.STREAM,
    routing.STREAM,
    routed.STREAM,
    event_time.STREAM,
    late_events.STREAM,
    daily.STREAM,
    weekly.STREAM,
    sessions.STREAM,
    *topics.STREAMS,
    alerts.STREAM,
    alerts_topic.STREAM,
    payment_events.STREAM,
    payments.STREAM,
)
STREAMS = {stream.spec.name: stream for stream in ALL}
# By the state of which they are, what makes the sorted runs that hold purchases.
RUNS = {Table.PURCHASES.label: silver_tasks.FORMAT, gold.SPEC.name: gold_tasks.FORMAT}

registering.install(ALL)
