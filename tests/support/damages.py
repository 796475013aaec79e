"""A bit of everything that a lake may have, and damage of every kind with the rule that it must not get past."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

from customer_activity.catalog import Table
from support.quality import Rows, Topics
from support.records import NOW_MS, PURCHASES, Log, Record, profile, purchase, tombstone

HISTORY = [
    [profile("C-1"), profile("C-2"), profile("C-4"), purchase("P-1", "C-1", "1.00"), purchase("P-2", "C-2", "2.00")],
    [purchase("P-1", "C-1", "1.00"), purchase("P-2", "C-2", "2.50"), purchase("P-3", "C-3", "3.00"), tombstone("C-4")],
    [
        profile("C-1", updated=3_000, address="2 New Street"),
        profile("C-1", updated=2_000),
        purchase("P-4", "C-1", "4.00"),
    ],
    [Record(PURCHASES, b"P-5", b"{"), profile("C-5"), purchase("P-6", "C-2", "6.00", at=5_000, sent=NOW_MS + 9)],
]


def set_(where: str, equals: Any, **values: Any) -> Callable[[Rows], None]:
    """Change columns of the rows in which a column has a value."""

    def change(rows: Rows) -> None:
        chosen = [row for row in rows if row[where] == equals]
        assert chosen, "the damage hits something"
        for row in chosen:
            row.update(values)

    return change


def without(where: str, equals: Any) -> Callable[[Rows], Rows]:
    """Remove the rows in which a column has a value."""

    def change(rows: Rows) -> Rows:
        kept = [row for row in rows if row[where] != equals]
        assert len(kept) < len(rows), "the damage hits something"
        return kept

    return change


def added(where: str, equals: Any, **values: Any) -> Callable[[Rows], Rows]:
    """Add a copy of a row with some columns changed."""

    def change(rows: Rows) -> Rows:
        return [*rows, next(row for row in rows if row[where] == equals) | values]

    return change


def later(column: str, by: timedelta) -> Callable[[Rows], None]:
    """Move the first row's time."""

    def change(rows: Rows) -> None:
        rows[0][column] += by

    return change


def repeat_counts(rows: Rows) -> None:
    """Let the later record of P-1 be the one that counts."""
    row = next(row for row in rows if row["purchase_id"] == "P-1")
    row["offset"] += 1 if row["partition"] == other_place("P-1")[0] else 0
    row["partition"], row["offset"] = other_place("P-1")


def other_place(purchase_id: str) -> tuple[int, int]:
    """Return where the repeat of a purchase was put."""
    log = Log()
    places = [log.append(record) for records in HISTORY for record in records]
    repeats = [place for place in places if place[3].key == purchase_id.encode()]
    return repeats[1][1], repeats[1][2]


Damage = Callable[[Rows], Rows | None]
DAMAGES_OF: dict[Table, dict[str, tuple[Damage, str]]] = {
    Table.PURCHASES: {
        "a purchase dropped": (without("purchase_id", "P-4"), "landed_purchases_are_counted"),
        "a purchase doubled": (added("purchase_id", "P-4"), "purchases_count_once"),
        "an amount changed": (set_("purchase_id", "P-4", amount=Decimal("4.01")), "purchases_are_as_they_landed"),
        "a purchase made up": (added("purchase_id", "P-4", purchase_id="P-X"), "purchases_are_as_they_landed"),
        "an amount below zero": (set_("purchase_id", "P-4", amount=Decimal("-1.00")), "amounts_are_in_range"),
        "a wrong currency": (set_("purchase_id", "P-4", currency="USD"), "purchases_are_in_the_currency"),
        "a null id": (set_("purchase_id", "P-4", purchase_id=None), "purchases_have_ids"),
        "a null customer": (set_("purchase_id", "P-4", customer_id=None), "purchases_have_customers"),
        "a purchase of tomorrow": (later("occurred_at", timedelta(days=20_000)), "no_purchase_is_of_the_future"),
        "a repeat counts": (repeat_counts, "the_first_record_counts"),
        "fewer rows than were counted": (without("purchase_id", "P-1"), "tables_have_what_was_counted"),
    },
    Table.PURCHASE_EVENTS: {
        "an offset gap": (without("purchase_id", "P-4"), "bronze_has_what_the_topics_have"),
        "a record landed twice": (added("purchase_id", "P-4"), "purchase_events_land_once"),
        "a record Kafka never had": (added("purchase_id", "P-4", offset=9_999), "bronze_has_nothing_else"),
        "a record of another topic": (
            set_("purchase_id", "P-4", topic="elsewhere"),
            "purchase_events_are_of_the_topic",
        ),
        "a record without an id": (set_("purchase_id", "P-4", purchase_id=None), "purchase_events_have_ids"),
        "a record without coordinates": (
            set_("purchase_id", "P-4", offset=None),
            "purchase_events_keep_their_coordinates",
        ),
    },
    Table.PROFILE_EVENTS: {
        "a profile landed twice": (added("customer_id", "C-2"), "profile_events_land_once"),
        "a profile of another topic": (
            set_("customer_id", "C-2", topic="elsewhere"),
            "profile_events_are_of_the_topic",
        ),
        "a profile of nobody": (set_("customer_id", "C-2", customer_id=None), "profile_events_have_customers"),
        "a tombstone with content": (set_("customer_id", "C-2", is_tombstone=True), "tombstones_say_nothing"),
    },
    Table.QUARANTINE: {
        "an unknown reason": (set_("reason", "not_json", reason="bad"), "quarantine_has_known_reasons"),
        "a refused record twice": (added("reason", "not_json"), "refused_records_land_once"),
        "accepted and refused": (
            added("reason", "conflicting_duplicate", reason="not_json"),
            "refused_records_are_not_accepted",
        ),
        "a conflict with nothing": (
            set_("reason", "conflicting_duplicate", offset=9_999),
            "conflicting_repeats_have_landed",
        ),
    },
    Table.PROFILE_CHANGES: {
        "a late profile ignored": (without("address", "2 New Street"), "the_newest_profile_is_current"),
        "a tombstone ignored": (without("is_tombstone", True), "the_newest_profile_is_current"),
        "a profile change rewritten": (
            set_("customer_id", "C-2", address="Elsewhere 3"),
            "profile_changes_are_as_they_landed",
        ),
        "a profile change of nobody": (set_("customer_id", "C-2", customer_id=None), "profile_changes_have_customers"),
    },
    Table.SUMMARIES: {
        "a summary too small": (set_("customer_id", "C-1", total_amount=Decimal("4.00")), "summaries_add_up"),
        "a summary missing": (without("customer_id", "C-3"), "summaries_add_up"),
        "a summary of nothing": (set_("customer_id", "C-3", purchase_count=0), "summaries_count_something"),
        "two summaries": (added("customer_id", "C-1"), "one_summary_a_customer"),
        "last before first": (later("first_purchase_at", timedelta(days=1)), "last_purchase_is_not_before_the_first"),
    },
    Table.PROFILES: {
        "a profile stale": (set_("customer_id", "C-1", address="1 Old Street"), "profiles_follow_their_changes"),
        "a profile missing": (without("customer_id", "C-2"), "profiles_follow_their_changes"),
        "two profiles": (added("customer_id", "C-2"), "one_profile_a_customer"),
        "a profile without a name": (set_("customer_id", "C-2", name=None), "profiles_have_names"),
    },
    Table.ACTIVITY_CHANGES: {
        "a change of gold rewritten": (
            set_("customer_id", "C-2", total_amount=Decimal("9.99")),
            "gold_is_silver_joined",
        ),
        "sums that differ": (set_("customer_id", "C-2", purchase_count=7), "gold_sums_are_silvers"),
        "a change of gold missing": (without("customer_id", "C-5"), "gold_is_silver_joined"),
        "a change of nobody": (set_("customer_id", "C-5", customer_id=None), "changes_have_customers"),
        "a change without a version": (set_("customer_id", "C-5", view_version=0), "changes_have_versions"),
        "one version twice": (added("customer_id", "C-5"), "versions_are_a_customers_own"),
    },
    Table.ACTIVITY: {
        "a gold row stale": (set_("customer_id", "C-1", purchase_count=1), "rows_follow_their_changes"),
        "a gold row missing": (without("customer_id", "C-2"), "rows_follow_their_changes"),
        "a gold row too many": (added("customer_id", "C-2", customer_id="C-X"), "rows_follow_their_changes"),
        "a gold row twice": (added("customer_id", "C-2"), "one_row_a_customer"),
        "a gold row of nobody": (set_("customer_id", "C-2", customer_id=None), "rows_have_customers"),
        "a total below zero": (set_("customer_id", "C-2", total_amount=Decimal("-1.00")), "totals_are_not_negative"),
        "a total in dollars": (set_("customer_id", "C-2", currency="USD"), "totals_are_in_the_currency"),
        "a total of nothing": (set_("customer_id", "C-5", total_amount=Decimal("1.00")), "no_purchase_no_total"),
    },
}
DAMAGES = {name: (table, *case) for table, cases in DAMAGES_OF.items() for name, case in cases.items()}


def missing(topics: Topics) -> None:
    del topics.values[b"C-2"]


def made_up(topics: Topics) -> None:
    topics.values[b"C-X"] = topics.values[b"C-2"]
    topics.change_view("C-X", customerId="C-X")


def not_deleted(topics: Topics) -> None:
    topics.values[b"C-4"] = topics.values[b"C-2"]
    topics.change_view("C-4", customerId="C-4", viewVersion=1)


def unreadable(topics: Topics) -> None:
    topics.values[b"C-2"] = b'{"customerId": "C-2"}'


VIEW_DAMAGES = {
    "a record missing": (missing, "view_has_every_row"),
    "a record of before": (lambda topics: topics.change_view("C-1", viewVersion=1), "view_has_every_row"),
    "a record changed": (lambda topics: topics.change_view("C-2", totalAmount=1.0), "view_says_what_gold_says"),
    "an address changed": (lambda topics: topics.change_view("C-2", address="Elsewhere 3"), "view_says_what_gold_says"),
    "a record made up": (made_up, "view_has_no_other_rows"),
    "a record not deleted": (not_deleted, "view_has_no_other_rows"),
    "a record unreadable": (unreadable, "view_keeps_its_contract"),
}
