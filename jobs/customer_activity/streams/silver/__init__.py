"""Silver: deduplicated purchases, their running summaries, and the current profiles."""
