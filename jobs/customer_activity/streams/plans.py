"""What it takes to start each query: its source, what to do with its batches, and where those begin."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from pyspark.sql import SparkSession

from customer_activity.catalog import Query, Table
from customer_activity.engine.plan import Plan
from customer_activity.kafka import clients
from customer_activity.lake import delta, footers
from customer_activity.settings import Settings
from customer_activity.streams.bronze import stream as bronze
from customer_activity.streams.bronze.bad_share import BadShareGuard
from customer_activity.streams.bronze.fetching import Fetcher
from customer_activity.streams.bronze.numbering import Numbering
from customer_activity.streams.current import activity, profiles, summaries
from customer_activity.streams.gold import stream as gold
from customer_activity.streams.gold.state import GoldState
from customer_activity.streams.publish import stream as publish
from customer_activity.streams.publish.transaction import Publisher
from customer_activity.streams.silver import stream as silver
from customer_activity.streams.silver.index import SilverIndex


class Plans:
    """Makes each query's plan when it starts: a source looks at its table then. Owns what the plans keep open."""

    def __init__(self, spark: SparkSession, settings: Settings, resources: ExitStack) -> None:
        """Make nothing yet; what is opened closes with `resources`."""
        self.spark = spark
        self.settings = settings
        self.resources = resources
        self.ids = {table: delta.table_id(settings.lake, table) for table in Table}

    def make(self, query: Query) -> Plan:
        """Make a query's plan."""
        spark, settings = self.spark, self.settings
        if query is Query.BRONZE:
            numbering = Numbering(settings.lake)
            guard = BadShareGuard(settings.max_bad_share, noted=numbering.noted)
            ids = clients.topic_ids(settings, (settings.purchase_topic, settings.profile_topic))
            fetcher = Fetcher(settings)
            self.resources.callback(fetcher.close)
            write = partial(
                bronze.land, settings=settings, guard=guard, topic_ids=ids, fetcher=fetcher, numbering=numbering
            )
            return Plan(bronze.read(spark, settings), write)
        if query is Query.SILVER:
            index = SilverIndex(settings, self.ids)
            self.resources.callback(index.close)
            write = partial(silver.append_batch, settings=settings, index=index)
            return Plan(silver.read(spark, settings), write, delta.begins(settings.lake, silver.SIDES))
        if query is Query.GOLD:
            state = GoldState(settings, self.ids)
            self.resources.callback(state.close)
            clock = gold.ViewClock.of(settings.lake)
            write = partial(gold.append_batch, settings=settings, state=state, clock=clock)
            return Plan(gold.read(spark, settings), write, gold.begins(settings))
        if query is Query.PUBLISH:
            table_id = self.ids[Table.ACTIVITY_CHANGES]
            former = delta.instead_of(settings.lake, Table.ACTIVITY_CHANGES)
            publisher = self.resources.enter_context(Publisher(settings, [table_id, *former]))
            write = partial(
                publish.publish_batch,
                settings=settings,
                publisher=publisher,
                table_id=table_id,
                instead_of=former,
            )
            return Plan(publish.read(spark, settings, publisher), write, publish.begins(settings, publisher))
        merging = {Query.SUMMARIES: summaries, Query.PROFILES: profiles, Query.ACTIVITY: activity}[query]
        # Of a release before, or of a driver that ended right after a merge.
        footers.mend(settings.lake, merging.TARGET)
        return Plan(
            merging.read(spark, settings),
            partial(merging.merge_batch, settings=settings),
            delta.begins(settings.lake, [merging.SOURCE]),
        )
