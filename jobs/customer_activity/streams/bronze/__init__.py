"""Bronze: what Kafka said, raw and with its coordinates; what breaks the contract goes to quarantine."""
