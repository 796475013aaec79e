"""State: what a stream must know of the past, at exactly one version of each table."""
