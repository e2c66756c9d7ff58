"""Whole clusters with a remote tier: what Apache Kafka's own tiered-storage tests ask, and more."""
