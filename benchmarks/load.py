"""Load that does not wait for the pipeline: records are sent when they are due, however far behind the pipeline is.

Runs in a process of its own beside the pipeline on the same cores, so it is made cheap: values are formatted from
byte templates, and it wakes up fifty times a second. Customers are numbers; `customer_id` is how records name them.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from hashlib import blake2b
from itertools import repeat
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import NamedTuple

import numpy as np
from confluent_kafka import KafkaError, Message

from customer_activity.kafka import clients
from customer_activity.settings import Settings

SLICE_SECONDS = 0.02  # between two looks at the clock: 10 purchases at 500/s, and 50 wake-ups cost next to nothing
LINGER_MS = 5  # a purchase waits this long for others; it counts as the pipeline's delay
QUEUE_RECORDS = 200_000
FLUSH_SECONDS = 60.0
MAX_CENTS = 20_000
CUSTOMER_PREFIX = b"C-"
CUSTOMER = re.compile(rb"C-\d{8}")
PURCHASE_ID = re.compile(rb"p-[a-z]+\d*-\d+")
TRACED = "LOAD_TRACED"  # the variable by which each record has a trace of its own
PRELOADED_AT_MS = 1_700_000_000_000  # profiles that were there before: any update of a run is newer

PURCHASE = (
    b'{"purchaseId":"%b","customerId":"C-%08d","productId":"P-%05d","amount":%d.%02d,'
    b'"currency":"%b","occurredAtEpochMillis":%d}'
)
PAYMENT = b'{"purchaseId":"%b","paymentId":"pay-%b","amount":%d.%02d,"currency":"%b","confirmedAtEpochMillis":%d}'
PROFILE = (
    b'{"customerId":"C-%08d","name":"Customer %d","email":"customer-%d@example.com",'
    b'"address":"%d Orchard Street, flat %d, Kingsmere","loyaltyStatus":"%b","updatedAtEpochMillis":%d}'
)
LOYALTY = (b"BASIC", b"SILVER", b"GOLD", b"PLATINUM")


class Schedule(NamedTuple):
    """What to send, and when.

    Attributes:
        customers: purchases and updates go to customers 0 … customers-1, drawn evenly.
        purchases_per_second: rate of purchases.
        profiles_per_second: rate of profile updates.
        seconds: how long.
        label: part of the purchase ids; two schedules of one run need two labels.
        seed: of the draw.
    """

    customers: int
    purchases_per_second: int
    profiles_per_second: int
    seconds: float
    label: str = "load"
    seed: int = 0


class LoadReport(NamedTuple):
    """What was sent.

    Attributes:
        purchases: purchases sent and confirmed.
        profiles: profile updates sent and confirmed.
        started_ms: epoch milliseconds of the first slice.
        seconds: until the last record was handed to the client.
        max_lateness_seconds: how late the latest slice was: large where the machine was too busy for the load.
    """

    purchases: int
    profiles: int
    started_ms: int
    seconds: float
    max_lateness_seconds: float


def customer_id(number: int) -> bytes:
    """Return the id of a customer, as it stands in keys."""
    return b"%b%08d" % (CUSTOMER_PREFIX, number)


def customer_number(identity: bytes | str) -> int:
    """Return the customer's number; the inverse of `customer_id`."""
    return int(identity[len(CUSTOMER_PREFIX) :])


def is_customer(identity: bytes) -> bool:
    """Whether it is the id of one of the load's customers: others may send, too."""
    return bool(CUSTOMER.fullmatch(identity))


def is_purchase(identity: bytes) -> bool:
    """Whether it is the id of one of the load's purchases: that of another sender may begin as they do."""
    return bool(PURCHASE_ID.fullmatch(identity))


class Sender:
    """A Kafka producer that makes and sends purchases and profile updates, and never loses one silently."""

    def __init__(self, settings: Settings, label: str, seed: int = 0, *, mixed: bool = False) -> None:
        """Connect; ids of purchases are p-<label>-<number>, a label is letters with or without digits behind them.

        Mixed, they are digests of these: 32 hexadecimal digits in no order, as those of UUIDs. Statistics of files
        exclude ids that are in order, and local state has them on neighbouring pages.
        """
        self.settings = settings
        self.currency = settings.currency.encode()
        self.label = label.encode()
        self.mixed = mixed
        self.purchases = 0
        self.profiles = 0
        self.random = np.random.default_rng(seed)
        self.newest_update: dict[int, int] = {}
        self.failures: list[KafkaError] = []
        self.is_traced = bool(os.environ.get(TRACED))
        self.is_paid = "payments" in settings.optional_streams
        self.connect()

    def connect(self) -> None:
        """Connect, perhaps anew: a client that has known a topic for long learns of added partitions minutes later."""
        self.producer = clients.producer(
            self.settings,
            linger_ms=LINGER_MS,
            batch_num_messages=10_000,
            queue_buffering_max_messages=QUEUE_RECORDS,
            delivery_report_only_error=True,
        )

    def _report(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self.failures.append(error)

    def send_purchases(self, customers: np.ndarray) -> None:
        """Send one purchase of each of these customers, bought now; nine of ten are paid, where payments are joined."""
        draws = self.random.integers(MAX_CENTS, size=customers.size).tolist()
        now_ms = time.time_ns() // 1_000_000
        for customer, cents in zip(customers.tolist(), draws, strict=True):
            purchase_id = b"p-%b-%d" % (self.label, self.purchases)
            if self.mixed:
                purchase_id = blake2b(purchase_id, digest_size=16).hexdigest().encode()
            product = cents * 7 % 99_991
            amount = (cents // 100, cents % 100)
            value = PURCHASE % (purchase_id, customer, product, *amount, self.currency, now_ms)
            self._produce(self.settings.purchase_topic, purchase_id, value)
            self.purchases += 1
            if self.is_paid and self.purchases % 10:
                paid = PAYMENT % (purchase_id, purchase_id, *amount, self.currency, now_ms)
                self._produce(self.settings.payment_topic, purchase_id, paid)

    def send_profiles(self, customers: np.ndarray) -> None:
        """Send an update of each of these customers: a new address, at a time after the customer's last update."""
        now_ms = time.time_ns() // 1_000_000
        for customer in customers.tolist():
            updated_ms = max(now_ms, self.newest_update.get(customer, 0) + 1)
            self.newest_update[customer] = updated_ms
            self._send_profile(customer, self.profiles + 1, updated_ms)

    def preload_profiles(self, customers: int) -> None:
        """Send the first profile of every customer."""
        for customer in range(customers):
            self._send_profile(customer, 0, PRELOADED_AT_MS)

    def _send_profile(self, customer: int, flat: int, updated_ms: int) -> None:
        loyalty = LOYALTY[customer % len(LOYALTY)]
        value = PROFILE % (customer, customer, customer, customer % 199 + 1, flat, loyalty, updated_ms)
        self._produce(self.settings.profile_topic, customer_id(customer), value)
        self.profiles += 1

    def _produce(self, topic: str, key: bytes, value: bytes) -> None:
        while True:
            try:
                self.producer.produce(topic, value, key, on_delivery=self._report, headers=self._headers())
            except BufferError:
                self.producer.poll(SLICE_SECONDS)
            else:
                return

    def _headers(self) -> list[tuple[str, str | bytes | None]] | None:
        if not self.is_traced:
            return None
        number = self.purchases + self.profiles + 1
        return [("traceparent", f"00-{number:016x}{self.random.bytes(8).hex()}-{number:016x}-01")]

    def flush(self) -> None:
        """Wait until Kafka has confirmed everything.

        Raises:
            RuntimeError: it did not.
        """
        unconfirmed = self.producer.flush(FLUSH_SECONDS)
        if unconfirmed or self.failures:
            raise RuntimeError(f"Kafka did not confirm the load: {unconfirmed} records open, {self.failures[:1]}")


def send(settings: Settings, schedule: Schedule, is_stopping: Callable[[], bool] = lambda: False) -> LoadReport:
    """Send a schedule's records, each in the slice of time in which it is due, or those until `is_stopping`."""
    sender = Sender(settings, schedule.label, schedule.seed)
    started, started_ms = time.monotonic(), time.time_ns() // 1_000_000
    lateness = 0.0
    for due in _slices(schedule.seconds):
        wait = started + due - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        lateness = max(lateness, -wait)
        if is_stopping():
            break
        for rate, sent, deliver in (
            (schedule.purchases_per_second, sender.purchases, sender.send_purchases),
            (schedule.profiles_per_second, sender.profiles, sender.send_profiles),
        ):
            if (count := int(due * rate + 1e-6) - sent) > 0:
                deliver(sender.random.integers(schedule.customers, size=count))
        sender.producer.poll(0)
    seconds = time.monotonic() - started
    sender.flush()
    return LoadReport(sender.purchases, sender.profiles, started_ms, round(seconds, 3), round(lateness, 3))


def _slices(seconds: float) -> Iterator[float]:
    """Yield the ends of the slices, in seconds from the start."""
    count = round(seconds / SLICE_SECONDS)
    yield from (number * SLICE_SECONDS for number in range(1, count + 1))


def backlog(
    settings: Settings,
    customers: int,
    purchases: int,
    label: str = "backlog",
    *,
    hot: float = 0.0,
    profiles: bool = True,
    mixed: bool = False,
) -> LoadReport:
    """Send a profile of every customer and then that many purchases, as fast as Kafka takes them.

    Args:
        settings: which broker and topics.
        customers: whose purchases they are, drawn evenly.
        purchases: how many.
        label: part of the purchase ids.
        hot: share of the purchases that are customer 0's besides.
        profiles: whether profiles are sent at all.
        mixed: whether ids of purchases are in no order.
    """
    sender = Sender(settings, label, mixed=mixed)
    started, started_ms = time.monotonic(), time.time_ns() // 1_000_000
    if profiles:
        sender.preload_profiles(customers)
    whole, rest = divmod(purchases, QUEUE_RECORDS)
    for size in (*repeat(QUEUE_RECORDS, whole), rest):
        chosen = sender.random.integers(customers, size=size)
        if hot:
            chosen[sender.random.random(size) < hot] = 0
        sender.send_purchases(chosen)
    sender.flush()
    return LoadReport(sender.purchases, sender.profiles, started_ms, round(time.monotonic() - started, 3), 0.0)


@contextmanager
def running(settings: Settings, schedule: Schedule) -> Iterator[Future[LoadReport]]:
    """Send a schedule in a process of its own; the future is done when everything is confirmed.

    Leaving early, because of an error, ends the load early.
    """
    context = get_context("spawn")
    stopping = context.Event()
    with ProcessPoolExecutor(1, context, initializer=_listen, initargs=(stopping,)) as process:
        try:
            yield process.submit(_send_until_told, settings, schedule)
        finally:
            stopping.set()


_stopping: list[Event] = []  # of the load's process: an event reaches it only as it starts


def _listen(stopping: Event) -> None:
    _stopping.append(stopping)


def _send_until_told(settings: Settings, schedule: Schedule) -> LoadReport:
    return send(settings, schedule, _stopping[0].is_set)
