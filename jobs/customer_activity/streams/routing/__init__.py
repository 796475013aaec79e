"""Routing: which branch each enriched purchase goes to, by rules that are data."""
