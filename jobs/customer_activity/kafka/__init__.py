"""Kafka: clients, settings, topics, rights and faults, for every part that talks to a broker."""
