"""Billing charges each order once: it reads orders, and writes payments and its place among the
orders in one transaction (confluent-kafka). What is no order goes to the dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from orders import Order

if TYPE_CHECKING:
    from typing import Self

TRANSACTION_S_MAX = 20.0


class Billing:
    def __init__(
        self,
        servers: str,
        *,
        orders: str,
        payments: str,
        dead_letters: str,
        group: str,
        transactional_id: str,
    ) -> None:
        self._payments = payments
        self._dead_letters = dead_letters
        common = {"bootstrap.servers": servers, "reconnect.backoff.max.ms": 500}
        self._producer = Producer(
            {
                **common,
                "client.id": "billing",
                "transactional.id": transactional_id,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
            }
        )
        self._producer.init_transactions(TRANSACTION_S_MAX)  # fences an older one with this id
        self._consumer = Consumer(
            {
                **common,
                "client.id": "billing",
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([orders])

    def bill(self, timeout_s: float = 20.0) -> bool:
        """Bill the next order; return False if none comes in time."""
        message = self.begin(timeout_s)
        if message is None:
            return False
        try:
            self.commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._producer.abort_transaction(TRANSACTION_S_MAX)
            self._consumer.seek(
                TopicPartition(message.topic(), message.partition(), message.offset())
            )
        return True

    def begin(self, timeout_s: float = 20.0) -> Message | None:
        """The first half: all that belongs to the next order, in an open transaction."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return None
        if message.error():
            raise KafkaException(message.error())
        self._producer.begin_transaction()
        try:
            order = Order.from_bytes(message.value())
        except ValueError:
            self._producer.produce(self._dead_letters, message.value(), key=message.key())
        else:
            self._producer.produce(self._payments, order.to_bytes(), key=order.number)
        self._producer.flush(TRANSACTION_S_MAX)
        place = TopicPartition(message.topic(), message.partition(), message.offset() + 1)
        # librdkafka 2.16 waits here for ever if the group's coordinator stops and so leaves the
        # metadata (confluentinc/librdkafka#5511, #5456; found by these tests).
        self._producer.send_offsets_to_transaction(
            [place], self._consumer.consumer_group_metadata(), TRANSACTION_S_MAX
        )
        return message

    def commit(self) -> None:
        """The second half."""
        self._producer.commit_transaction(TRANSACTION_S_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()
