"""Publish: gold's changes to the view topic, exactly once."""
