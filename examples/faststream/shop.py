"""Confirms orders, with FastStream."""

from __future__ import annotations

from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaRouter
from pydantic import BaseModel

router = KafkaRouter()


class Order(BaseModel):
    """What a customer sends."""

    id: int
    article: str
    count: int


class Confirmation(BaseModel):
    """What the customer gets."""

    order: int
    text: str


@router.subscriber(
    "orders",
    group_id="shop",
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.ACK,  # commit after the work; skip what is no order
)
@router.publisher("confirmations")
async def confirm(order: Order) -> Confirmation:
    """Turn an order into its confirmation."""
    return Confirmation(order=order.id, text=f"{order.count} {order.article} are on the way")


def new_broker(servers: str) -> KafkaBroker:
    """FastStream's broker: our functions, and the clients that connect them to Kafka."""
    broker = KafkaBroker(servers, retry_backoff_ms=20)
    broker.include_router(router)
    return broker
