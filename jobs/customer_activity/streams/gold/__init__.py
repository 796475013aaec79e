"""Gold: one current row per customer."""
