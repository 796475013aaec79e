"""The metrics: one closed list. Nothing is exported that is not in it, and docs/METRICS.md is made of it."""

from __future__ import annotations

from customer_activity.lake.tally import FRESHNESS_SECONDS
from customer_activity.metrics.metric import Metric, Source

# Upper bounds in seconds: a small batch takes tens of milliseconds, a backlog's a minute.
BATCH_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)

METRICS = (
    Metric(
        "activity_rows_read_total",
        "rows",
        "stream source",
        Source.BATCH,
        "Records that a stream read from a topic, or rows from a table's change feed.",
    ),
    Metric(
        "activity_rows_written_total",
        "rows",
        "stream target",
        Source.BATCH,
        "Rows that a stream appended to a table, changes that it merged into one, in the driver or on executors (one a "
        "key, also where it leaves the row as it is), or records that it sent: all topics are `kafka`.",
    ),
    Metric(
        "activity_records_total",
        "records",
        "stream topic outcome",
        Source.BATCH,
        "What became of a topic's records: read, accepted, quarantined, duplicate, stale.",
    ),
    Metric(
        "activity_quarantined_total",
        "records",
        "stream reason",
        Source.BATCH,
        "Records that a stream put into quarantine, by the reason.",
    ),
    Metric(
        "activity_late_events_total",
        "purchases",
        "stream",
        Source.BATCH,
        "Purchases that came too late for a window, once for each window that leaves them out (ops.late_events).",
    ),
    Metric(
        "activity_transactions_total",
        "transactions",
        "stream",
        Source.BATCH,
        "Kafka transactions that a publisher has committed.",
    ),
    Metric(
        "activity_batch_seconds",
        "seconds",
        "stream place",
        Source.BATCH,
        "How long a batch took, by where it was worked on: in the driver, or on executors.",
        BATCH_SECONDS,
    ),
    Metric(
        "activity_batch_phase_seconds",
        "seconds",
        "stream phase place",
        Source.BATCH,
        "How long a phase of a batch took: read, compute, write, commit, publish.",
        BATCH_SECONDS,
    ),
    Metric(
        "activity_freshness_seconds",
        "seconds",
        "stream",
        Source.BATCH,
        "From the Kafka timestamp of the newest input record that a row reflects to when others can read the row: on "
        "the view at the commit of its Kafka transaction, in gold's current rows at the merge. One observation a row; "
        "rows that executors merge are not observed.",
        FRESHNESS_SECONDS,
    ),
    Metric(
        "activity_stream_info",
        "1",
        "stream path",
        Source.LOOK,
        "1 for each stream of this driver: on the hot path, or behind it.",
    ),
    Metric(
        "activity_stream_state",
        "1",
        "stream state",
        Source.LOOK,
        "1 for the state that a stream is in, 0 for the others. `off`: an optional stream that has run before "
        "and is not on, so its tables stay as they were.",
    ),
    Metric(
        "activity_stream_ready",
        "1",
        "stream",
        Source.LOOK,
        "1 where a stream is ready, as `/readyz` says; 0 where it is not.",
    ),
    Metric(
        "activity_lag_records", "records", "stream topic", Source.LOOK, "Records of a topic that have not landed yet."
    ),
    Metric(
        "activity_lag_versions",
        "commits",
        "stream table",
        Source.LOOK,
        "Commits of a table that a stream has not read yet.",
    ),
    Metric(
        "activity_lag_seconds",
        "seconds",
        "stream",
        Source.LOOK,
        "How long the oldest commit that a stream has not read has been there; 0 where it has read all.",
    ),
    Metric(
        "activity_behind_input_seconds",
        "seconds",
        "stream",
        Source.LOOK,
        "For how long the oldest input record that has not come through a stream and all before it has waited, by its "
        "Kafka timestamp; 0 where they have read everything. Also of a stream whose state is `off`.",
    ),
    Metric(
        "activity_last_batch_timestamp_seconds",
        "seconds",
        "stream",
        Source.LOOK,
        "When a stream's last batch ended; of one behind the hot path, its last merge.",
    ),
    Metric(
        "activity_lease_epoch",
        "epoch",
        "stream",
        Source.LOOK,
        "The fencing epoch under which this driver holds a stream.",
    ),
    Metric(
        "activity_stream_restarts_total",
        "restarts",
        "stream",
        Source.LOOK,
        "How often a driver has taken a stream over from the one before, since the lake was made.",
    ),
    Metric("activity_table_rows", "rows", "table", Source.LOOK, "Rows of a table."),
    Metric("activity_table_files", "files", "table", Source.LOOK, "Data files of a table's newest version."),
    Metric("activity_table_bytes", "bytes", "table", Source.LOOK, "Bytes in these files."),
    Metric(
        "activity_state_rows",
        "rows",
        "stream",
        Source.LOOK,
        "Rows of a stream's local state; counted less often where that takes its time.",
    ),
    Metric("activity_state_bytes", "bytes", "stream", Source.LOOK, "Bytes of a stream's local state."),
    Metric("activity_gate_held", "1", "", Source.LOOK, "1 while quality holds publishing, 0 otherwise."),
    Metric(
        "activity_gate_rules",
        "rules",
        "state",
        Source.LOOK,
        "Rules that have failed: those that hold publishing, and those that are overridden.",
    ),
    Metric("activity_driver_info", "1", "release", Source.LOOK, "1: which release runs the pipeline."),
    Metric("activity_driver_start_timestamp_seconds", "seconds", "", Source.LOOK, "When the driver's process started."),
    Metric(
        "activity_driver_cpu_seconds_total",
        "seconds",
        "process",
        Source.LOOK,
        "Processor time of the driver, by process: Python's own, the JVM, and Python workers that the JVM started.",
    ),
    Metric(
        "activity_driver_memory_bytes", "bytes", "process", Source.LOOK, "Resident memory of the driver, by process."
    ),
    Metric(
        "activity_look_timestamp_seconds",
        "seconds",
        "",
        Source.LOOK,
        "When the figures were read that are not counted as batches end.",
    ),
    Metric("activity_look_seconds", "seconds", "", Source.LOOK, "How long it took to read them."),
    Metric(
        "activity_quality_rule_failed",
        "1",
        "rule suite severity",
        Source.QUALITY,
        "1 where a rule failed or could not be judged, 0 where it passed.",
    ),
    Metric(
        "activity_quality_rule_observed",
        "the rule's",
        "rule suite",
        Source.QUALITY,
        "The figure that a rule is judged by, where it is one.",
    ),
    Metric(
        "activity_quality_judged_timestamp_seconds",
        "seconds",
        "suite",
        Source.QUALITY,
        "When the rules of a suite were judged last.",
    ),
    Metric(
        "activity_match_rate",
        "share of 1",
        "of",
        Source.QUALITY,
        "Share of purchases, customers and turnover with a profile, and of profiles with a purchase.",
    ),
)

BY_NAME = {metric.name: metric for metric in METRICS}


def named(name: str) -> Metric:
    """Return a metric.

    Raises:
        KeyError: it is not in the list.
    """
    return BY_NAME[name]
