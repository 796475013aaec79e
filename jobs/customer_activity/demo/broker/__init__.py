"""The embedded Kafka broker and the topics that the pipeline needs."""
