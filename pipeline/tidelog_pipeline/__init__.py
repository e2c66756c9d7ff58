"""Spark jobs over Kafka topics, by PySpark and Spark's standard Kafka source."""
