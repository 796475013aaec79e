"""Routing: which route each enriched purchase takes, by rules that are data."""
