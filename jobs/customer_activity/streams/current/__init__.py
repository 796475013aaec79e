"""Current rows: one row a key, merged behind the hot path."""
