"""Event time: each purchase stamped by how far its Kafka partition had come, and the watermark after each landing."""
