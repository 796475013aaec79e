"""Verification: recompute the whole view from Kafka in plain Python and compare every table and the view topic with it.

Nothing of the pipeline is imported here: not its contracts, parsers or steps. Two mistakes that agree are unlikely
only as long as they are made apart.
"""
