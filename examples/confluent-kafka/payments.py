"""Pays orders, each exactly once: in transactions, with confluent-kafka."""

from __future__ import annotations

import json

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition


class Payments:
    """One worker of the group `payments`."""

    def __init__(self, servers: str, group: str = "payments", worker: str = "payments-1") -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self.consumer.subscribe(["orders"])
        self.producer = Producer({"bootstrap.servers": servers, "transactional.id": worker})
        self.producer.init_transactions(30)

    def work(self, orders: int) -> None:
        """Pay so many orders, each in one transaction with its offset."""
        while orders:
            message = self.consumer.poll(1.0)
            if message is None or message.error():
                continue
            try:
                self._pay(message)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self.producer.abort_transaction(30)
                place = TopicPartition(message.topic(), message.partition(), message.offset())
                self.consumer.seek(place)  # the order is read again
            else:
                orders -= 1

    def _pay(self, message) -> None:
        order = json.loads(message.value())
        payment = {"order": order["id"], "cents": order["count"] * order["price"]}
        self.producer.begin_transaction()
        self.producer.produce("payments", json.dumps(payment), key=message.key())
        positions = self.consumer.position(self.consumer.assignment())
        group = self.consumer.consumer_group_metadata()
        self.producer.send_offsets_to_transaction(positions, group, 30)
        self.producer.commit_transaction(30)

    def close(self) -> None:
        self.consumer.close()
