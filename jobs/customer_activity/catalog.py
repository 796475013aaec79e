"""The names that are identity rather than configuration: queries, tables, columns, reasons. No Spark here."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Query(StrEnum):
    """The streaming queries. Name = checkpoint = log and metric label.

    The first four are the path from Kafka to the view: they only append. The others merge what was appended into the
    tables of current rows, behind that path.
    """

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    PUBLISH = "publish"
    SUMMARIES = "summaries"
    PROFILES = "profiles"
    ACTIVITY = "activity"

    @property
    def is_behind(self) -> bool:
        """Whether it merges into a table of current rows, off the path to the view."""
        return self in (Query.SUMMARIES, Query.PROFILES, Query.ACTIVITY)


REPLAY = "replay"  # what commits call themselves that bring records back from quarantine


class Stage(StrEnum):
    """What users name when they run a part of the pipeline: a stage is one query of the path and those behind it."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    PUBLISH = "publish"

    @property
    def queries(self) -> tuple[Query, ...]:
        """Its queries."""
        behind = {Stage.SILVER: (Query.SUMMARIES, Query.PROFILES), Stage.GOLD: (Query.ACTIVITY,)}
        return (Query(self.value), *behind.get(self, ()))


class Table(StrEnum):
    """The Delta tables, by their path below the lake."""

    PURCHASE_EVENTS = "bronze/purchase_events"
    PROFILE_EVENTS = "bronze/customer_profiles"
    QUARANTINE = "bronze/quarantine"
    PURCHASES = "silver/purchases"
    PROFILE_CHANGES = "silver/profile_changes"
    SUMMARIES = "silver/purchase_summaries"
    PROFILES = "silver/customer_profiles"
    ACTIVITY_CHANGES = "gold/activity_changes"
    ACTIVITY = "gold/customer_activity"

    @property
    def label(self) -> str:
        """`layer.table`, as pages and messages call it."""
        return self.value.replace("/", ".")

    @classmethod
    def labelled(cls, label: str) -> Table:
        """Return the table with a label."""
        return cls(label.replace(".", "/", 1))


class Reason(StrEnum):
    """Why a record is in quarantine: a closed list."""

    MISSING_KEY = "missing_key"
    MISSING_VALUE = "missing_value"
    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    OUT_OF_RANGE = "out_of_range"
    KEY_MISMATCH = "key_mismatch"
    CURRENCY_MISMATCH = "currency_mismatch"
    TIMESTAMP_IN_FUTURE = "timestamp_in_future"
    CONFLICTING_DUPLICATE = "conflicting_duplicate"
    TOO_LARGE_TO_PUBLISH = "too_large_to_publish"
    TOTAL_OUT_OF_RANGE = "total_out_of_range"


class Flow(NamedTuple):
    """What one query reads and writes, and what it promises: the text of `activity describe`."""

    query: Query
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    guarantee: str


class Kept(NamedTuple):
    """How much of a table's past is kept at least, once every reader of its change feed is past it.

    Attributes:
        commits: in its log. Whoever looks for news lists all of it, so it is part of the time to the view.
        files_hours: data files that were replaced, for those who still read an older version.
    """

    commits: int
    files_hours: int


# Tables of current rows, which queries behind the path merge into; the others are only appended to.
CURRENT = (Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY)

# The tables of the path get a commit a second; those of current rows one in ten seconds, and people look back in them.
KEPT = {table: Kept(8_640, 7 * 24) if table in (*CURRENT, Table.QUARANTINE) else Kept(100, 1) for table in Table}

# Roles of the topics, as in infra/kafka/topics.yaml; their names are settings.
PURCHASES_ROLE = "purchases"
PROFILES_ROLE = "profiles"
VIEW_ROLE = "view"
PROGRESS_ROLE = "progress"

FLOWS = (
    Flow(
        Query.BRONZE,
        (f"topic:{PURCHASES_ROLE}", f"topic:{PROFILES_ROLE}"),
        (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS, Table.QUARANTINE),
        "every record lands exactly once, accepted or quarantined, raw and with its coordinates",
    ),
    Flow(
        Query.SILVER,
        (Table.PURCHASE_EVENTS, Table.PROFILE_EVENTS),
        (Table.PURCHASES, Table.PROFILE_CHANGES, Table.QUARANTINE),
        "a purchase counts once; the newest profile update since the last tombstone wins",
    ),
    Flow(
        Query.GOLD,
        (Table.PURCHASES, Table.PROFILE_CHANGES),
        (Table.ACTIVITY_CHANGES, Table.QUARANTINE),
        "computed from one consistent pair of silver versions; a row is written only when it changed",
    ),
    Flow(
        Query.PUBLISH,
        (Table.ACTIVITY_CHANGES, f"topic:{PROGRESS_ROLE}"),
        (f"topic:{VIEW_ROLE}", f"topic:{PROGRESS_ROLE}", Table.QUARANTINE),
        "exactly once for read_committed consumers: a batch and its progress marker in one transaction",
    ),
    Flow(
        Query.SUMMARIES,
        (Table.PURCHASES,),
        (Table.SUMMARIES,),
        "each purchase is added to its customer's running summary once",
    ),
    Flow(
        Query.PROFILES,
        (Table.PROFILE_CHANGES,),
        (Table.PROFILES,),
        "the newest change of each profile is merged once",
    ),
    Flow(
        Query.ACTIVITY,
        (Table.ACTIVITY_CHANGES,),
        (Table.ACTIVITY,),
        "the newest change of each row is merged once; the table follows the topic by seconds",
    ),
)


def table_path(lake: str, table: Table) -> str:
    """Where a table is."""
    return f"{lake}/{table.value}"


def history_path(lake: str, table: Table) -> str:
    """Where it is kept what a table's commits said that its log no longer has."""
    return f"{lake}/_history/{table.label}"


def lock_path(lake: str, query: Query) -> str:
    """The file that a local lake's driver locks for a query."""
    return f"{lake}/_locks/{query.value}.lock"


def lease_id(query: Query) -> str:
    """Delta's `txnAppId` for the epoch of a query's lease."""
    return f"lease:{query}"


def checkpoint_path(lake: str, query: Query) -> str:
    """Where a query keeps its checkpoint."""
    return f"{lake}/_checkpoints/{query.value}"
