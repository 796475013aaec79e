"""State: what a hop must know of the past, at exactly one version of each table."""
