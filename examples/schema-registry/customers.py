"""Customers as Avro, with confluent-kafka's serializers and a schema registry."""

from __future__ import annotations

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

CUSTOMER = """{
  "type": "record", "name": "Customer",
  "fields": [{"name": "name", "type": "string"}]
}"""
CUSTOMER_WITH_CITY = """{
  "type": "record", "name": "Customer",
  "fields": [
    {"name": "name", "type": "string"},
    {"name": "city", "type": "string", "default": "unknown"}
  ]
}"""


def write(
    servers: str, registry: SchemaRegistryClient, topic: str, schema: str, *customers
) -> None:
    """Write customers in a schema, which is registered if it is new."""
    serialize = AvroSerializer(registry, schema)
    producer = Producer({"bootstrap.servers": servers})
    context = SerializationContext(topic, MessageField.VALUE)
    for customer in customers:
        producer.produce(topic, serialize(customer, context), key=customer["name"])
    producer.flush()


def read(servers: str, registry: SchemaRegistryClient, topic: str, schema: str, count: int) -> list:
    """Read so many customers; whatever schema wrote them, they have the fields of this one."""
    deserialize = AvroDeserializer(registry, schema)
    options = {"group.id": f"readers-of-{topic}", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, **options})
    context = SerializationContext(topic, MessageField.VALUE)
    consumer.subscribe([topic])
    customers: list = []
    try:
        while len(customers) < count:
            message = consumer.poll(1.0)
            if message is not None and not message.error():
                customers.append(deserialize(message.value(), context))
        return customers
    finally:
        consumer.close()
