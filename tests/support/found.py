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


BAD = Send((Sent(purchase("P-\x00"), None, Reason.OUT_OF_RANGE),))

FOUND: dict[str, list[Step]] = {
    "a profile comes alone after purchases that gold read and the index lost": [
        _sent(purchase("P-1"), purchase("P-2"), purchase("P-3")),
        TO_GOLD,
        Happening(Event.INDEX_LOST),
        _sent(profile()),
        TO_GOLD,
    ],
    "a profile comes alone on a machine with an index of earlier": [
        _sent(purchase("P-1")),
        TO_GOLD,
        Happening(Event.RESTARTED),
        _sent(purchase("P-2")),
        TO_GOLD,
        Happening(Event.INDEX_OLD),
        _sent(profile()),
        TO_GOLD,
    ],
    "two of the greatest amounts": [
        _sent(profile(), purchase("P-1", amount="1.00")),
        TO_GOLD,
        _sent(purchase("H-1", amount=HUGE), purchase("H-2", amount=HUGE)),
        TO_GOLD,
        _sent(profile(updated=2_000, address="New")),
        TO_GOLD,
        _sent(tombstone(), profile(updated=3_000)),
    ],
    "a profile ends and comes back at once, its total out of range": [
        _sent(profile(), purchase("H-1", amount=HUGE)),
        TO_GOLD,
        _sent(purchase("H-2", amount=HUGE)),
        TO_GOLD,
        _sent(tombstone(), profile(updated=2_000, address="New")),
        *EVERYBODY,
        _sent(purchase("P-1"), profile(updated=3_000, address="Newer")),
    ],
    "a profile ends and comes back as its total leaves the range": [
        _sent(profile(), purchase("H-1", amount=HUGE)),
        TO_GOLD,
        _sent(tombstone()),
        TO_SILVER,
        _sent(profile(updated=2_000, address="New"), purchase("H-2", amount=HUGE)),
        *EVERYBODY,
    ],
    "nineteen of the greatest amounts at once": [
        _sent(profile(), *(purchase(f"H-{number}", amount=HUGE) for number in range(19))),
        TO_GOLD,
        Happening(Event.INDEX_LOST),
        _sent(purchase("P-1", amount="1.00")),
    ],
    "an id with U+0000 is sent again": [
        Send((Sent(purchase("P-\x00"), None, Reason.OUT_OF_RANGE), Sent(profile("C-\x00"), None, Reason.OUT_OF_RANGE))),
        TO_GOLD,
        Send((Sent(purchase("P-\x00"), None, Reason.OUT_OF_RANGE), Sent(profile("C-\x00"), None, Reason.OUT_OF_RANGE))),
        TO_GOLD,
    ],
    "a vacuumed table whose index is of earlier": [
        _sent(purchase("P-1"), profile()),
        *EVERYBODY,
        Happening(Event.RESTARTED),
        _sent(purchase("P-2")),
        *EVERYBODY,
        _sent(purchase("P-3")),
        *EVERYBODY,
        _sent(purchase("P-4")),
        *EVERYBODY,
        Happening(Event.VACUUMED, OF_PURCHASES),
        Happening(Event.INDEX_OLD),
        _sent(purchase("P-3"), purchase("P-5")),
        *EVERYBODY,
    ],
    "a key on another partition says something newer": [
        _sent(profile(updated=1_000, address="Old"), partition=1),
        TO_GOLD,
        _sent(profile(updated=1_000, address="New"), partition=0),
        TO_GOLD,
    ],
    "a key on another partition, both read at once": [
        _sent(profile(updated=1_000, address="Old"), partition=1),
        TO_SILVER,
        _sent(profile(updated=2_000, address="New"), partition=0),
        TO_SILVER,
        TO_GOLD,
    ],
    "a purchase on another partition says something else": [
        _sent(purchase("P-1", amount="1.00"), partition=1),
        Take(Query.BRONZE),
        _sent(purchase("P-1", amount="2.00"), partition=0),
        TO_GOLD,
    ],
    "a producer's clock is ahead": [
        Send((Sent(profile(updated=AHEAD_MS, sent=AHEAD_MS), None, Reason.TIMESTAMP_IN_FUTURE),)),
        TO_GOLD,
        _sent(profile(updated=1_000)),
        TO_GOLD,
    ],
    "somebody deletes a purchase": [
        _sent(profile(), purchase("P-1"), purchase("P-2")),
        TO_GOLD,
        Happening(Event.FOREIGN_COMMIT, PURCHASES_DELETED),
    ],
    "somebody changes a purchase": [
        _sent(profile(), purchase("P-1"), purchase("P-2")),
        TO_GOLD,
        Happening(Event.FOREIGN_COMMIT, PURCHASES_CHANGED),
    ],
    "somebody inserts a purchase while gold is down": [
        _sent(profile(), purchase("P-1")),
        Crash(Place(Query.GOLD, FailPoint.COMMITTED), (), (Happening(Event.FOREIGN_COMMIT, PURCHASES_INSERTED),)),
    ],
    "silver's purchases are put back from a backup": [
        _sent(profile(), purchase("P-1")),
        *EVERYBODY,
        _sent(purchase("P-2")),
        *EVERYBODY,
        Happening(Event.LAYER_BACK, OF_PURCHASES),
        _sent(purchase("P-3")),
    ],
    "gold's changes are put back from a backup": [
        _sent(profile(), purchase("P-1")),
        *EVERYBODY,
        _sent(purchase("P-2")),
        *EVERYBODY,
        Happening(Event.LAYER_BACK, OF_GOLD),
        _sent(purchase("P-3")),
    ],
    "gold's changes are put back to nothing, and nobody has read what is gone": [
        _sent(profile(), purchase("P-1")),
        TO_GOLD,
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
        _sent(profile()),
        TO_SILVER,
        _sent(tombstone()),
        TO_SILVER,
        Take(Query.PROFILES),
        Happening(Event.RESTARTED),
    ],
    "quarantine's log has what gold put there no longer": [
        _sent(profile(), purchase("H-1", amount=HUGE), purchase("H-2", amount=HUGE)),
        TO_GOLD,
        BAD,
        Take(Query.BRONZE),
        Happening(Event.LOG_SHORTENED, OF_QUARANTINE),
        BAD,
        Take(Query.BRONZE),
        Happening(Event.LOG_SHORTENED, OF_QUARANTINE),
    ],
    "bronze's purchases are put back, and silver has not read what is gone": [
        _sent(profile(), purchase("P-1")),
        TO_SILVER,
        _sent(profile("C-2"), purchase("P-2", "C-2")),
        Take(Query.BRONZE),
        Happening(Event.LAYER_BACK, OF_PURCHASE_EVENTS),
    ],
}
