"""The alerts once more, as a query over all purchases at once: `activity verify` holds the table against it.

A session is made of all purchases before one, for each anew: which of their groups it touches, and how large these are.
"""

from __future__ import annotations

from customer_activity.streams.event_time.clock import EXPECTED as STAMPED

ALERTS = f"""
WITH limits AS (
    SELECT *, to_microseconds(round(grace_minutes * 60000000)::BIGINT) AS grace,
        to_minutes(gap_minutes) AS gap, to_minutes(gap_minutes * session_purchases) AS reach
    FROM definition
),
stamped AS ({STAMPED}),
placed AS (
    SELECT stamped.*, limits.*,
        make_timestamp(epoch_us(occurred_at) // (window_minutes * 60000000) * window_minutes * 60000000)
            AT TIME ZONE 'UTC' AS begins,
        row_number() OVER (ORDER BY landing, "partition", "offset") AS place
    FROM stamped, limits
    WHERE landing IS NOT NULL AND coalesce(partition_time - occurred_at <= grace, true)
),
in_windows AS (
    SELECT *, begins + to_minutes(window_minutes) AS ends,
        count(*) OVER so_far AS purchase_count, sum(amount) OVER so_far AS total_amount
    FROM placed
    WHERE coalesce(watermark < begins + to_minutes(window_minutes) + grace, true)
    WINDOW so_far AS (PARTITION BY customer_id, begins ORDER BY place)
),
over_limits AS (
    SELECT *, row_number() OVER (PARTITION BY customer_id, begins ORDER BY place) AS number
    FROM in_windows WHERE purchase_count > window_purchases OR total_amount > window_amount
),
risky AS (
    SELECT * FROM placed
    WHERE amount > session_amount AND risk_score > session_risk AND coalesce(watermark < occurred_at + grace, true)
),
before AS (
    SELECT newest.place, older.occurred_at, older.amount,
        coalesce(older.occurred_at > lag(older.occurred_at) OVER by_time + newest.gap, true)::INTEGER AS begins
    FROM risky AS newest JOIN risky AS older
        ON older.customer_id = newest.customer_id AND older.place < newest.place
        AND older.occurred_at BETWEEN newest.occurred_at - newest.reach AND newest.occurred_at + newest.reach
    WINDOW by_time AS (PARTITION BY newest.place ORDER BY older.occurred_at, older.place)
),
grouped AS (
    SELECT *, sum(begins) OVER (PARTITION BY place ORDER BY occurred_at ROWS UNBOUNDED PRECEDING) AS session FROM before
),
sessions AS (
    SELECT place, count(*) AS purchases, sum(amount) AS amount, min(occurred_at) AS begins, max(occurred_at) AS ends
    FROM grouped GROUP BY place, session
),
joined AS (
    SELECT risky.place, coalesce(sum(sessions.purchases), 0) + 1 AS purchases,
        coalesce(max(sessions.purchases), 0) AS largest,
        coalesce(sum(sessions.amount), 0) + any_value(risky.amount) AS total,
        least(min(sessions.begins), any_value(occurred_at)) AS starts,
        greatest(max(sessions.ends), any_value(occurred_at)) AS ends
    FROM risky LEFT JOIN sessions
        ON sessions.place = risky.place AND sessions.begins <= occurred_at + gap AND sessions.ends >= occurred_at - gap
    GROUP BY risky.place
),
found AS (
    SELECT 'velocity' AS rule, place, begins AS window_start, ends AS window_end, purchase_count, total_amount
    FROM over_limits WHERE number = 1
    UNION ALL BY NAME
    SELECT 'risky_session' AS rule, place, starts AS window_start, ends AS window_end, purchases AS purchase_count,
        total AS total_amount
    FROM joined, limits WHERE purchases >= session_purchases AND largest < session_purchases
)
SELECT left(sha256(concat_ws(chr(31), rule, customer_id, purchase_id)), 32) AS alert_id, rule, customer_id, purchase_id,
    occurred_at, window_start, window_end, purchase_count, total_amount::DECIMAL(20, 2) AS total_amount, currency,
    "partition", "offset", kafka_timestamp, landing
FROM found JOIN placed USING (place)
"""  # noqa: S608 - constants
