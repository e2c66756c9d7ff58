"""Tables of idempotent and transactional producers: InitProducerId."""

from __future__ import annotations

from tidelog_protocol.schema import Message, int16, int32, int64, string

__all__ = ["InitProducerIdRequest", "InitProducerIdResponse"]


class InitProducerIdRequest(Message, api_key=22, versions="0-5", flexible="2+"):
    """Ask for a producer id, or the next epoch of a transactional one (KIP-98).

    v2: flexible
    v3: id and epoch to go on with (KIP-360)
    v4: PRODUCER_FENCED understood (KIP-588)
    v5: TRANSACTION_ABORTABLE understood (KIP-890)
    v6, two-phase commit (KIP-939), isn't stable in Kafka 4.4 and isn't here
    """

    transactional_id: str | None = string(nullable="0+")  # null: idempotent only
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)  # -1: a new one
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, api_key=22, versions="0-5", flexible="2+"):
    """The producer id and epoch to use.

    v2: flexible
    v4: PRODUCER_FENCED may come (KIP-588)
    v5: TRANSACTION_ABORTABLE may come (KIP-890)
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
