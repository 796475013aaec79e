"""What several test layers need: records to send, and the pipeline without Kafka."""
