"""Intake takes orders and writes them to Kafka (confluent-kafka, idempotent producer)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message, Producer
from orders import OrderRefusedError

if TYPE_CHECKING:
    from orders import Order


class Intake:
    def __init__(self, servers: str, topic: str, **config: Any) -> None:
        defaults = {
            "bootstrap.servers": servers,
            "client.id": "intake",
            "enable.idempotence": True,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 500,
            "retry.backoff.ms": 20,
            "topic.metadata.propagation.max.ms": 1000,
        }
        given = {name.replace("_", "."): value for name, value in config.items()}
        self._producer = Producer({**defaults, **given})
        self._topic = topic

    def place(self, order: Order) -> tuple[int, int]:
        """Store an order; return its partition and offset. OrderRefusedError if that fails."""
        reports: list[tuple[KafkaError | None, Message]] = []
        self._producer.produce(
            self._topic,
            order.to_bytes(),
            key=order.customer,
            headers={"source": b"intake"},
            on_delivery=lambda error, message: reports.append((error, message)),
        )
        self._producer.flush(30)
        if not reports:
            raise OrderRefusedError(f"order {order.number}: no report from Kafka")
        error, message = reports[0]
        if error is not None:
            raise OrderRefusedError(f"order {order.number}: {error.name()}: {error.str()}")
        return message.partition(), message.offset()
