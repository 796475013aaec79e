"""The engine: runs the streams' queries in one Spark session, in turns, under a lease, and tells how they are."""
