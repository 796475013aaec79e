"""Maintenance of tables: checkpoints of logs, compaction, VACUUM, beside the streams or on demand."""
