"""The clients that put load on a broker: Kafka's perf tools, librdkafka and franz-go."""
