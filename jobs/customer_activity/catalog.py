"""The names that are identity rather than configuration: tables, roles of topics, reasons, places."""

from __future__ import annotations

from enum import StrEnum

STREAM_NAME = "[a-z][a-z0-9_]*"  # of its query, checkpoint, lease and files
REPLAY = "replay"  # what commits call themselves that bring records back from quarantine


class Table(StrEnum):
    """The tables, by their path below the lake."""

    PURCHASE_EVENTS = "bronze/purchase_events"
    PROFILE_EVENTS = "bronze/customer_profiles"
    QUARANTINE = "bronze/quarantine"
    PURCHASES = "silver/purchases"
    PROFILE_CHANGES = "silver/profile_changes"
    SUMMARIES = "silver/purchase_summaries"
    PROFILES = "silver/customer_profiles"
    ACTIVITY_CHANGES = "gold/activity_changes"
    ACTIVITY = "gold/customer_activity"
    ACTIVITY_MASKED = "gold/customer_activity_masked"
    WATERMARKS = "ops/watermarks"
    TIMED_PURCHASES = "silver/timed_purchases"
    LATE_EVENTS = "ops/late_events"
    REPROCESSED = "ops/reprocessed_purchases"
    DAILY = "gold/daily_customer_purchases"
    WEEKLY = "gold/weekly_customer_purchases"
    SESSIONS = "gold/customer_sessions"
    FRAUD_ALERTS = "gold/fraud_alerts"
    OUTDATED_ALERTS = "ops/outdated_alerts"
    PRODUCTS = "reference/products"
    CATALOGUE_VERSIONS = "ops/catalogue_versions"
    ENRICHED = "silver/enriched_purchases"
    ROUTING_RULES = "ops/routing_rules"
    ROUTED = "gold/routed_purchases"
    PAYMENT_EVENTS = "bronze/payment_events"
    PAID = "silver/paid_purchases"
    UNPAID = "silver/unpaid_purchases"
    UNMATCHED_PAYMENTS = "ops/unmatched_payments"

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


# Roles of the topics, as in infra/kafka/topics.yaml; their names are settings.
PURCHASES_ROLE = "purchases"
PROFILES_ROLE = "profiles"
VIEW_ROLE = "view"
PROGRESS_ROLE = "progress"
ALERTS_ROLE = "alerts"
WINDOW_ROLES = tuple(f"{windows}{end}" for windows in ("daily", "weekly", "sessions") for end in ("", "_final"))
# Routes that routing rules choose from: each is the role of a topic.
ROUTES = ("high_value_purchases", "other_purchases")
PAYMENTS_ROLE = "payments"


def table_path(lake: str, table: Table) -> str:
    """Where a table is."""
    return f"{lake}/{table.value}"


def history_path(lake: str, table: Table) -> str:
    """Where it is kept what a table's commits said that its log no longer has."""
    return f"{lake}/_history/{table.label}"


def lock_path(lake: str, query: str) -> str:
    """The file that a local lake's driver locks for a query."""
    return f"{lake}/_locks/{query}.lock"


def lease_id(query: str) -> str:
    """Delta's `txnAppId` for the epoch of a query's lease."""
    return f"lease:{query}"


def checkpoint_path(lake: str, query: str) -> str:
    """Where a query keeps its checkpoint."""
    return f"{lake}/_checkpoints/{query}"
