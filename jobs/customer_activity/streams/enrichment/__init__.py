"""Enrichment: each purchase with the profile and the product as they were known when it landed."""
