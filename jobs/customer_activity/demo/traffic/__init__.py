"""Traffic: purchases and profiles to feed the pipeline with, from a real data set or from a seed.

A source (`dataset`, `generator`) is a lazy iterator of records and needs no Kafka; `mixing` disturbs such an iterator
with repeats, conflicts and the bad records of `poison`; only `sending` knows a broker.
"""
