"""The names that are identity rather than configuration: queries, tables, columns, reasons. No Spark here."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Query(StrEnum):
    """The streaming queries, in the order that data meets them. Name = checkpoint = log and metric label."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    PUBLISH = "publish"


class Table(StrEnum):
    """The Delta tables, by their path below the lake."""

    PURCHASE_EVENTS = "bronze/purchase_events"
    PROFILE_EVENTS = "bronze/customer_profiles"
    QUARANTINE = "bronze/quarantine"
    PURCHASES = "silver/purchases"
    SUMMARIES = "silver/purchase_summaries"
    PROFILES = "silver/customer_profiles"
    ACTIVITY = "gold/customer_activity"

    @property
    def label(self) -> str:
        """`layer.table`, as pages and messages call it."""
        return self.value.replace("/", ".")


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


class Flow(NamedTuple):
    """What one query reads and writes, and what it promises: the text of `activity describe`."""

    query: Query
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    guarantee: str


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
        (Table.PURCHASES, Table.SUMMARIES, Table.PROFILES, Table.QUARANTINE),
        "a purchase counts once; the newest profile update since the last tombstone wins",
    ),
    Flow(
        Query.GOLD,
        (Table.SUMMARIES, Table.PROFILES),
        (Table.ACTIVITY,),
        "computed from one consistent pair of silver versions; a row is written only when it changed",
    ),
    Flow(
        Query.PUBLISH,
        (Table.ACTIVITY, f"topic:{PROGRESS_ROLE}"),
        (f"topic:{VIEW_ROLE}", f"topic:{PROGRESS_ROLE}"),
        "exactly once for read_committed consumers: a batch and its progress marker in one transaction",
    ),
)


def table_path(lake: str, table: Table) -> str:
    """Where a table is."""
    return f"{lake}/{table.value}"


def checkpoint_path(lake: str, query: Query) -> str:
    """Where a query keeps its checkpoint."""
    return f"{lake}/_checkpoints/{query.value}"
