"""The oracle knows every rule of the contracts, told apart from the pipeline."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest

from customer_activity.catalog import Reason
from customer_activity.verification import contract, oracle
from customer_activity.verification.numbers import NumberText, cents_of
from customer_activity.verification.records import NEWEST_RULES, Activity, Log, Place, Profile, RawRecord, Refused
from support.kafka_batches import Record, at, kafka_batch, parse
from support.world import LANDED, expect
from support.world_rows import NOW, PROFILES, PURCHASES, profile, purchase

# --- the contract ---

NOW_IN_FORCE: dict[str, Any] = {"landed_at": NOW, "rules": NEWEST_RULES}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        pytest.param(None, purchase(), Reason.MISSING_KEY, id="key is null"),
        pytest.param(b"", purchase(), Reason.MISSING_KEY, id="key is empty"),
        pytest.param(None, None, Reason.MISSING_KEY, id="key goes before value"),
        pytest.param(b"P1", None, Reason.MISSING_VALUE, id="value is null"),
        pytest.param(b"\xff", purchase(), Reason.NOT_UTF8, id="key is not UTF-8"),
        pytest.param(b"P1", b"\xff" + purchase(), Reason.NOT_UTF8, id="value is not UTF-8"),
        pytest.param(b"P1", purchase(customerId=b'"\xed\xa0\x80"'), Reason.NOT_UTF8, id="surrogate encoded in UTF-8"),
        pytest.param(b"P1", purchase(customerId=b'"\\ud800"'), Reason.NOT_UTF8, id="lone surrogate escaped"),
        pytest.param(b"P1", purchase(more=b'["\\udc00"]'), Reason.NOT_UTF8, id="lone surrogate in an unknown field"),
        pytest.param(b"P1", purchase()[:-1] + b',"\\ud800":1}', Reason.NOT_UTF8, id="lone surrogate in a name"),
        pytest.param(b"P1", b"", Reason.NOT_JSON, id="value is empty"),
        pytest.param(b"P1", purchase()[:-1], Reason.NOT_JSON, id="cut off"),
        pytest.param(b"P1", purchase() + b"{}", Reason.NOT_JSON, id="something after the object"),
        pytest.param(b"P1", purchase(amount=b"NaN"), Reason.NOT_JSON, id="NaN"),
        pytest.param(b"P1", purchase(amount=b"-Infinity"), Reason.NOT_JSON, id="infinity"),
        pytest.param(b"P1", purchase(more=b"NaN"), Reason.NOT_JSON, id="NaN in an unknown field"),
        pytest.param(b"P1", purchase(amount=b"01"), Reason.NOT_JSON, id="leading zero"),
        pytest.param(b"P1", b"\xef\xbb\xbf" + purchase(), Reason.NOT_JSON, id="byte order mark"),
        pytest.param(b"P1", purchase(customerId=b'"a\nb"'), Reason.NOT_JSON, id="raw line break in text"),
        pytest.param(b"P1", purchase(more=b"[" * 300 + b"]" * 300), Reason.NOT_JSON, id="nested too deeply"),
        pytest.param(b"P1", purchase(more=b"[" * 90_000 + b"]" * 90_000), Reason.NOT_JSON, id="nested absurdly"),
        pytest.param(b"P1", b"[]", Reason.WRONG_TYPE, id="an array"),
        pytest.param(b"P1", b"null", Reason.WRONG_TYPE, id="JSON null"),
        pytest.param(b"P1", purchase(amount="1.25"), Reason.WRONG_TYPE, id="number as text"),
        pytest.param(b"P1", purchase(amount=True), Reason.WRONG_TYPE, id="boolean amount"),
        pytest.param(b"P1", purchase(amount=None), Reason.WRONG_TYPE, id="null amount"),
        pytest.param(b"P1", purchase(purchaseId=1), Reason.WRONG_TYPE, id="id is a number"),
        pytest.param(b"P1", purchase(productId=[]), Reason.WRONG_TYPE, id="product is an array"),
        pytest.param(b"P1", purchase(occurredAtEpochMillis=b"1.0"), Reason.WRONG_TYPE, id="time with a fraction"),
        pytest.param(b"P1", purchase(occurredAtEpochMillis=b"1e3"), Reason.WRONG_TYPE, id="time with an exponent"),
        pytest.param(b"P1", purchase(riskScore="71"), Reason.WRONG_TYPE, id="risk as text"),
        pytest.param(b"P1", purchase(riskScore=b"71.0"), Reason.WRONG_TYPE, id="risk with a fraction"),
        pytest.param(b"P1", purchase(riskScore=True), Reason.WRONG_TYPE, id="boolean risk"),
        pytest.param(b"P1", purchase(riskScore=101), Reason.OUT_OF_RANGE, id="risk above 100"),
        pytest.param(b"P1", purchase(riskScore=-1), Reason.OUT_OF_RANGE, id="negative risk"),
        pytest.param(b"P1", purchase(amount="x", customerId=...), Reason.WRONG_TYPE, id="type goes before absence"),
        pytest.param(b"P1", purchase(customerId=...), Reason.MISSING_FIELD, id="field missing"),
        pytest.param(b"P1", purchase(currency=..., amount=-1), Reason.MISSING_FIELD, id="absence goes before range"),
        pytest.param(b"P1", purchase(customerId=""), Reason.OUT_OF_RANGE, id="empty id"),
        pytest.param(b"P1", purchase(amount=-1), Reason.OUT_OF_RANGE, id="negative"),
        pytest.param(b"P1", purchase(amount=b"1.255"), Reason.OUT_OF_RANGE, id="three decimals"),
        pytest.param(b"P1", purchase(amount=b"1e-3"), Reason.OUT_OF_RANGE, id="a tenth of a cent"),
        pytest.param(b"P1", purchase(amount=10**16), Reason.OUT_OF_RANGE, id="17 digits"),
        pytest.param(b"P1", purchase(amount=b"1e999999999"), Reason.OUT_OF_RANGE, id="huge exponent"),
        pytest.param(b"P1", purchase(amount=b"9" * 5000), Reason.OUT_OF_RANGE, id="more digits than Python converts"),
        pytest.param(b"P1", purchase(currency="eur"), Reason.OUT_OF_RANGE, id="no currency code"),
        pytest.param(b"P1", purchase(currency="EUR\n"), Reason.OUT_OF_RANGE, id="currency with a line break"),
        pytest.param(b"P1", purchase(occurredAtEpochMillis=-1), Reason.OUT_OF_RANGE, id="before 1970"),
        pytest.param(b"P1", purchase(occurredAtEpochMillis=253402300800000), Reason.OUT_OF_RANGE, id="year 10000"),
        pytest.param(b"P2", purchase(), Reason.KEY_MISMATCH, id="another key"),
        pytest.param(b"P2", purchase(currency="USD"), Reason.KEY_MISMATCH, id="key goes before currency"),
        pytest.param(b"P1", purchase(currency="USD"), Reason.CURRENCY_MISMATCH, id="another currency"),
        pytest.param(
            b"P1", purchase(occurredAtEpochMillis=NOW + 300_001), Reason.TIMESTAMP_IN_FUTURE, id="in the future"
        ),
        pytest.param(
            b"P1",
            purchase(purchaseId="P2")[:-1] + b',"purchaseId":"P1","amount":"x"}',
            Reason.WRONG_TYPE,
            id="last name wins",
        ),
    ],
)
def test_purchase_is_refused(key: bytes | None, value: bytes | None, reason: Reason) -> None:
    assert contract.purchase(key, value, NOW, "EUR", **NOW_IN_FORCE) == reason


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, ("P1", "C1", "X", 125, "EUR", NOW, None), id="plain"),
        pytest.param({"riskScore": 0}, ("P1", "C1", "X", 125, "EUR", NOW, 0), id="no risk"),
        pytest.param({"riskScore": 100}, ("P1", "C1", "X", 125, "EUR", NOW, 100), id="highest risk"),
        pytest.param({"riskScore": None}, ("P1", "C1", "X", 125, "EUR", NOW, None), id="risk null"),
        pytest.param({"productId": ...}, ("P1", "C1", None, 125, "EUR", NOW, None), id="product left out"),
        pytest.param({"productId": None}, ("P1", "C1", None, 125, "EUR", NOW, None), id="product null"),
        pytest.param({"amount": 0}, ("P1", "C1", "X", 0, "EUR", NOW, None), id="nothing paid"),
        pytest.param(
            {"more": b"[1.5,{}]"}, ("P1", "C1", "X", 125, "EUR", NOW, None), id="unknown fields are kept, not refused"
        ),
        pytest.param(
            {"more": b"9" * 5000}, ("P1", "C1", "X", 125, "EUR", NOW, None), id="unknown number of any length"
        ),
        pytest.param(
            {"more": b"[" * 255 + b"]" * 255},
            ("P1", "C1", "X", 125, "EUR", NOW, None),
            id="nested as deeply as allowed",
        ),
        pytest.param(
            {"more": "[" * 300 + '"'}, ("P1", "C1", "X", 125, "EUR", NOW, None), id="brackets in text are text"
        ),
        pytest.param(
            {"customerId": b'"\\ud83d\\ude00"'}, ("P1", "😀", "X", 125, "EUR", NOW, None), id="pair of surrogates"
        ),
        pytest.param(
            {"occurredAtEpochMillis": NOW + 300_000},
            ("P1", "C1", "X", 125, "EUR", NOW + 300_000, None),
            id="five minutes ahead",
        ),
    ],
)
def test_purchase_is_accepted(changes: dict[str, Any], expected: tuple[Any, ...]) -> None:
    assert contract.purchase(b"P1", purchase(**changes), NOW, "EUR", **NOW_IN_FORCE) == expected


@pytest.mark.parametrize(
    ("text", "cents"),
    [
        pytest.param("0.1", 10, id="one decimal"),
        pytest.param("12.99", 1299, id="two decimals"),
        pytest.param("1.100", 110, id="zeros at the end are no decimals"),
        pytest.param("1e2", 10_000, id="exponent"),
        pytest.param("1050E-2", 1050, id="negative exponent"),
        pytest.param("-0.0", 0, id="minus zero"),
        pytest.param("0e999", 0, id="zero with an exponent"),
        pytest.param("9999999999999999.99", 10**18 - 1, id="the greatest amount"),
        pytest.param("0.29", 29, id="no binary fraction"),
        pytest.param("1." + "0" * 98, 100, id="as long as allowed"),
        pytest.param("1." + "0" * 99, None, id="too long"),
        pytest.param("1e9999999999999999999", None, id="exponent too long"),
        pytest.param("-0.01", None, id="negative"),
    ],
)
def test_amounts_are_exact(text: str, cents: int | None) -> None:
    assert cents_of(NumberText(text)) == cents


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        pytest.param(b"C1", profile(), ("C1", "Ada", "ada@example.org", "1 Old Road", "gold", NOW), id="whole"),
        pytest.param(
            b"C1",
            profile(email=..., address=None, loyaltyStatus=...),
            ("C1", "Ada", None, None, None, NOW),
            id="optional",
        ),
        pytest.param(
            b"C1", profile(name=""), ("C1", "", "ada@example.org", "1 Old Road", "gold", NOW), id="a name may be empty"
        ),
        pytest.param(b"C1", None, ("C1", None, None, None, None, None), id="tombstone"),
        pytest.param(b"", None, Reason.MISSING_KEY, id="tombstone without key"),
        pytest.param(b"\xff", None, Reason.NOT_UTF8, id="tombstone for no text"),
        pytest.param(b"C1", b"", Reason.NOT_JSON, id="empty is not null"),
        pytest.param(b"C1", profile(name=None), Reason.WRONG_TYPE, id="name null"),
        pytest.param(b"C1", profile(updatedAtEpochMillis=...), Reason.MISSING_FIELD, id="no time"),
        pytest.param(b"C1", profile(customerId=""), Reason.OUT_OF_RANGE, id="empty id"),
        pytest.param(b"C2", profile(), Reason.KEY_MISMATCH, id="another key"),
        pytest.param(
            b"C1", profile(updatedAtEpochMillis=NOW + 300_001), Reason.TIMESTAMP_IN_FUTURE, id="in the future"
        ),
    ],
)
def test_profile_is_read(key: bytes, value: bytes | None, expected: object) -> None:
    assert contract.profile(key, value, NOW, **NOW_IN_FORCE) == expected


def test_pipeline_and_oracle_read_mutilated_records_alike() -> None:
    """Two parsers, written apart, on records with random faults: same verdict, same reason."""
    chance = random.Random(7)
    names = ["purchaseId", "amount", "currency", "occurredAtEpochMillis", "x"]
    numbers = [b"1", b"-1", b"1.5", b"1.999", b"1e2", b"1e-3"]
    odd = [*numbers, b'""', b'"EUR"', b'"USD"', b"null", b"true", b"[]", b'"\\ud800"', b"NaN"]
    records = []
    for offset in range(600):
        value = bytearray(purchase(**{chance.choice(names): chance.choice(odd)}))
        if chance.random() < 0.3:
            value[chance.randrange(len(value))] = chance.choice(b'\xff"\\,:{}[]0 ')
        records.append(RawRecord(0, offset, NOW, chance.choice([b"P1", b"P1", b"P1", b"P2", b""]), bytes(value), ()))
    batch = at(kafka_batch([Record(PURCHASES, record.key, record.value) for record in records]), NOW)
    parsed = parse(batch, datetime.now(UTC)).to_pylist()
    for record, row in zip(records, parsed, strict=True):
        judged = oracle.judge_purchase(record, LANDED, "EUR")
        if isinstance(judged, Refused):
            assert row["reason"] == judged.reason, record.value
        else:
            said = (row["reason"], row["customer_id"], row["amount"] * 100)
            assert said == (None, judged.customer_id, judged.amount), record.value
    common = {None, "not_json", "wrong_type", "out_of_range", "key_mismatch", "not_utf8"}
    assert {row["reason"] for row in parsed} >= common


# --- the fold ---


def test_first_record_of_a_purchase_counts_and_repeats_do_not() -> None:
    expected = expect(
        [
            ("P1", purchase()),
            ("P1", purchase(amount=b"1.250", more=1)),
            ("P1", purchase(amount=2)),
            ("P1", purchase(productId=None)),
            ("P2", purchase(purchaseId="P2", amount=b"0.10", occurredAtEpochMillis=5)),
            ("P1", b"{"),
        ]
    )
    assert expected.purchases["P1"].offset == 0
    assert expected.summaries["C1"] == ("C1", 2, 135, 5, NOW, NOW + 4)
    assert {at[2]: refused.reason for at, refused in expected.quarantine.items()} == {
        2: Reason.CONFLICTING_DUPLICATE,
        3: Reason.CONFLICTING_DUPLICATE,
        5: Reason.NOT_JSON,
    }
    assert expected.outcomes[PURCHASES] == {"read": 6, "accepted": 2, "quarantined": 3, "duplicate": 1, "stale": 0}


def test_the_lowest_offset_counts_in_whatever_order_records_were_found() -> None:
    records = [
        oracle.judge_purchase(RawRecord(0, offset, NOW, b"P1", purchase(amount=offset), ()), LANDED, "EUR")
        for offset in range(3)
    ]
    counted, refused, _ = oracle.fold_purchases({0: {offset: records[offset] for offset in (2, 0, 1)}})
    assert (counted["P1"].offset, [record.offset for record in refused]) == (0, [1, 2])


@pytest.mark.parametrize(
    ("updates", "current", "outcomes"),
    [
        pytest.param([(1, "a"), (2, "b")], (1, "b"), "accepted accepted", id="newer wins"),
        pytest.param([(2, "b"), (1, "a")], (0, "b"), "accepted stale", id="older changes nothing"),
        pytest.param([(1, "a"), (1, "b")], (1, "b"), "accepted accepted", id="equal times: the later offset wins"),
        pytest.param(
            [(1, "a"), (1, "a")], (0, "a"), "accepted duplicate", id="a repeat keeps the first record's place"
        ),
        pytest.param([(1, "a"), (2, "a")], (1, "a"), "accepted accepted", id="only the time is new"),
        pytest.param([(1, "a"), (1, "b"), (1, "a")], (2, "a"), "accepted accepted accepted", id="there and back"),
        pytest.param([(5, "a"), None, (1, "b")], (2, "b"), "accepted accepted accepted", id="afresh after a tombstone"),
        pytest.param(
            [(5, "a"), None, (5, "a")], (2, "a"), "accepted accepted accepted", id="no repeat across a tombstone"
        ),
        pytest.param([(5, "a"), (1, "b"), None], None, "accepted stale accepted", id="tombstone ends it"),
        pytest.param([None, None], None, "accepted accepted", id="tombstones for nobody"),
    ],
)
def test_profile_order(updates: list[tuple[int, str] | None], current: tuple[int, str] | None, outcomes: str) -> None:
    values = [None if update is None else profile(updatedAtEpochMillis=update[0], name=update[1]) for update in updates]
    expected = expect(profiles=[("C1", value) for value in values])
    held = expected.profiles.get("C1")
    assert (held and (held.offset, held.name)) == current
    words = outcomes.split()
    assert expected.outcomes[PROFILES] == {"read": len(words), "quarantined": 0} | {
        word: words.count(word) for word in ("accepted", "duplicate", "stale")
    }
    assert ("C1" in expected.gold) == (current is not None)
    if current is not None:
        assert expected.gold["C1"].as_of == NOW + 100 + current[0]


@pytest.mark.parametrize("order", list(permutations(["old", "purchase", "tombstone", "new"])), ids="-".join)
def test_every_order_of_profile_purchase_tombstone_profile(order: tuple[str, ...]) -> None:
    values = {
        "old": profile(updatedAtEpochMillis=1, name="old"),
        "new": profile(updatedAtEpochMillis=2, name="new"),
        "tombstone": None,
    }
    on_profile_topic = [name for name in order if name != "purchase"]
    expected = expect([("P1", purchase())], [("C1", values[name]) for name in on_profile_topic])
    survivors = on_profile_topic[on_profile_topic.index("tombstone") + 1 :]
    if not survivors:
        assert expected.gold == {}
    else:
        row = expected.gold["C1"]
        name = "new" if "new" in survivors else "old"  # the greatest update since the tombstone
        as_of = NOW + 100 + on_profile_topic.index(name)
        updated_at = {"old": 1, "new": 2}[name]
        who = ("C1", name, "ada@example.org", "1 Old Road", "gold", updated_at)
        assert row == (*who, 1, 125, "EUR", NOW, NOW, as_of)
    assert expected.summaries["C1"].purchase_count == 1


def test_as_of_is_the_newest_record_that_the_row_reflects() -> None:
    bought = [("P1", purchase()), ("P1", purchase())]  # the repeat, one millisecond later, does not count
    assert expect(bought, [("C1", profile())]).gold["C1"].as_of == NOW + 100
    logs: list[Log] = [
        {0: {0: oracle.judge_purchase(RawRecord(0, 0, NOW + 500, b"P1", purchase(), ()), LANDED, "EUR")}},
        {0: {0: oracle.judge_profile(RawRecord(0, 0, NOW, b"C1", profile(), ()), LANDED)}},
    ]
    expected = oracle.expect(*logs, purchase_topic=PURCHASES, profile_topic=PROFILES, currency="EUR")
    assert expected.gold["C1"].as_of == NOW + 500


def test_totals_stay_exact_up_to_the_end_of_their_type() -> None:
    records = [(f"P{n}", purchase(purchaseId=f"P{n}", amount=b"0.07")) for n in range(1_000)]
    large = ("Q", purchase(purchaseId="Q", amount=b"9999999999999929.99"))
    assert expect([*records, large]).summaries["C1"].total_amount == 10**18 - 1


# --- the order ---


def placed(*records: tuple[int, int, int | None, bytes | None]) -> Log:
    """Records of C1's profile: partition, offset, landing, value."""
    log: Log = {}
    for partition, offset, landing, value in records:
        raw = RawRecord(partition, offset, NOW, b"C1", value, ())
        log.setdefault(partition, {})[offset] = oracle.judge_profile(raw, Place(landing, NOW, NEWEST_RULES))
    return log


OLDER = profile(updatedAtEpochMillis=0, name="older")
OLD, NEW = profile(updatedAtEpochMillis=1, name="old"), profile(updatedAtEpochMillis=1, name="new")


@pytest.mark.parametrize(
    ("records", "name"),
    [
        pytest.param([(1, 0, 1, OLD), (0, 0, 2, NEW)], "new", id="a lower partition landed later"),
        pytest.param([(0, 5, 1, OLD), (1, 0, 2, NEW)], "new", id="a lower offset of another partition landed later"),
        pytest.param([(0, 0, 1, NEW), (1, 0, 1, OLD)], "old", id="one landing: by partition and offset"),
        pytest.param([(1, 0, None, OLD), (0, 0, 1, NEW)], "new", id="no number goes before any"),
        pytest.param([(0, 0, None, NEW), (1, 0, None, OLD)], "old", id="without numbers by partition and offset"),
        pytest.param([(1, 0, 1, OLD), (0, 0, 2, None)], None, id="a tombstone on another partition ends it"),
        pytest.param([(1, 0, 2, NEW), (0, 3, 1, None)], "new", id="and nothing that landed after it"),
        pytest.param([(0, 1, 1, OLD), (0, 0, 2, NEW)], "new", id="one that came back from quarantine is the newest"),
    ],
)
def test_what_landed_later_is_later(records: list[tuple[int, int, int | None, bytes | None]], name: str | None) -> None:
    current = oracle.fold_profiles(placed(*records))[0].get("C1")
    assert (current and current.name) == name


def test_the_first_purchase_to_land_counts() -> None:
    def log(first: int | None, second: int | None) -> Log:
        return {
            partition: {
                0: oracle.judge_purchase(
                    RawRecord(partition, 0, NOW, b"P1", purchase(amount=partition), ()), Place(landing, NOW, 2), "EUR"
                )
            }
            for partition, landing in enumerate((first, second))
        }

    assert [
        next(iter(oracle.fold_purchases(log(*landings))[0].values())).partition
        for landings in ((1, 2), (2, 1), (1, 1), (1, None), (None, None))
    ] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize(
    ("place", "ahead", "is_refused"),
    [
        pytest.param(Place(3, NOW, 2), 300_001, True, id="ahead of its landing"),
        pytest.param(Place(3, NOW, 2), 300_000, False, id="as far ahead as allowed"),
        pytest.param(Place(3, NOW, 1), 300_001, False, id="by the rules of before"),
        pytest.param(Place(None, None, 1), 300_001, False, id="landed before"),
        pytest.param(Place(3, NOW + 900_000, 2), 600_001, False, id="landed late, and its stamp is right"),
    ],
)
def test_a_clock_that_is_ahead_is_found_by_the_rules_that_were_in_force(
    place: Place, ahead: int, is_refused: bool
) -> None:
    stamped = NOW + 600_000  # by the same clock
    values = (b"P1", purchase(occurredAtEpochMillis=NOW + ahead)), (b"C1", profile(updatedAtEpochMillis=NOW + ahead))
    raws = [RawRecord(0, 0, stamped, key, value, ()) for key, value in values]
    judged = [oracle.judge_purchase(raws[0], place, "EUR"), oracle.judge_profile(raws[1], place)]
    assert [isinstance(record, Refused) for record in judged] == [is_refused] * 2


# --- totals that do not fit ---


HALF = 5 * 10**17  # cents: two of them are one too many


def overflowing(*profiles: bytes | None) -> oracle.Expected:
    """C1 buys for half of what fits, for a cent, for the other half, and for another cent."""
    amounts = (HALF, 1, HALF, 1)
    bought = [
        (f"P{n}", purchase(purchaseId=f"P{n}", amount=f"{cents // 100}.{cents % 100:02}".encode()))
        for n, cents in enumerate(amounts)
    ]
    return expect(bought, [("C1", value) for value in profiles])


def test_a_total_that_does_not_fit_is_none_and_the_rest_goes_on() -> None:
    expected = overflowing(profile())
    assert expected.summaries["C1"] == ("C1", 4, None, NOW, NOW, NOW + 3)
    assert expected.gold == {}
    assert [state.total_amount for state in expected.frozen["C1"].bought] == [HALF, HALF + 1]


@pytest.mark.parametrize(
    ("profiles", "position", "count", "total", "is_allowed"),
    [
        pytest.param([OLD], 0, 2, HALF + 1, True, id="as it was last right"),
        pytest.param([OLD], 0, 1, HALF, True, id="the last batch brought two"),
        pytest.param([OLD, NEW], 0, 2, HALF + 1, True, id="frozen before the profile changed"),
        pytest.param([OLD, NEW], 1, 0, 0, True, id="all purchases came at once"),
        pytest.param([OLD], 0, 3, 2 * HALF + 1, False, id="a total that does not fit"),
        pytest.param([OLD], 0, 2, HALF, False, id="a count that has another total"),
        pytest.param([OLD], 0, -1, HALF, False, id="no count at all"),
        pytest.param([NEW, OLDER], 1, 2, HALF + 1, False, id="a profile that never was current"),
        pytest.param([OLD, None], 0, 2, HALF + 1, False, id="a tombstone removes it"),
        pytest.param([OLD, None, NEW], 0, 2, HALF + 1, False, id="what was before the tombstone"),
    ],
)
def test_the_row_of_a_total_that_does_not_fit_is_one_that_was_right_once(
    profiles: list[bytes | None], position: int, count: int, total: int, is_allowed: bool
) -> None:
    frozen = overflowing(*profiles).frozen["C1"]
    said = oracle.judge_profile(RawRecord(0, position, NOW + 100 + position, b"C1", profiles[position], ()), LANDED)
    assert isinstance(said, Profile)
    at = NOW if count else None
    row = Activity(*said[:6], count, total, "EUR", at, at, said.kafka_timestamp)
    assert frozen.allows(row) is is_allowed
    assert not frozen.allows(row._replace(as_of=NOW + 999))
