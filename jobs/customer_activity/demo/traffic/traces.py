"""Give records traces, as the services that send them would: W3C's header `traceparent`, another one for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from customer_activity.demo.traffic.record import Record

HEADER = "traceparent"


def traced(records: Iterable[Record], seed: int) -> Iterator[Record]:
    """Yield the records with a trace each; those of other clients that have one keep it."""
    random = Random(f"traces of {seed}")
    for record in records:
        if any(name == HEADER for name, _ in record.headers):
            yield record
            continue
        value = f"00-{random.getrandbits(128) or 1:032x}-{random.getrandbits(64) or 1:016x}-01"
        yield record._replace(headers=(*record.headers, (HEADER, value.encode())))
