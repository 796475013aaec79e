"""Lives that once ended wrong, as short as they could be made: each is lived anew by every run of the model."""

from __future__ import annotations

from customer_activity.catalog import Reason
from customer_activity.lake.failpoints import FailPoint
from support.lives import Crash, Event, Happening, Place, Send, Step, Take
from support.records import Record, profile, purchase, tombstone
from support.streams import Query
from support.worlds import AHEAD_MS, HUGE, Sent

TO_GOLD = Take(Query.GOLD, with_all_before=True)
TO_SILVER = Take(Query.SILVER, with_all_before=True)
EVERYBODY = tuple(Take(query) for query in Query)
# What an event is about follows from its number: silver.purchases, and its rows deleted, changed, inserted.
PURCHASES_DELETED, PURCHASES_CHANGED, PURCHASES_INSERTED = 12, 7, 2
OF_PURCHASE_EVENTS, OF_PURCHASES, OF_PROFILE_CHANGES, OF_GOLD, OF_QUARANTINE = 0, 2, 3, 4, 14


def _sent(*records: Record, partition: int | None = None) -> Send:
    return Send(tuple(Sent(record, partition) for record in records))


def _refused(record: Record, reason: Reason = Reason.OUT_OF_RANGE) -> Sent:
    return Sent(record, None, reason)


def to_gold(*records: Record, partition: int | None = None) -> tuple[Step, ...]:
    """Send records, and take them up to gold."""
    return _sent(*records, partition=partition), TO_GOLD


def to_silver(*records: Record, partition: int | None = None) -> tuple[Step, ...]:
    """Send records, and take them up to silver."""
    return _sent(*records, partition=partition), TO_SILVER


def to_everybody(*records: Record) -> tuple[Step, ...]:
    """Send records, and have every query take what is there."""
    return _sent(*records), *EVERYBODY


BAD = Send((_refused(purchase("P-\x00")),))
BAD_IDS = Send((_refused(purchase("P-\x00")), _refused(profile("C-\x00"))))

FOUND: dict[str, list[Step]] = {
    "a profile comes alone after purchases that gold read and the index lost": [
        *to_gold(purchase("P-1"), purchase("P-2"), purchase("P-3")),
        Happening(Event.INDEX_LOST),
        *to_gold(profile()),
    ],
    "a profile comes alone on a machine with an index of earlier": [
        *to_gold(purchase("P-1")),
        Happening(Event.RESTARTED),
        *to_gold(purchase("P-2")),
        Happening(Event.INDEX_OLD),
        *to_gold(profile()),
    ],
    "two of the greatest amounts": [
        *to_gold(profile(), purchase("P-1", amount="1.00")),
        *to_gold(purchase("H-1", amount=HUGE), purchase("H-2", amount=HUGE)),
        *to_gold(profile(updated=2_000, address="New")),
        _sent(tombstone(), profile(updated=3_000)),
    ],
    "a profile ends and comes back at once, its total out of range": [
        *to_gold(profile(), purchase("H-1", amount=HUGE)),
        *to_gold(purchase("H-2", amount=HUGE)),
        *to_everybody(tombstone(), profile(updated=2_000, address="New")),
        _sent(purchase("P-1"), profile(updated=3_000, address="Newer")),
    ],
    "a profile ends and comes back as its total leaves the range": [
        *to_gold(profile(), purchase("H-1", amount=HUGE)),
        *to_silver(tombstone()),
        *to_everybody(profile(updated=2_000, address="New"), purchase("H-2", amount=HUGE)),
    ],
    "nineteen of the greatest amounts at once": [
        *to_gold(profile(), *(purchase(f"H-{number}", amount=HUGE) for number in range(19))),
        Happening(Event.INDEX_LOST),
        _sent(purchase("P-1", amount="1.00")),
    ],
    "an id with U+0000 is sent again": [
        BAD_IDS,
        TO_GOLD,
        BAD_IDS,
        TO_GOLD,
    ],
    "a vacuumed table whose index is of earlier": [
        *to_everybody(purchase("P-1"), profile()),
        Happening(Event.RESTARTED),
        *to_everybody(purchase("P-2")),
        *to_everybody(purchase("P-3")),
        *to_everybody(purchase("P-4")),
        Happening(Event.VACUUMED, OF_PURCHASES),
        Happening(Event.INDEX_OLD),
        *to_everybody(purchase("P-3"), purchase("P-5")),
    ],
    "a key on another partition says something newer": [
        *to_gold(profile(updated=1_000, address="Old"), partition=1),
        *to_gold(profile(updated=1_000, address="New"), partition=0),
    ],
    "a key on another partition, both read at once": [
        *to_silver(profile(updated=1_000, address="Old"), partition=1),
        *to_silver(profile(updated=2_000, address="New"), partition=0),
        TO_GOLD,
    ],
    "a purchase on another partition says something else": [
        _sent(purchase("P-1", amount="1.00"), partition=1),
        Take(Query.BRONZE),
        *to_gold(purchase("P-1", amount="2.00"), partition=0),
    ],
    "a producer's clock is ahead": [
        Send((Sent(profile(updated=AHEAD_MS, sent=AHEAD_MS), None, Reason.TIMESTAMP_IN_FUTURE),)),
        TO_GOLD,
        *to_gold(profile(updated=1_000)),
    ],
    "somebody deletes a purchase": [
        *to_gold(profile(), purchase("P-1"), purchase("P-2")),
        Happening(Event.FOREIGN_COMMIT, PURCHASES_DELETED),
    ],
    "somebody changes a purchase": [
        *to_gold(profile(), purchase("P-1"), purchase("P-2")),
        Happening(Event.FOREIGN_COMMIT, PURCHASES_CHANGED),
    ],
    "somebody inserts a purchase while gold is down": [
        _sent(profile(), purchase("P-1")),
        Crash(Place(Query.GOLD, FailPoint.COMMITTED), (), (Happening(Event.FOREIGN_COMMIT, PURCHASES_INSERTED),)),
    ],
    "silver's purchases are put back from a backup": [
        *to_everybody(profile(), purchase("P-1")),
        *to_everybody(purchase("P-2")),
        Happening(Event.LAYER_BACK, OF_PURCHASES),
        _sent(purchase("P-3")),
    ],
    "gold's changes are put back from a backup": [
        *to_everybody(profile(), purchase("P-1")),
        *to_everybody(purchase("P-2")),
        Happening(Event.LAYER_BACK, OF_GOLD),
        _sent(purchase("P-3")),
    ],
    "gold's changes are put back to nothing, and nobody has read what is gone": [
        *to_gold(profile(), purchase("P-1")),
        Happening(Event.LAYER_BACK, OF_GOLD),
    ],
    "an index that is lost already is lost again, and its machine changed": [
        Crash(
            Place(Query.BRONZE, FailPoint.PLANNED),
            (),
            (Happening(Event.INDEX_LOST), Happening(Event.INDEX_LOST), Happening(Event.MACHINE_CHANGED, 1)),
        ),
    ],
    "a batch of current profiles is the end of one that was never among them": [
        *to_silver(profile()),
        *to_silver(tombstone()),
        Take(Query.PROFILES),
        Happening(Event.RESTARTED),
    ],
    "quarantine's log has what gold put there no longer": [
        *to_gold(profile(), purchase("H-1", amount=HUGE), purchase("H-2", amount=HUGE)),
        BAD,
        Take(Query.BRONZE),
        Happening(Event.LOG_SHORTENED, OF_QUARANTINE),
        BAD,
        Take(Query.BRONZE),
        Happening(Event.LOG_SHORTENED, OF_QUARANTINE),
    ],
    "bronze's purchases are put back, and silver has not read what is gone": [
        *to_silver(profile(), purchase("P-1")),
        _sent(profile("C-2"), purchase("P-2", "C-2")),
        Take(Query.BRONZE),
        Happening(Event.LAYER_BACK, OF_PURCHASE_EVENTS),
    ],
}
