"""What the drill's other senders send: every kind of record that the model has, and nothing that is the load's."""

from __future__ import annotations

import json
from itertools import chain, islice

from benchmarks import load
from customer_activity.demo.traffic import odd, poison
from customer_activity.settings import Settings
from drills.others import lots
from support.expected import History, Kind
from support.worlds import LARGE_BYTES, LAST_PARTITION, Sent

LOTS = len(odd.KINDS) + len(poison.KINDS)  # in which each of them comes once


def sent(seed: int) -> list[Sent]:
    """All that others send until each kind was there."""
    return list(chain.from_iterable(islice(lots(Settings(), seed), LOTS)))


def test_others_send_every_kind_of_record() -> None:
    records, history = sent(1), History()
    kinds = frozenset[Kind]().union(*(history.kinds(of, of.partition or 0) for of in records))
    assert kinds == set(Kind)
    large = [of for of in records if len(of.record.value or b"") > LARGE_BYTES]
    assert {"address" in json.loads(of.record.value or b"") for of in large} == {True, False}
    assert {of.partition for of in records} == {None, 0, 1, LAST_PARTITION}
    named = {name for of in records for name, _ in of.record.headers}
    assert {"", "na\u00efve \x1b[0m", "traceparent"} <= named


def test_no_record_of_others_is_taken_for_the_loads() -> None:
    settings = Settings()
    is_the_loads = {settings.purchase_topic: load.is_purchase, settings.profile_topic: load.is_customer}
    assert [of for of in sent(1) if is_the_loads[of.record.topic](of.record.key or b"")] == []


def test_a_seed_says_what_others_send() -> None:
    assert [next(lots(Settings(), seed)) for seed in (1, 1)] == [next(lots(Settings(), 1))] * 2
    assert next(lots(Settings(), 1)) != next(lots(Settings(), 2))
