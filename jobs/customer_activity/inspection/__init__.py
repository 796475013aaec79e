"""Look at the running system from outside, without Spark: status, one customer, the topology, the machine."""
