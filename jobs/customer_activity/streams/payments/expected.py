"""What the tables of payments must hold, as queries over all purchases and payments at once: `activity verify`'s side.

They see everything together and know nothing of batches, landings that are read, or what was unmatched before.
"""

from __future__ import annotations

from collections.abc import Iterable

from customer_activity.catalog import Table
from customer_activity.contracts.columns import OWED, PAYMENT_FIELDS, POSITION, names
from customer_activity.streams.event_time.clock import EXPECTED as STAMPED
from customer_activity.topology import How, Made

_MATCHED = """
terms AS (
    SELECT to_microseconds(round(payment_minutes * 60000000)::BIGINT) AS payment_time,
        to_microseconds(round(grace_hours * 3600000000)::BIGINT) AS grace
    FROM definition
),
compared AS (
    SELECT payments.*, owed.occurred_at, owed.customer_id AS buyer, owed.purchase_id IS NOT NULL AS has_purchase,
        nullif(concat_ws(',',
            CASE WHEN payments.amount <> owed.amount THEN 'amount' END,
            CASE WHEN payments.currency <> owed.currency THEN 'currency' END,
            CASE WHEN payments.customer_id <> owed.customer_id THEN 'customer_id' END), '') AS differs_in
    FROM payments LEFT JOIN purchases AS owed USING (purchase_id)
),
ranked AS (
    SELECT *, has_purchase AND differs_in IS NULL AS agrees,
        row_number() OVER (
            PARTITION BY purchase_id, has_purchase AND differs_in IS NULL ORDER BY landing, "partition", "offset"
        ) AS number
    FROM compared
),
counting AS (FROM ranked WHERE agrees AND number = 1)
"""
PAID = f"""
WITH {_MATCHED}
SELECT purchase_id, buyer AS customer_id, amount, currency, occurred_at, payment_id, confirmed_at,
    epoch_ms(confirmed_at) - epoch_ms(occurred_at) AS paid_after_ms, confirmed_at < occurred_at AS is_early,
    confirmed_at - occurred_at > payment_time AS is_late, "partition", "offset", kafka_timestamp, landing
FROM counting, terms
"""  # noqa: S608 - constants
UNPAID = f"""
WITH {_MATCHED}, stamped AS ({STAMPED}), reached AS (SELECT max(next_watermark) AS watermark FROM stamped)
SELECT purchase_id, customer_id, amount, currency, occurred_at, occurred_at + payment_time AS due_at
FROM purchases ANTI JOIN counting USING (purchase_id), terms, reached
WHERE watermark >= occurred_at + payment_time + grace
"""  # noqa: S608 - likewise
UNMATCHED = f"""
WITH {_MATCHED}
SELECT ranked.*,
    CASE WHEN NOT ranked.has_purchase THEN 'no_purchase' WHEN ranked.differs_in IS NOT NULL THEN 'differs'
        WHEN ranked.payment_id = counting.payment_id THEN 'repeated' ELSE 'paid_twice' END AS reason
FROM ranked LEFT JOIN counting USING (purchase_id) WHERE NOT (ranked.agrees AND ranked.number = 1)
"""  # noqa: S608 - likewise


def _of(table: Table, columns: Iterable[str]) -> tuple[Made, ...]:
    """Columns that one of the two sources has, where both have one of that name."""
    return tuple(Made(name, (f"{table.label}:{name}",), How.IDENTITY) for name in columns)


_BOUGHT, _PAID = "occurred_at", "confirmed_at"
MADE_OF_PAID = (
    *_of(Table.TIMED_PURCHASES, names(OWED)),
    *_of(Table.PAYMENT_EVENTS, names(POSITION)),
    *(Made(name, (_BOUGHT, _PAID)) for name in ("paid_after_ms", "is_early", "is_late")),
)
MADE_OF_UNPAID = (*_of(Table.TIMED_PURCHASES, names(OWED)), Made("due_at", (_BOUGHT,)))
MADE_OF_UNMATCHED = (
    *_of(Table.PAYMENT_EVENTS, names([*PAYMENT_FIELDS, *POSITION])),
    Made("reason", ("purchase_id", "payment_id")),
    Made("differs_in", ("amount", "currency", "customer_id")),
)
