"""The streams by name, for tests that are about one of them."""

from __future__ import annotations

from enum import StrEnum

from customer_activity.catalog import Table


class Query(StrEnum):
    """The streams' names; a test holds them against the registry."""

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"
    PUBLISH = "publish"
    SUMMARIES = "summaries"
    PROFILES = "profiles"
    ACTIVITY = "activity"

    @property
    def is_behind(self) -> bool:
        """Whether it merges into a table of current rows, off the hot path."""
        return self in (Query.SUMMARIES, Query.PROFILES, Query.ACTIVITY)


CURRENT = (Table.SUMMARIES, Table.PROFILES, Table.ACTIVITY)  # the tables of current rows that are always there
