"""Bytes to values and back: Kafka's wire, nothing of logs or clusters."""
