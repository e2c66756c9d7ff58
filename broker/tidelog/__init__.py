"""tidelog: a Kafka-compatible broker in pure Python."""
