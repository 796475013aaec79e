"""What anybody may send: one vocabulary of records, as Hypothesis strategies and in a seeded form.

Customers with and without profiles in every order, ids and texts that break careless readers, amounts beyond a total's
range, keys on several partitions, other clients' headers, clocks that are ahead, and every kind of bad record. Each
record says why it has to be refused, where it has to. All is drawn through `Choices`: Hypothesis' form shrinks to the
first of each list of options, `random.Random` is the seeded form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from hypothesis import strategies as st

from customer_activity.catalog import PURCHASES_ROLE, Reason
from customer_activity.demo.traffic import poison
from support.records import NOW_MS, PROFILES, PURCHASES, Record, profile, purchase, tombstone

T = TypeVar("T")
Headers = tuple[tuple[str, bytes | None], ...]

PLAIN = ("C-1", "C-2", "C-3")
# Equal to another one for who ignores case, the form of accents, width, blanks, or which side an id is of.
TWINS = ("c-1", "C-\u00e9", "C-e\u0301", "C-1 ", "C-\uff11", "P-1")
ODD = ("C-\U0001f600", "C-'\"\\%_", "\u202eC-1", "null", "1e5", "C-\ufeff", "C-" + "x" * 5_000)
CONTROLS = ("C-\x00", "C-\x001", "C-\x1b[2J", "C-\x7f", "C-\x85", "C-\n")  # ids with them are refused
PURCHASE_IDS = ("P-1", "P-2", "P-3", "P-4", "P-5", "P-6", "C-1", "p-1", "P-\U0001f600")
CONTROL_PURCHASE_IDS = ("P-\x00", "P-\x1b[0m")
TEXTS = (
    "Old",
    "New",
    "",
    "a\x00b",
    "\x1b[31mred",
    "<img src=x onerror=alert(1)>",
    "\u202egnol",
    "e\u0301\u00e9\U0001f600",
)
AMOUNTS = ("1.10", "2.20", "0", "0.01")
HUGE = "9999999999999999.99"  # the most that a record may say; two of them are more than a total may say
TIMES = (1_000, 5_000)
UPDATES = (1, 2, 3, 4)
AHEAD_MS = 4_102_444_800_000  # 2100-01-01: a clock that is far ahead
LAST_PARTITION = 2  # is added mid-way
PARTITIONS = (None, None, None, 0, 1, LAST_PARTITION)  # None: the one that the key's hash says
LARGE_BYTES = 1 << 20
OTHERS_HEADERS: Headers = (
    ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("na\u00efve \x1b[0m", b"\x00\xff\xfe"),
    ("", b""),
    ("attempt", b"1"),
    ("attempt", b"2"),
    ("origin", None),
)
LARGE_SHARE = 0.4  # of batches of everything
BAD_ID = "BAD"  # of every bad record, and of no good one


class Choices(Protocol):
    """What draws: `random.Random`, or Hypothesis."""

    def choice(self, options: Sequence[T], /) -> T:
        """Return one of the options."""
        ...


class Sent(NamedTuple):
    """A record, the partition that its producer chose (None: by the key's hash), and why it must be refused."""

    record: Record
    partition: int | None = None
    reason: Reason | None = None


def _purchase(choices: Choices, customers: Sequence[str], **changes: Any) -> Sent:
    fields: dict[str, Any] = {
        "purchase_id": choices.choice(PURCHASE_IDS),
        "amount": choices.choice(AMOUNTS),
        "at": choices.choice(TIMES),
    }
    made = purchase(customer_id=choices.choice(customers), **(fields | changes))
    return Sent(made, choices.choice(PARTITIONS))


def _profile(choices: Choices, customers: Sequence[str], **changes: Any) -> Sent:
    fields: dict[str, Any] = {"updated": choices.choice(UPDATES), "address": choices.choice(TEXTS[:2])}
    return Sent(profile(choices.choice(customers), **(fields | changes)), choices.choice(PARTITIONS))


def purchases(choices: Choices) -> list[Sent]:
    """A purchase of a plain customer."""
    return [_purchase(choices, PLAIN)]


def profiles(choices: Choices) -> list[Sent]:
    """A profile of a plain customer."""
    return [_profile(choices, PLAIN)]


def tombstones(choices: Choices) -> list[Sent]:
    """The end of a profile."""
    return [Sent(tombstone(choices.choice(PLAIN + TWINS)), choices.choice(PARTITIONS))]


def odd(choices: Choices) -> list[Sent]:
    """Either side of a customer whose id is odd, or nearly another's."""
    make = choices.choice((_purchase, _profile))
    return [make(choices, TWINS + ODD)]


def odd_texts(choices: Choices) -> list[Sent]:
    """A profile with texts that a careless reader cuts, runs or shows."""
    return [_profile(choices, PLAIN, address=choices.choice(TEXTS), name=choices.choice(TEXTS))]


def control_ids(choices: Choices) -> list[Sent]:
    """Records with control characters in an id."""
    of_customer = choices.choice(CONTROLS)
    made = choices.choice(
        (
            purchase(choices.choice(PURCHASE_IDS), of_customer),
            profile(of_customer, choices.choice(UPDATES)),
            tombstone(of_customer),
            purchase(choices.choice(CONTROL_PURCHASE_IDS), choices.choice(PLAIN)),
            purchase(choices.choice(PURCHASE_IDS), choices.choice(PLAIN), productId="A\x00"),
        )
    )
    return [Sent(made, choices.choice(PARTITIONS), Reason.OUT_OF_RANGE)]


def fortunes(choices: Choices) -> list[Sent]:
    """The greatest amount some times for one customer: a sum beyond the range, and one that wraps 64 bits."""
    customer = choices.choice(PLAIN)
    times = choices.choice((1, 2, 10, 19))
    return [Sent(purchase(f"H-{number}", customer, HUGE), choices.choice(PARTITIONS)) for number in range(times)]


def others_headers(choices: Choices) -> list[Sent]:
    """A record with headers of other clients."""
    (sent,) = choices.choice((purchases, profiles))(choices)
    return [sent._replace(record=replace(sent.record, headers=OTHERS_HEADERS))]


def large(choices: Choices) -> list[Sent]:
    """A record of a megabyte: in a field that nobody knows, or in one that the view says, too."""
    padding = "x" * LARGE_BYTES
    if choices.choice(("unknown", "address")) == "unknown":
        return [_purchase(choices, PLAIN, note=padding)]
    return [_profile(choices, PLAIN, address=padding)]


def clocks_ahead(choices: Choices) -> list[Sent]:
    """Records of a producer whose clock is far ahead: refused where the event is of the future, too."""
    refused = Reason.TIMESTAMP_IN_FUTURE
    return [
        choices.choice(
            (
                _profile(choices, PLAIN, sent=AHEAD_MS, updated=AHEAD_MS)._replace(reason=refused),
                _purchase(choices, PLAIN, sent=AHEAD_MS, at=AHEAD_MS)._replace(reason=refused),
                _profile(choices, PLAIN, sent=NOW_MS, updated=AHEAD_MS)._replace(reason=refused),
                _profile(choices, PLAIN, sent=AHEAD_MS),
            )
        )
    ]


def bad(choices: Choices) -> list[Sent]:
    """A record that the contracts refuse; one of every kind there is."""
    kind = choices.choice(KINDS)
    made = poison.record(kind, BAD_ID, "EUR")
    topic = PURCHASES if made.role == PURCHASES_ROLE else PROFILES
    record = Record(topic, made.key, made.value, headers=tuple(made.headers))
    return [Sent(record, choices.choice(PARTITIONS), kind.reason)]


KINDS = tuple(kind for kind in poison.KINDS if "deep_nesting" not in kind.name)  # 200 kB each, and the parser's own
Maker = Callable[[Choices], list[Sent]]
# Commoner ones are there more than once; what comes first is what Hypothesis shrinks to.
MAKERS: tuple[Maker, ...] = (
    *(purchases,) * 3,
    *(profiles,) * 3,
    *(tombstones,) * 2,
    *(odd,) * 2,
    odd_texts,
    control_ids,
    fortunes,
    others_headers,
    clocks_ahead,
    bad,
)
RARE = (large,)


def drawn(choices: Choices, makers: Sequence[Maker] = MAKERS) -> list[Sent]:
    """Return one record, or some that belong together."""
    return choices.choice(makers)(choices)


def seeded(seed: int, records: int, makers: Sequence[Maker] = (*MAKERS, *RARE)) -> list[Sent]:
    """Return so many records or a few more, the same for the same seed."""
    random = Random(seed)
    sent: list[Sent] = []
    while len(sent) < records:
        sent += drawn(random, makers)
    return sent


class _Drawn:
    """Hypothesis as Choices."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def choice(self, options: Sequence[T], /) -> T:
        return self.draw(st.sampled_from(options))


@st.composite
def records(draw: st.DrawFn, makers: Sequence[Maker] = MAKERS, *, max_size: int = 6) -> tuple[Sent, ...]:
    """Batches of records, in the order in which they are sent."""
    made = draw(st.lists(st.builds(lambda: None), max_size=max_size))
    choices = _Drawn(draw)
    return tuple(sent for _ in made for sent in drawn(choices, makers))


class Everything:
    """Batches that have nearly every kind of record in them, each time of other customers and in another order."""

    def __init__(self, random: Random, large_share: float = LARGE_SHARE) -> None:
        """Draw from here; so many of the batches have records of a megabyte."""
        self.random = random
        self.large_share = large_share
        self.begin()

    def begin(self) -> None:
        """Begin a world: nobody is known."""
        self.number = 0

    def records(self) -> list[Sent]:
        """Return the next batch: what belongs together in its order, everything else anywhere between."""
        self.number += 1
        number, late = self.number, self.number - 1
        old, new = f"A-{number}", f"B-{number}"
        first, amount = f"Q-{number}", self.random.choice(AMOUNTS[:2])
        stories: list[list[Record]] = [
            # One whose profile comes first; all that can become of a purchase afterwards.
            [profile(old, 2), purchase(first, old, amount), purchase(first, old, amount), purchase(first, old, "7.77")],
            # All that can become of a profile; in the batch after, it comes back, or is removed once more.
            [profile(new, 2), profile(new, 1), profile(new, 3, address=self.random.choice(TEXTS[2:])), tombstone(new)],
            [profile(f"B-{late}", 1), tombstone(f"A-{late}"), tombstone(f"A-{late}"), profile(f"A-{late}", 1)],
            # Purchases long before the profile, which comes in the next batch, or alone some time.
            [purchase(f"E-{number}", f"E-{number}", HUGE), profile(f"E-{late}", 1)],
            [purchase(f"F-{number}", f"F-{number}", amount), profile(f"C-{number}", 1)],
            # The greatest amount once, and too often.
            [profile(f"J-{number}", 1), purchase(f"J-{number}", f"J-{number}", HUGE)],
            [purchase(f"H-{number}-{n}", "H", HUGE) for n in range(self.random.choice((2, 3, 10)))],
            [profile("H", number, address=self.random.choice(TEXTS))],
            [profile(f"K-{number}", 1, sent=AHEAD_MS)],
            # Ids that are odd, headers that others send, and now and then a megabyte: on either side.
            *self._on_either_side(self.random.choice(TWINS + ODD)),
            *self._on_either_side(f"O-{number}", headers=OTHERS_HEADERS),
            *(self._on_either_side(f"L-{number}", padding="x" * LARGE_BYTES) if self._is_large() else ()),
        ]
        sent = [[Sent(record, self.random.choice(PARTITIONS)) for record in story] for story in stories]
        sent += [[self._moved(profile("M", number)), self._moved(purchase(f"M-{number}", "M"))]]
        sent += [[self._moved(purchase(f"M-{late}", "M"))]]
        sent += [maker(self.random) for maker in (odd, odd_texts, control_ids, clocks_ahead, bad)]
        sent.append([self._future(number)])
        return self._merged(sent)

    def _on_either_side(self, customer: str, padding: str = "", headers: Headers = ()) -> list[list[Record]]:
        """Return two stories: a profile of a customer, and a purchase."""
        said = self.random.choice(("note", "address")) if padding else ""  # unknown, or in the view, too
        more: dict[str, Any] = {said: padding} if padding else {}
        bought: dict[str, Any] = {"note": padding} if padding else {}
        sides = profile(customer, self.number, **more), purchase(f"S-{customer}-{self.number}", customer, **bought)
        return [[replace(side, headers=headers)] for side in sides]

    def _is_large(self) -> bool:
        return self.random.random() < self.large_share

    def _future(self, number: int) -> Sent:
        """Return an update whose time is ahead of every clock."""
        return Sent(profile(f"K-{number}", AHEAD_MS, sent=AHEAD_MS), None, Reason.TIMESTAMP_IN_FUTURE)

    def alone(self) -> tuple[Sent, Sent]:
        """Return two records of one customer that come alone, one after the other: the first may change no row."""
        number = f"N-{self.number}-{self.random.randrange(1_000_000)}"
        sides = [profile(number, 1), purchase(number, number, "1.00")]
        self.random.shuffle(sides)
        return Sent(sides[0]), Sent(sides[1])

    def _moved(self, record: Record) -> Sent:
        """Put a key on one partition after the other."""
        return Sent(record, self.number % 3)

    def _merged(self, stories: list[list[Sent]]) -> list[Sent]:
        """Return records of all in a random order in which each story keeps its own."""
        order = [at for at, story in enumerate(stories) for _ in story]
        self.random.shuffle(order)
        following = [iter(story) for story in stories]
        return [next(following[at]) for at in order]
