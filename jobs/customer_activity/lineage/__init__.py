"""Lineage as OpenLineage events: which run read what and made what of it."""
